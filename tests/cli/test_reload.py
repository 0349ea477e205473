"""`delayq worker --reload`: a worker that starts anew when a Python file changes."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)

APP = """
import time
from pathlib import Path
from delayq import DelayQueue

queue = DelayQueue("reminders", lease=5)

@queue.callback
def work(message):
    with open("done", "a") as done:
        done.write(f"VERSION {message.payload}\\n")
    while message.payload == "wait" and not Path("go").exists():
        time.sleep(0.01)
"""
STARTS = "consuming reminders"


@pytest.fixture
def app(tmp_path):
    """Writes a version of the module `app` into the test's folder."""

    def write(version: str, more: str = "") -> None:
        (tmp_path / "app.py").write_text(APP.replace("VERSION", version) + more)

    write("one")
    return write


def done(tmp_path) -> list[str]:
    path = tmp_path / "done"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.long
def test_change_starts_the_worker_anew_after_its_callbacks(start, queue, app, tmp_path):
    program = start("worker", "app:queue", "--reload")
    queue.send("wait")
    program.until(lambda: done(tmp_path) == ["one wait"], "the first message")
    app("two")
    program.says("app.py has changed: the worker starts anew")
    queue.send("next")
    program.says("SIGTERM: finishing running callbacks")
    assert done(tmp_path) == ["one wait"]
    (tmp_path / "go").touch()
    program.until(lambda: done(tmp_path) == ["one wait", "two next"], "the message of the new version")
    program.says("succeeded at attempt 1", 2)
    wait_until(lambda: queue.stats().totals["acked"] == 2)
    app("three", "syntax error(")
    program.says("the worker has ended with exit code 2: it starts anew once a file changes")
    app("three")
    program.says(STARTS, 3)
    queue.send("last")
    program.until(lambda: done(tmp_path)[2:] == ["three last"], "the message after the error")
    program.signal(signal.SIGTERM)
    assert program.ends() == 0
    assert queue.counts().living == 0


def test_worker_ends_with_its_parent(start, queue, app, tmp_path):
    program = start("worker", "app:queue", "--reload")
    program.says(STARTS)
    program.signal(signal.SIGKILL)
    wait_until(lambda: "stopped reminders" in program.err, 60, "the end of the worker")


@pytest.mark.parametrize("option", [["--processes", "2"], ["--max-messages", "5"], ["--http-port", "0"]])
def test_reload_goes_with_one_plain_process(cli, app, tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    ended = cli("worker", "app:queue", "--reload", *option)
    assert ended.code == 2
    assert "--reload is for development" in ended.line


def test_without_the_extra_it_is_one_line(start, app, tmp_path):
    (tmp_path / "watchfiles.py").write_text("raise ImportError")
    program = start("worker", "app:queue", "--reload", env={"PYTHONPATH": os.fspath(tmp_path)})
    assert program.ends() == 2
    assert program.err == "delayq: --reload needs the extra: pip install 'delayq[reload]'\n"
