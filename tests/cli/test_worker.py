"""`delayq worker` in one process: draining, signals, a Redis that goes away, and what is wrong with a target."""

import io
import json
import logging
import re
import signal
import sys

import pytest

from delayq import AsyncDelayQueue, DelayQueue, State
from delayq.cli.logs import configure_logging
from delayq.cli.target import find_queue
from tests.cli.conftest import Program, Start

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
    """The module `app` in the test's folder; returns what its callbacks have noted."""
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


@BOTH
def test_a_burst_drains_the_queue_and_returns(start: Start, jobs, app, target):
    jobs.send_many({"n": n} for n in range(20))
    ended = start("worker", target, "--burst").ended()
    assert ended.code == 0
    assert sorted(app()) == sorted(f"{what} {n}" for n in range(20) for what in ("start", "end"))
    assert jobs.counts().living == 0
    assert "draining jobs, 1 at a time" in ended.err
    assert "finished jobs" in ended.err


@pytest.mark.parametrize("target", ["app:batches", "app:batches_async"])
def test_a_queue_whose_callback_takes_batches_is_served_as_any_other(start: Start, jobs, app, target):
    jobs.send_many(({"n": n} for n in range(200)), retries=0)
    ended = start("worker", target, "--burst").ended()
    assert ended.code == 0
    sizes = [int(line.removeprefix("batch of ")) for line in app()]
    assert sum(sizes) == 200
    assert max(sizes) == 50
    assert (jobs.counts().living, jobs.counts().dead) == (0, 1)


def test_callbacks_have_stdout_to_themselves(start: Start, jobs, app):
    jobs.send_delay_msg({"n": 1, "say": "hello"})
    assert start("worker", "app:queue", "--burst").ended().out == "hello\n"


@BOTH
def test_concurrency_is_the_last_word(start: Start, jobs, app, tmp_path, target):
    jobs.send_many({"n": n, "wait": True} for n in range(3))
    program: Program = start("worker", target, "--burst", env={"DELAYQ_WORKER_CONCURRENCY": "3"})
    program.until(lambda: len(app()) == 3, "three callbacks at a time")
    (tmp_path / "go").touch()
    assert program.ends() == 0
    assert "3 at a time" in program.err


def test_a_queue_without_a_url_has_that_of_the_command(start: Start, jobs, app, redis_url):
    jobs.send_delay_msg({"n": 1})
    assert start("--url", redis_url, "worker", "app:queue", "--burst", url="unix:///nowhere").ends() == 0
    assert app() == ["start 1", "end 1"]


def test_a_callback_may_stop_the_worker(start: Start, jobs, app):
    jobs.send_delay_msg({"n": 1, "stop": True})
    ended = start("worker", "app:queue").ended()
    assert ended.code == 0
    assert app() == ["start 1", "end 1"]


# Signals


@BOTH
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(start: Start, jobs, app, tmp_path, *, target, number):
    jobs.send_many({"n": n, "wait": True} for n in (1, 2))
    program: Program = start("worker", target)
    program.until(app, "the first callback")
    program.signal(number)
    program.says(f"{number.name}: finishing what runs, for up to 30s; once more cuts it off")
    (tmp_path / "go").touch()
    assert program.ends() == 0
    assert "stopped jobs" in program.err
    (first,) = [line.removeprefix("end ") for line in app() if line.startswith("end")]
    left = {message.payload["n"] for state in State for message in jobs.list(state).messages}
    assert left == {1, 2} - {int(first)}


@BOTH
def test_a_second_signal_cuts_off(start: Start, jobs, app, target):
    jobs.send_delay_msg({"n": 1, "wait": True}, id="a")
    program: Program = start("worker", target)
    program.until(app, "the callback")
    program.signal()
    program.says("finishing what runs")
    program.signal()
    ended = program.ended()
    assert ended.code == 1
    assert "what was cut off will be delivered again" in ended.err
    assert (jobs.get("a").state, jobs.get("a").error) == ("backoff", "cut off by a stop")
    assert app() == ["start 1"]


@BOTH
def test_what_outlasts_the_grace_is_cut_off(start: Start, jobs, app, target):
    jobs.send_delay_msg({"n": 1, "wait": True}, id="a")
    program: Program = start("worker", target, "--grace", "100ms")
    program.until(app, "the callback")
    program.signal()
    assert program.ends() == 1
    assert jobs.get("a").state == "backoff"


def test_an_idle_worker_stops_at_once(start: Start, jobs, app):
    program: Program = start("worker", "app:queue")
    program.says("consuming jobs")
    program.signal()
    assert program.ends() == 0


# Redis goes away and comes back


@pytest.mark.faults
@BOTH
def test_a_worker_goes_on_after_a_loss_of_redis(start: Start, start_redis, app, target):
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


@BOTH
def test_no_redis_at_the_start_is_told_soon(start: Start, app, target):
    ended = start("--timeout", "200ms", "worker", target, url="redis://u:s3cr3t@127.0.0.1:1").ended()
    assert (ended.code, ended.out) == (69, "")
    assert "connecting to 127.0.0.1:1" in ended.line
    assert "s3cr3t" not in ended.err


# The log


def test_the_log_may_be_json(start: Start, jobs, app):
    jobs.send_delay_msg({"n": 1, "fail": True}, retries=0, id="a")
    ended = start("worker", "app:queue", "--burst", "--log-json").ended()
    lines = [json.loads(line) for line in ended.err.splitlines()]
    assert all({"time", "level", "logger", "message", "process"} <= set(line) for line in lines)
    (failure,) = [line for line in lines if line["logger"] == "delayq.consumer"]
    assert (failure["level"], failure["id"]) == ("error", "a")
    assert failure["exception"].endswith("ValueError: evil \x1b[31mred")
    assert "\x1b" not in ended.err


def test_the_log_cannot_act_on_the_terminal(start: Start, jobs, app):
    jobs.send_delay_msg({"n": 1, "fail": True}, retries=0)
    err = start("worker", "app:queue", "--burst").ended().err
    assert re.search(r"^\S+ \S+ ERROR +\d+ delayq.consumer: message \S+ failed at attempt 1$", err, re.MULTILINE)
    assert "Traceback" in err
    assert "ValueError: evil red\n" in err


@pytest.mark.parametrize(("no_color", "level"), [("", "\x1b[31mERROR  \x1b[0m"), ("1", "ERROR  ")])
def test_the_log_is_short_and_coloured_on_a_terminal(monkeypatch, no_color, level):
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


def test_the_log_warns_of_a_redis_that_may_lose_messages(start: Start, jobs, app, start_redis):
    assert "Redis keeps no append-only file" in start("worker", "app:queue", "--burst").ended().err
    safe = start_redis(*PERSISTENT)
    assert "WARNING" not in start("worker", "app:queue", "--burst", url=safe.url).ended().err


def test_the_log_has_a_level(start: Start, jobs, app):
    assert start("worker", "app:queue", "--burst", "--log-level", "error").ended().err == ""


def test_another_prefix_is_pointed_out(start: Start, jobs, app):
    err = start("--prefix", "shop", "worker", "app:queue", "--burst").ended().err
    assert "jobs has the prefix 'delayq', not 'shop'" in err


# Targets


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nothing:queue", "no module 'nothing' in "),
        ("ap:queue", "did you mean 'app'?"),
        ("app.sub:queue", "no module 'app.sub'"),
        ("app", "'app' is not MODULE:QUEUE, as in app:queue"),
        ("app:", "is not MODULE:QUEUE"),
        (":queue", "is not MODULE:QUEUE"),
        ("a b:queue", "is not MODULE:QUEUE"),
        ("..:queue", "is not MODULE:QUEUE"),
        ("app.py:queue", "app.py is a file: name the module, as in app:queue"),
        ("./sub/app.py", "as in sub.app:queue"),
        ("app:quue", "app has no 'quue', did you mean 'queue'?"),
        ("app:zzz", "app has no 'zzz'; it has queue, another, batches, batches_async, silent, strict"),
        ("app:queue.zzz", "app has no 'queue.zzz'"),
        ("app:something", "app:something is not a DelayQueue, but of type dict"),
        ("app:silent", "queue jobs has no callback"),
        ("broken:queue", "broken cannot be imported: ZeroDivisionError: division by zero ("),
        ("broken:queue", "broken.py, line 2; delayq --traceback shows more)"),
        ("needy:queue", "needy cannot be imported: ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("quitting:queue", "quitting cannot be imported: SystemExit: 7"),
    ],
)
def test_a_wrong_target_is_told_in_one_line(cli, app, importing, target, said):
    (importing / "broken.py").write_text("a = 1\na / 0\n")
    (importing / "needy.py").write_text("import nowhere_to_be_found\n")
    (importing / "quitting.py").write_text("import sys\nsys.exit(7)\n")
    ended = cli("worker", target)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.line


def test_where_a_target_fails_is_shown_on_demand(start: Start, tmp_path):
    (tmp_path / "broken.py").write_text("a = 1\na / 0\n")
    ended = start("--traceback", "worker", "broken:queue").ended()
    assert ended.code == 1
    assert 'broken.py", line 2' in ended.err


def test_a_queue_that_is_strict_refuses_an_unsafe_redis(start: Start, redis_url, app):
    ended = start("worker", "app:strict").ended()
    assert (ended.code, ended.out) == (4, "")
    assert "Redis keeps no append-only file" in ended.line


@pytest.mark.parametrize(
    ("options", "said"),
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
def test_wrong_options_are_told_in_one_line(cli, options, said):
    ended = cli("worker", "app:queue", *options)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.line


def test_both_kinds_of_queue_are_found(app, importing, monkeypatch):
    monkeypatch.setenv("DELAYQ_URL", "unix:///nowhere")
    assert isinstance(find_queue("app:queue"), DelayQueue)
    assert isinstance(find_queue("app:another"), AsyncDelayQueue)
