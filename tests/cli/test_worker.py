"""`delayq worker` in one process: draining, signals, loss of Redis, and invalid targets."""

import io
import json
import logging
import re
import signal
import sys
import textwrap

import pytest

from delayq import AsyncDelayQueue, DelayQueue, NewMessage, State
from delayq.cli.support.app_loader import find_queues
from delayq.cli.support.logs import configure_logging
from tests.cli.conftest import Program, Start
from tests.support.processes import run

pytestmark = pytest.mark.timeout(180)  # a process starts in a second, or in ten on a machine that is busy

APP = """
import asyncio, os, sys, time
from pathlib import Path
from delayq import AsyncDelayQueue, DelayQueue

queue = DelayQueue("jobs", tick=0.2)
another = AsyncDelayQueue("jobs", tick=0.2)
batches = DelayQueue("jobs", tick=0.2)
batches_async = AsyncDelayQueue("jobs", tick=0.2)
silent = DelayQueue("jobs")
strict = DelayQueue("jobs", strict=True, callback=print)
something = {"else": 1}
held = open("held", "w") if "HOLD" in os.environ else None  # it is flushed when the interpreter ends

def note(text):
    with open("done", "a") as done:
        done.write(f"{text}\\n")

@queue.callback
def work(message):
    payload = message.payload
    note(f"start {payload['n']}")
    if payload.get("fail"):
        raise ValueError("evil \\x1b[31mred")
    if payload.get("stop"):
        queue.stop_consume()
    if payload.get("hold"):
        held.write(payload["hold"])
    if payload.get("say"):
        print(payload["say"], flush=True)
    while payload.get("wait") and not Path("go").exists():
        time.sleep(0.01)
    note(f"end {payload['n']}")

@batches.batch_callback(most=50)
def work_batch(messages):
    note(f"batch of {len(messages)}")
    return [message.payload["n"] != 7 for message in messages]

@batches_async.batch_callback(most=50)
async def work_batch_async(messages):
    return work_batch(messages)

@another.callback
async def work_async(message):
    note(f"start {message.payload['n']}")
    while message.payload.get("wait") and not Path("go").exists():
        await asyncio.sleep(0.01)
    note(f"end {message.payload['n']}")
"""

BOTH = pytest.mark.parametrize("target", ["app:queue", "app:another"])
PERSISTENT = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture
def app(tmp_path):
    """Writes the module `app` into the test's folder; returns what its callbacks have recorded."""
    (tmp_path / "app.py").write_text(APP)
    done = tmp_path / "done"

    def noted() -> list[str]:
        return done.read_text().splitlines() if done.exists() else []

    return noted


@pytest.fixture
def jobs(redis_url):
    """The queue that `app` serves."""
    with DelayQueue("jobs", url=redis_url) as queue:
        yield queue


# Draining


@pytest.mark.long
@BOTH
def test_burst_drains_the_queue_and_exits(start: Start, jobs, app, target):
    jobs.send_many({"n": n} for n in range(20))
    ended = start("worker", target, "--burst").ended()
    assert ended.code == 0
    assert sorted(app()) == sorted(f"{what} {n}" for n in range(20) for what in ("start", "end"))
    assert jobs.counts().living == 0
    assert "draining jobs, 1 at a time" in ended.err
    assert "finished jobs" in ended.err


@pytest.mark.parametrize("target", ["app:batches", "app:batches_async"])
def test_batch_callback_gets_batches(start: Start, jobs, app, target):
    jobs.send_many(({"n": n} for n in range(200)), retries=0)
    ended = start("worker", target, "--burst").ended()
    assert ended.code == 0
    sizes = [int(line.removeprefix("batch of ")) for line in app()]
    assert sum(sizes) == 200
    assert max(sizes) == 50
    assert (jobs.counts().living, jobs.counts().dead) == (0, 1)


def test_only_callbacks_print_to_stdout_and_what_they_have_buffered_is_written(start: Start, jobs, app, tmp_path):
    jobs.send_delay_msg({"n": 1, "say": "hello", "hold": "buffered"})
    assert start("worker", "app:queue", "--burst", env={"HOLD": "yes"}).ended().out == "hello\n"
    assert (tmp_path / "held").read_text() == "buffered"


@BOTH
def test_concurrency_is_read_from_the_environment(start: Start, jobs, app, tmp_path, target):
    jobs.send_many({"n": n, "wait": True} for n in range(3))
    program: Program = start("worker", target, "--burst", env={"DELAYQ_WORKER_CONCURRENCY": "3"})
    program.until(lambda: len(app()) == 3, "three callbacks at a time")
    (tmp_path / "go").touch()
    assert program.ends() == 0
    assert "3 at a time" in program.err


def test_queue_without_a_url_uses_that_of_the_command(start: Start, jobs, app, redis_url):
    jobs.send_delay_msg({"n": 1})
    assert start("--url", redis_url, "worker", "app:queue", "--burst", url="unix:///nowhere").ends() == 0
    assert app() == ["start 1", "end 1"]


def test_callback_can_stop_the_worker(start: Start, jobs, app):
    jobs.send_delay_msg({"n": 1, "stop": True})
    ended = start("worker", "app:queue").ended()
    assert ended.code == 0
    assert app() == ["start 1", "end 1"]


# Signals


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_lets_running_callbacks_finish(start: Start, jobs, app, tmp_path, *, target, number):
    jobs.send_many({"n": n, "wait": True} for n in (1, 2))
    program: Program = start("worker", target)
    program.until(app, "the first callback")
    program.signal(number)
    program.says(f"{number.name}: finishing running callbacks for up to 30s; another signal cuts them off")
    (tmp_path / "go").touch()
    assert program.ends() == 0
    assert "stopped jobs" in program.err
    (first,) = [line.removeprefix("end ") for line in app() if line.startswith("end")]
    left = {message.payload["n"] for state in State for message in jobs.list(state).messages}
    assert left == {1, 2} - {int(first)}


@BOTH
def test_second_signal_interrupts_callbacks(start: Start, jobs, app, target):
    jobs.send_delay_msg({"n": 1, "wait": True}, id="a")
    program: Program = start("worker", target)
    program.until(app, "the callback")
    program.signal()
    program.says("finishing running callbacks")
    program.signal()
    ended = program.ended()
    assert ended.code == 1
    assert "messages that were cut off will be delivered again" in ended.err
    assert (jobs.get("a").state, jobs.get("a").snoozes) == ("ready", 1)
    assert app() == ["start 1"]


@BOTH
def test_callback_longer_than_the_grace_period_is_interrupted(start: Start, jobs, app, target):
    jobs.send_delay_msg({"n": 1, "wait": True}, id="a")
    program: Program = start("worker", target, "--grace", "100ms")
    program.until(app, "the callback")
    program.signal()
    assert program.ends() == 1
    assert (jobs.get("a").state, jobs.get("a").attempts) == ("ready", 0)


@pytest.mark.long
def test_an_idle_worker_stops_at_once(start: Start, jobs, app):
    program: Program = start("worker", "app:queue")
    program.says("consuming jobs")
    program.signal()
    assert program.ends() == 0


# Redis fails and comes back


@pytest.mark.long
@pytest.mark.faults
@BOTH
def test_worker_continues_after_redis_was_down(start: Start, start_redis, app, target):
    server = start_redis(*PERSISTENT)
    program: Program = start("worker", target, url=server.url)
    with DelayQueue("jobs", url=server.url) as jobs:
        jobs.send_delay_msg({"n": 1})
        program.until(lambda: "end 1" in app(), "the first message")
        server.kill()
        program.says("Redis does not answer")
        server.start()
        jobs.send_delay_msg({"n": 2})
        program.until(lambda: "end 2" in app(), "the second message")
        program.signal()
        assert program.ends() == 0
        assert jobs.counts().living == 0
    assert "Redis answers again" in program.err


@pytest.mark.long
@pytest.mark.faults
@BOTH
def test_worker_survives_a_password_that_is_rotated(start: Start, start_redis, app, target):
    server = start_redis(tcp=True)
    rights = ("ACL", "SETUSER", "worker", "on", "~*", "&*", "+@all", "resetpass")
    with server.client() as admin, DelayQueue("jobs", url=server.url) as jobs:
        admin.execute_command(*rights, ">old")
        program: Program = start("worker", target, url=server.url.replace("redis://", "redis://worker:old@"))
        jobs.send_delay_msg({"n": 1})
        program.until(lambda: "end 1" in app(), "the first message")
        admin.execute_command(*rights, ">new")
        admin.execute_command("CLIENT", "KILL", "USER", "worker")
        program.says("Cannot connect to Redis at 127.0.0.1")
        admin.execute_command(*rights, ">old")
        program.says("Redis answers again")
        jobs.send_delay_msg({"n": 2})
        program.until(lambda: "end 2" in app(), "the second message")
        program.signal()
        assert program.ends() == 0
    assert program.err.count("Cannot connect to Redis") == 1


@pytest.mark.long
@BOTH
def test_unreachable_redis_at_the_start_exits_69(start: Start, app, target):
    ended = start("--timeout", "200ms", "worker", target, url="redis://u:s3cr3t@127.0.0.1:1").ended()
    assert (ended.code, ended.out) == (69, "")
    assert ended.line.startswith("Redis cannot be reached at 127.0.0.1:1 (from DELAYQ_URL): ")
    assert "s3cr3t" not in ended.err


@BOTH
def test_signal_ends_a_worker_at_once_that_has_not_reached_redis(start: Start, app, target):
    program: Program = start("--timeout", "10m", "worker", target, url="redis://127.0.0.1:1")
    program.says("Redis does not answer")
    program.signal()
    ended = program.ended()
    assert ended.code == 0
    assert "finishing running callbacks" not in ended.err
    assert "Traceback" not in ended.err


# Logging


def test_log_can_be_json(start: Start, jobs, app):
    jobs.send_delay_msg({"n": 1, "fail": True}, retries=0, id="a")
    ended = start("worker", "app:queue", "--burst", "--log-json").ended()
    lines = [json.loads(line) for line in ended.err.splitlines()]
    assert all({"time", "level", "logger", "message", "process"} <= set(line) for line in lines)
    (failure,) = [line for line in lines if line["logger"] == "delayq.consumer"]
    assert (failure["level"], failure["queue"], failure["id"]) == ("error", "jobs", "a")
    assert failure["exception"].endswith("ValueError: evil \x1b[31mred")
    assert "\x1b" not in ended.err


@pytest.mark.long
def test_log_removes_terminal_escapes(start: Start, jobs, app):
    jobs.send_delay_msg({"n": 1, "fail": True}, retries=0)
    err = start("worker", "app:queue", "--burst").ended().err
    assert re.search(
        r"^\S+ \S+ ERROR +\d+ delayq.consumer: jobs: message \S+ failed at attempt 1 and has no retries left: .*$",
        err,
        re.MULTILINE,
    )
    assert "Traceback" in err
    assert "ValueError: evil red\n" in err


@pytest.mark.parametrize(("no_color", "level"), [("", "\x1b[31mERROR  \x1b[0m"), ("1", "ERROR  ")])
def test_log_is_short_and_coloured_on_a_terminal(monkeypatch, no_color, level):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("NO_COLOR", no_color)
    configure_logging("info", as_json=False)
    logging.getLogger("delayq.test").error("evil \x1b[2J%s", "words")
    assert re.search(rf"\d\d:\d\d:\d\d\S* {re.escape(level)} delayq.test: evil words\n", sys.stderr.getvalue())


@pytest.mark.long
def test_log_warns_of_a_redis_that_may_lose_messages(start: Start, jobs, app, start_redis):
    assert "Redis has no append-only file" in start("worker", "app:queue", "--burst").ended().err
    safe = start_redis(*PERSISTENT)
    assert "WARNING" not in start("worker", "app:queue", "--burst", url=safe.url).ended().err


def test_log_level_option_hides_lower_levels(start: Start, jobs, app):
    assert start("worker", "app:queue", "--burst", "--log-level", "error").ended().err == ""


@pytest.mark.long
@pytest.mark.parametrize("processes", ["1", "2"])
def test_log_messages_option_tells_of_each_message_that_is_done(start: Start, jobs, app, processes):
    jobs.send_many([NewMessage({"n": n}, id=f"m{n}", name="remind") for n in range(3)])
    err = start("worker", "app:queue", "--burst", "--log-messages", "--processes", processes).ended().err
    for n in range(3):
        assert re.search(rf" INFO +\d+ delayq.consumer: jobs: remind m{n} succeeded at attempt 1 in \S+\n", err)


def test_worker_tells_of_no_message_that_is_done_unless_it_is_asked_to(start: Start, jobs, app):
    jobs.send_delay_msg({"n": 1})
    assert "succeeded" not in start("worker", "app:queue", "--burst").ended().err


def test_prefix_of_the_command_that_differs_from_the_queue_is_reported(start: Start, jobs, app):
    err = start("--prefix", "shop", "worker", "app:queue", "--burst").ended().err
    assert "jobs has the prefix 'delayq', not 'shop'" in err


# Targets


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("nothing:queue", "no module 'nothing' in "),
        ("ap:queue", "did you mean 'app'?"),
        ("app.sub:queue", "no module 'app.sub'"),
        ("app:", "'app:' is not MODULE or MODULE:QUEUE, as in app or app:queue"),
        (":queue", "is not MODULE or MODULE:QUEUE"),
        ("a b", "is not MODULE or MODULE:QUEUE"),
        ("a b:queue", "is not MODULE or MODULE:QUEUE"),
        ("app:queue=six", "the weight must be a whole number from 1"),
        ("..:queue", "is not MODULE or MODULE:QUEUE"),
        ("app.py", "app.py is a file: name the module, as in app"),
        ("app.py:queue", "app.py is a file: name the module, as in app:queue"),
        ("./sub/app.py", "as in sub.app"),
        ("app:quue", "app has no 'quue', did you mean 'queue'?"),
        ("app:zzz", "app has no 'zzz'; it has queue, another, batches, batches_async, silent, strict"),
        ("app:queue.zzz", "app has no 'queue.zzz'"),
        ("app:something", "app:something is not a DelayQueue, but of type dict"),
        ("app:silent", "queue jobs has no callback"),
        ("broken:queue", "broken cannot be imported: ZeroDivisionError: division by zero ("),
        ("broken:queue", "broken.py, line 2; delayq --traceback shows more)"),
        ("wrong:queue", "wrong.py, line 3; delayq --traceback shows more)"),  # not the line in delayq that refuses it
        ("needy:queue", "needy cannot be imported: ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("quitting:queue", "quitting cannot be imported: SystemExit: 7"),
    ],
)
def test_invalid_target_prints_one_line(cli, app, importing, target, error):
    (importing / "broken.py").write_text("a = 1\na / 0\n")
    (importing / "wrong.py").write_text("from delayq import DelayQueue\n\nqueue = DelayQueue('jobs', lease=0)\n")
    (importing / "needy.py").write_text("import nowhere_to_be_found\n")
    (importing / "quitting.py").write_text("import sys\nsys.exit(7)\n")
    ended = cli("worker", target)
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.line


def test_module_that_sends_on_import_while_redis_is_down_exits_69(cli, importing):
    program = """
        from delayq import DelayQueue
        queue = DelayQueue("jobs", url="unix:///nowhere/redis.sock", deadline=0.05)
        queue.callback(print)
        queue.send_delay_msg(1)
    """
    (importing / "sends.py").write_text(textwrap.dedent(program))
    ended = cli("worker", "sends:queue")
    assert (ended.code, ended.out) == (69, "")
    assert "Redis cannot be reached" in ended.line


@pytest.mark.long
def test_traceback_option_shows_where_a_target_fails(start: Start, tmp_path):
    (tmp_path / "broken.py").write_text("a = 1\na / 0\n")
    ended = start("--traceback", "worker", "broken:queue").ended()
    assert ended.code == 1
    assert 'broken.py", line 2' in ended.err


def test_strict_queue_refuses_an_unsafe_redis(start: Start, redis_url, app):
    ended = start("worker", "app:strict").ended()
    assert (ended.code, ended.out) == (4, "")
    assert "Redis has no append-only file" in ended.line


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--concurrency", "0"], "--concurrency"),
        (["--processes", "0"], "--processes"),
        (["--processes", "513"], "--processes"),
        (["--grace", "-1"], "--grace must look like"),
        (["--grace", "true"], "--grace must look like"),
        (["--log-level", "loud"], "'loud' is not one of"),
        (["--supervised", "1"], "--supervised"),
    ],
)
def test_invalid_option_prints_one_line(cli, options, error):
    ended = cli("worker", "app:queue", *options)
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.line


def test_sync_and_async_queues_are_found(app, importing, monkeypatch):
    monkeypatch.setenv("DELAYQ_URL", "unix:///nowhere")
    assert [type(queue) for queue in find_queues(["app:queue"])] == [DelayQueue]
    assert [type(queue) for queue in find_queues(["app:another"])] == [AsyncDelayQueue]


@pytest.mark.parametrize("runs", ["q.run()", "asyncio.run(q.run())", "delayq.Worker({q: 1}).run()"])
def test_module_that_runs_as_it_is_imported_is_refused(runs, tmp_path, redis_url):
    kind = "AsyncDelayQueue" if "asyncio" in runs else "DelayQueue"
    lines = f"import asyncio, delayq\nq = delayq.{kind}('q', url={redis_url!r})\nq.callback(lambda m: None)\n{runs}\n"
    (tmp_path / "runs.py").write_text(lines)
    done = run([sys.executable, "-m", "delayq", "worker", "runs"], cwd=tmp_path, capture_output=True, timeout=30)
    assert done.returncode == 2
    assert b'put that under `if __name__ == "__main__":`' in done.stderr
    assert b"Traceback" not in done.stderr
