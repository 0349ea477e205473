"""A process goes on while the files of its package are replaced: here they are gone."""

import shutil
import sys
import urllib.request
from pathlib import Path

import pytest

import delayq
from delayq import DelayQueue
from delayq.streams import StreamQueue
from tests.support.processes import Process
from tests.support.waiting import wait_until

WORKER = """
import asyncio, sys
from delayq import *
from delayq.streams import AsyncStreamQueue, StreamQueue
kind, url = sys.argv[1:]
options = {"url": url, "default_retries": 1, "nack_delay": 0.05, "tick": 0.1}
of_stream = {"url": url, "default_retries": 1, "nack_delay": 0.05}

def check(message):
    if message.payload == "bad":
        raise ValueError("bad")
    if message.payload == "snoozed" and not message.snoozes:
        raise Snooze(0.05)
    if message.payload == "rejected":
        raise Reject("no")
    return message.payload

async def check_later(message):
    return check(message)

async def main():
    stream = kind == "async-stream"
    queue = AsyncStreamQueue("q", **of_stream) if stream else AsyncDelayQueue("q", **options)
    queue.callback(check_later)
    await (AsyncWorker({queue: 1}) if kind == "async-pool" else queue).run()

if kind.startswith("async"):
    asyncio.run(main())
else:
    stream = kind == "stream"
    queue = StreamQueue("q", **of_stream) if stream else DelayQueue("q", breaker=Breaker(), **options)
    queue.callback(check)
    if kind == "threads":
        @queue.every("1d")
        def never(message):
            pass
    (Worker({queue: 1}) if kind == "pool" else queue).run()
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package, and the environment of processes that use it."""
    folder = tmp_path / "delayq"
    shutil.copytree(Path(delayq.__file__).parent, folder, ignore=shutil.ignore_patterns("spark", "demo", "__pycache__"))
    return folder, {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["threads", "pool", "asyncio", "async-pool", "stream", "async-stream"])
def test_worker_without_its_package(redis_url, package, tmp_path, kind):
    folder, env = package
    stream = "stream" in kind
    queue = StreamQueue("q", url=redis_url) if stream else DelayQueue("q", url=redis_url)
    send = queue.send if stream else queue.send_delay_msg
    program = [sys.executable, "-c", WORKER, kind.replace("asyncio", "async"), redis_url]
    with queue, Process(program, env=env, cwd=tmp_path, stderr=-1) as worker:
        send("good")
        wait_until(lambda: queue.counts().living == 0)
        folder.rename(tmp_path / "gone")
        for payload in ("bad", "rejected", "good"):
            send(payload)
        dead = 2
        if not stream:
            send("snoozed")
            queue.schedules.add("soon", every="1s", payload="good")
            kept = send("kept", retention="1h")
            assert queue.result(kept.id, timeout="20s") == "kept"
            running = send("good", "1h")
            queue.cancel(running.id)
        wait_until(lambda: queue.counts().dead == dead)
        if stream:
            wait_until(lambda: queue.counts().living == 0)
        else:
            wait_until(lambda: queue.stats().totals.get("acked", 0) >= 5)
        worker.terminate()
        error = worker.communicate(timeout=30)[1].decode()
        assert worker.returncode == 0, error
        assert "FileNotFoundError" not in error
        assert "ModuleNotFoundError" not in error


@pytest.mark.long
def test_dashboard_without_its_package(redis_url, package, tmp_path):
    folder, env = package
    with DelayQueue("q", url=redis_url) as queue:
        queue.send_delay_msg("x", "1h", id="one")
    command = [sys.executable, "-m", "delayq", "--url", redis_url, "web", "--port", "0"]
    with Process(command, env=env, cwd=tmp_path, stderr=-1) as web:
        line = ""
        while "serving" not in line:
            line = web.stderr.readline().decode()
            assert line, "it has ended"
        url = line.partition("serving ")[2].split(",")[0]
        folder.rename(tmp_path / "gone")
        for page in (
            "",
            "queue?queue=q",
            "message?queue=q&id=one",
            "static/dashboard.css",
            "schedules?queue=q",
            "dead?queue=q",
        ):
            with urllib.request.urlopen(url + page, timeout=20) as reply:
                assert reply.status == 200
        web.terminate()
        assert web.wait(30) == 0
