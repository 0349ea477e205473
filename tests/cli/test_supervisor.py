"""`delayq worker --processes N`: starts, replaces and stops child processes, and leaves none running."""

import os
import re
import signal

import pytest

from delayq import DelayQueue
from delayq.cli.worker import supervisor
from delayq.cli.worker.worker import read_size, resident_bytes
from tests.cli.conftest import PATIENCE, Program, Start
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)  # a process starts in a second, or in ten on a machine that is busy

APP = """
import os, time
from pathlib import Path
from delayq import DelayQueue

queue = DelayQueue("jobs", tick=0.2, lease=1, prefetch=0)
# Without prefetch, no process holds a message that another one could process.

@queue.callback
def work(message):
    payload = message.payload
    with open("done", "a") as done:
        done.write(f"{payload['n']} {os.getpid()}\\n")
    if payload.get("die") and len(Path("done").read_text().splitlines()) == 1:
        os.kill(os.getpid(), 9)
    if payload.get("exit") and len(Path("done").read_text().splitlines()) == 1:
        os._exit(0)
    while payload.get("wait") and not Path("go").exists():
        time.sleep(0.01)
"""


@pytest.fixture
def done(tmp_path):
    """Writes the module `app` into the test's folder; returns what its callbacks recorded: number and process id."""
    (tmp_path / "app.py").write_text(APP)
    path = tmp_path / "done"

    def noted() -> list[tuple[int, int]]:
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines]

    return noted


@pytest.fixture
def jobs(redis_url):
    """The queue that `app` serves."""
    with DelayQueue("jobs", url=redis_url) as queue:
        yield queue


def consuming(program: Program) -> list[int]:
    """Return the process ids that have reported that they consume, in that order."""
    return [int(number) for number in re.findall(r" (\d+) delayq.worker: consuming jobs", program.err)]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def pair(start: Start, done) -> Program:
    """A worker with two processes, both consuming."""
    program: Program = start("worker", "app:queue", "--processes", "2")
    program.says("consuming jobs", 2)
    return program


@pytest.mark.long
def test_processes_share_the_messages_and_finish_them_on_a_signal(pair, jobs, done, tmp_path):
    jobs.send_many({"n": n, "wait": True} for n in range(2))
    pair.until(lambda: len(done()) == 2, "two callbacks at a time")
    assert {pid for _, pid in done()} == set(consuming(pair))
    pair.signal()
    pair.says("finishing running callbacks", 2)
    (tmp_path / "go").touch()
    assert pair.ends() == 0
    assert jobs.counts().living == 0
    assert not any(map(is_running, consuming(pair)))


def test_killed_process_is_replaced(pair, jobs, done):
    first = consuming(pair)
    os.kill(first[1], signal.SIGKILL)
    pair.says("was killed by SIGKILL; starting another in 0.5 s")
    pair.says("consuming jobs", 3)
    assert len(set(consuming(pair))) == 3
    jobs.send_many({"n": n} for n in range(50))
    pair.until(lambda: len(done()) == 50, "all callbacks")
    pair.signal(signal.SIGINT)
    assert pair.ends() == 0


@pytest.mark.long
def test_a_message_that_kills_its_process_is_delivered_again(start: Start, jobs, done):
    jobs.send_delay_msg({"n": 1, "die": True})
    program: Program = start("worker", "app:queue", "--processes", "2")
    program.until(lambda: len(done()) == 2, "two deliveries")
    assert len({pid for _, pid in done()}) == 2
    program.says("was killed by SIGKILL")
    program.signal()
    assert program.ends() == 0


@pytest.mark.long
def test_process_that_ends_with_0_in_the_middle_of_work_is_replaced(start: Start, jobs, done):
    jobs.send_delay_msg({"n": 1, "exit": True})
    program: Program = start("worker", "app:queue", "--processes", "2")
    program.says("ended with exit code 0 in the middle of work; starting another")
    program.until(lambda: len(done()) == 2, "two deliveries")
    assert len({pid for _, pid in done()}) == 2
    program.signal()
    assert program.ends() == 0
    assert jobs.counts().living == 0


@pytest.mark.long
def test_second_signal_interrupts_all_processes(pair, jobs, done):
    jobs.send_many({"n": n, "wait": True} for n in range(2))
    pair.until(lambda: len(done()) == 2, "two callbacks at a time")
    pair.signal()
    pair.says("finishing running callbacks", 2)
    pair.signal()
    assert pair.ends() == 1
    assert jobs.counts().ready == 2
    assert not any(map(is_running, consuming(pair)))


@pytest.mark.long
def test_third_signal_kills_at_once(pair, jobs, done):
    for pid in consuming(pair):
        os.kill(pid, signal.SIGSTOP)
    for number in range(1, 4):
        pair.signal()
        pair.says("SIGTERM: stopping 2 workers", number)
    assert pair.ends() == 1
    assert not any(map(is_running, consuming(pair)))


@pytest.mark.long
def test_child_processes_exit_when_their_parent_is_killed(pair):
    pair.signal(signal.SIGKILL)
    pair.ends()
    wait_until(lambda: not any(map(is_running, consuming(pair))), PATIENCE, "the end of the children", every=0.02)


@pytest.mark.long
def test_ctrl_c_in_a_terminal_does_not_signal_child_processes(pair, jobs, done, tmp_path):
    # A terminal signals the whole process group of the program; each child has its own group.
    group = os.getpgid(pair.process.pid)
    assert all(os.getpgid(pid) != group for pid in consuming(pair))


@pytest.mark.long
def test_burst_ends_when_all_processes_have_drained(start: Start, jobs, done):
    jobs.send_many({"n": n} for n in range(30))
    ended = start("worker", "app:queue", "--processes", "2", "--burst").ended()
    assert ended.code == 0
    assert sorted(n for n, _ in done()) == list(range(30))
    assert ended.err.count("finished jobs") == 2


def test_same_error_in_all_child_processes_is_reported_once(start: Start, done):
    ended = start("worker", "nothing:queue", "--processes", "3").ended()
    assert ended.code == 2
    assert "no module 'nothing'" in ended.line


@pytest.mark.long
def test_unreachable_redis_is_reported_once(start: Start, done):
    ended = start("--timeout", "200ms", "worker", "app:queue", "--processes", "3", url="redis://127.0.0.1:1").ended()
    assert ended.code == 69
    assert "127.0.0.1:1" in ended.line


@pytest.mark.long
def test_only_one_child_process_warns_of_an_unsafe_redis(pair):
    assert pair.err.count("Redis has no append-only file") == 1


@pytest.mark.long
def test_child_processes_get_the_options_of_their_parent(start: Start, redis_url, jobs, done):
    environment = {"DELAYQ_WORKER_PROCESSES": "2", "DELAYQ_WORKER_LOG_JSON": "1", "DELAYQ_WORKER_GRACE": "7s"}
    options = ("--url", redis_url, "--timeout", "9s", "worker", "app:queue", "--concurrency", "5")
    program: Program = start(*options, env=environment, url="unix:///nowhere")
    program.says("consuming jobs, 5 at a time", 2)
    program.signal()
    assert program.ends() == 0
    assert program.err.count("for up to 7s") == 2
    assert all(line.startswith("{") for line in program.err.splitlines())


@pytest.mark.long
@pytest.mark.faults
def test_all_child_processes_continue_after_redis_was_down(start: Start, start_redis, done):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    program: Program = start("worker", "app:queue", "--processes", "2", url=server.url)
    program.says("consuming jobs", 2)
    server.kill()
    program.says("Redis does not answer", 2)
    server.start()
    with DelayQueue("jobs", url=server.url) as jobs:
        jobs.send_many({"n": n} for n in range(10))
        program.until(lambda: len(done()) == 10, "all callbacks")
    assert len(consuming(program)) == 2
    program.signal()
    assert program.ends() == 0


EXITS_AT_ONCE = """
start_consume = queue.start_consume

def start_slowly(**options):
    consuming = start_consume(**options)
    if not Path("done").exists():
        consuming.wait()
    return consuming

queue.start_consume = start_slowly
"""


@pytest.mark.long
def test_process_that_ends_with_0_before_it_has_reported_its_start_is_replaced(start: Start, jobs, done, tmp_path):
    (tmp_path / "app.py").write_text(APP + EXITS_AT_ONCE)
    jobs.send_delay_msg({"n": 1, "exit": True})
    program: Program = start("worker", "app:queue", "--processes", "2")
    program.says("ended with exit code 0 in the middle of work; starting another")
    program.says("consuming jobs", 2)
    program.until(lambda: len(done()) == 2, "two deliveries")
    program.signal()
    assert program.ends() == 0


@pytest.mark.parametrize(("opened", "finished", "exit_code"), [(False, False, 0), (True, False, 1), (True, True, 0)])
def test_a_process_that_our_signal_ends_with_nothing_in_flight_is_no_failure(opened, finished, exit_code):
    child = supervisor.Child(1)
    child.opened, child.finished = opened, finished
    assert supervisor._exit_code(-signal.SIGTERM, child, stopping=True) == exit_code
    assert supervisor._exit_code(-signal.SIGTERM, child, stopping=False) == 1


@pytest.mark.long
def test_processes_are_replaced_after_max_messages_and_lose_none(start: Start, jobs, done):
    jobs.send_many({"n": n} for n in range(200))
    program: Program = start("worker", "app:queue", "--processes", "2", "--max-messages", "10")
    program.until(lambda: len(done()) == 200, "all callbacks")
    program.says("another process takes over after")
    assert sorted(n for n, _ in done()) == list(range(200)), "each exactly once"
    program.says("consuming jobs", 3)
    assert "starting another" not in program.err
    program.signal()
    assert program.ends() == 0
    assert not any(map(is_running, consuming(program)))


@pytest.mark.long
def test_single_process_is_replaced_too_and_finishes_what_runs(start: Start, jobs, done, tmp_path):
    jobs.send_delay_msg({"n": 1, "wait": True})
    program: Program = start("worker", "app:queue", "--max-messages", "1")
    program.says("another process takes over after 1 message")
    jobs.send_delay_msg({"n": 2})
    (tmp_path / "go").touch()
    program.until(lambda: len(done()) == 2, "the second message in another process")
    assert len({pid for _, pid in done()}) == 2
    assert [n for n, _ in done()] == [1, 2]
    program.signal()
    assert program.ends() == 0
    assert jobs.counts().living == 0


@pytest.mark.long
def test_burst_with_max_messages_ends_when_nothing_is_due(start: Start, jobs, done):
    jobs.send_many({"n": n} for n in range(30))
    program: Program = start("worker", "app:queue", "--burst", "--max-messages", "5")
    assert program.ends() == 0
    assert sorted(n for n, _ in done()) == list(range(30))


@pytest.mark.long
def test_process_over_max_memory_is_replaced(start: Start, jobs, done, tmp_path):
    (tmp_path / "app.py").write_text(f"{APP}    if payload.get('leak'):\n        queue.leak = bytearray(400 << 20)\n")
    jobs.send_delay_msg({"n": 1, "leak": True})
    program: Program = start("worker", "app:queue", "--max-memory", "350M")
    program.says("of memory")
    program.says("consuming jobs", 2)
    jobs.send_delay_msg({"n": 2})
    program.until(lambda: len(done()) == 2, "the second message in another process")
    assert len({pid for _, pid in done()}) == 2
    program.signal()
    assert program.ends() == 0


@pytest.mark.long
def test_max_memory_below_what_the_program_takes_is_an_error(start: Start, done):
    program: Program = start("worker", "app:queue", "--processes", "2", "--max-memory", "1M")
    assert program.ends() == 2
    assert re.fullmatch(
        r"delayq: --max-memory 1 MiB is too little: the program takes \d+ MiB before its first message",
        program.err.strip(),
    )


@pytest.mark.parametrize("size", ["0", "-5M", "much", "5T", "", "1.5G", "9999999999999M"])
def test_bad_sizes_are_named(cli, importing, done, size):
    ended = cli("worker", "app:queue", "--max-memory", size)
    assert ended.code == 2
    assert "--max-memory must be a size above 0, such as 500M or 2G" in ended.err


@pytest.mark.parametrize(
    ("text", "expected"), [("1", 1), ("3k", 3 << 10), ("500M", 500 << 20), ("2GiB", 2 << 30), ("7 MB", 7 << 20)]
)
def test_sizes_are_read(text, expected):
    assert read_size(text, "size") == expected


def test_resident_memory_is_that_of_this_process():
    before = resident_bytes()
    held = bytearray(64 << 20)
    held[:: 4 << 10] = b"x" * len(held[:: 4 << 10])
    assert resident_bytes() - before > 60 << 20
    del held
