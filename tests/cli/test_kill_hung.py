"""`delayq worker --kill-hung`: a process whose callback hangs is replaced, and nothing else suffers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from delayq import DelayQueue
from tests.cli.conftest import Program, Start

pytestmark = pytest.mark.timeout(180)  # a process starts in a second, or in ten on a machine that is busy

APP = """
import os, threading, time
from pathlib import Path
from delayq import DelayQueue

queue = DelayQueue("jobs", nack_delay=0.1, concurrency=2)

@queue.callback
def work(message):
    with open("done", "a") as done:
        done.write(f"{message.payload} {os.getpid()}\\n")
    if message.payload == "hangs":
        threading.Event().wait()
    while message.payload == "waits" and not Path("go").exists():
        time.sleep(0.01)
    if message.payload == "stops":
        while not message.cancel_requested:
            time.sleep(0.01)
        raise ValueError("cut short")
"""


@pytest.fixture
def started(tmp_path):
    """Writes the module `app`; returns what its callbacks have recorded: payload and process id."""
    (tmp_path / "app.py").write_text(APP)
    path: Path = tmp_path / "done"

    def noted(payload: str = "") -> list[tuple[str, int]]:
        lines = path.read_text().splitlines() if path.exists() else []
        pairs = [(line.split()[0], int(line.split()[1])) for line in lines]
        return [pair for pair in pairs if payload in ("", pair[0])]

    return noted


@pytest.fixture
def jobs(redis_url):
    """The queue that `app` serves."""
    with DelayQueue("jobs", url=redis_url, events=True) as queue:
        yield queue


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.long
def test_hung_thread_ends_with_its_process_and_its_message_in_the_dead_letter(start: Start, jobs, started):
    program: Program = start("worker", "app:queue", "--processes", "2", "--kill-hung")
    program.says("consuming jobs", 2)
    jobs.send_delay_msg("hangs", retries=1, id="hangs", timeout="300ms")
    program.until(lambda: started("hangs"), "the callback that hangs")
    jobs.send_many(f"n{n}" for n in range(50))
    program.until(lambda: jobs.counts().dead, "the message that hangs in the dead letter")
    program.until(lambda: jobs.counts().living == 0, "all other messages")
    hung_in = len({pid for _, pid in started("hangs")})  # both attempts may be in one process
    program.says("another process takes over after a callback that hangs", hung_in)
    program.says("consuming jobs", 2 + hung_in)

    assert sorted(name for name, _ in started() if name != "hangs") == sorted(f"n{n}" for n in range(50)), "once each"
    (dead,) = jobs.dead.list().messages
    assert (dead.attempts, dead.error) == (2, "TimeoutError: the callback took longer than 300ms")
    totals = jobs.stats().totals
    assert (totals["nacked"], totals.get("expired", 0), totals["acked"]) == (2, 0, 50)
    program.until(lambda: not any(is_running(pid) for _, pid in started("hangs")), "the end of both processes")
    program.signal()
    assert program.ends() == 0


@pytest.mark.long
def test_process_waits_for_its_other_callbacks_and_charges_none(start: Start, jobs, started, tmp_path):
    program: Program = start("worker", "app:queue", "--kill-hung")
    jobs.send_delay_msg("waits", id="waits", retries=0)
    jobs.send_delay_msg("hangs", id="hangs", retries=0, timeout="300ms")
    program.says("another process takes over after a callback that hangs")
    jobs.send_delay_msg("later", id="later")
    assert jobs.get("waits").state == "active"
    (tmp_path / "go").touch()
    program.until(lambda: started("later"), "the next process")
    ((_, first),) = started("waits")
    ((_, second),) = started("later")
    assert first != second
    assert jobs.get("waits") is None
    assert [dead.id for dead in jobs.dead.list().messages] == ["hangs"]
    program.signal()
    assert program.ends() == 0


@pytest.mark.long
def test_a_process_without_a_hung_callback_is_not_replaced(start: Start, jobs, started):
    jobs.send_many(f"n{n}" for n in range(5))
    program: Program = start("worker", "app:queue", "--kill-hung")
    program.until(lambda: jobs.stats().totals.get("acked") == 5, "all callbacks")
    program.signal()
    assert program.ends() == 0
    assert "takes over" not in program.err


@pytest.mark.long
def test_stop_meanwhile_does_not_wait_for_what_hangs(start: Start, jobs, started):
    """The grace of 30 s is for callbacks within their time."""
    jobs.send_delay_msg("hangs", id="hangs", retries=5, timeout="300ms", delay=0)
    program: Program = start("worker", "app:queue", "--kill-hung", "--grace", "10m")
    program.until(lambda: jobs.stats().totals.get("nacked"), "the timeout")
    program.signal()
    assert program.ends() == 0
    assert jobs.get("hangs").retries_left == 4
    assert jobs.stats().totals["nacked"] == 1


@pytest.mark.long
def test_running_message_is_cancelled_from_the_command_line(start: Start, cli, jobs, started):
    jobs.send_delay_msg("stops", id="stops", retries=5)
    program: Program = start("worker", "app:queue")
    program.until(lambda: started("stops"), "the callback")
    ended = cli("cancel", "jobs", "stops")
    assert (ended.code, ended.out) == (1, "stops  running\n")
    ended = cli("cancel", "jobs", "stops", "--running", "--json")
    assert ended.code == 0
    assert ended.json == {"queue": "jobs", "results": [{"id": "stops", "outcome": "stopping"}]}
    program.until(lambda: jobs.counts().living == 0, "the end of the message")
    assert jobs.stats().totals["cancelled"] == 1
    assert "message stops failed at attempt 1 and is cancelled, as was asked for" in program.err
    program.signal()
    assert program.ends() == 0
