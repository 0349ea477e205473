"""The applications of the handbook under uvicorn: start, stop, reload, several processes, and without Redis."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import delayq
from delayq import DelayQueue
from delayq.testing.redis_server import free_port
from tests.support.processes import Process
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long
PAGE = Path(delayq.__file__).parent / "docs" / "fastapi.md"


@pytest.fixture
def folder(tmp_path):
    """A folder with the applications of the page."""
    for name, text in re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    return tmp_path


class Server:
    """uvicorn with an application; its output is in a file."""

    def __init__(self, folder: Path, app: str, *options: str, url: str) -> None:
        self.output = folder / f"{app.replace(':', '-')}.log"
        command = [sys.executable, "-m", "uvicorn", app, "--port", "0", *options]
        with self.output.open("wb") as out:
            env = os.environ | {"DELAYQ_URL": url, "PYTHONUNBUFFERED": "1"}
            self.process = Process(command, cwd=folder, env=env, stdout=out, stderr=out)

    def text(self) -> str:
        return self.output.read_text()

    def started(self) -> Server:
        wait_until(lambda: "Application startup complete" in self.text() and self.port(), timeout=30)
        return self

    def port(self) -> str:
        found = re.search(r"running on http://127.0.0.1:(\d+)", self.text())
        return found[1] if found else ""

    def ask(self, method: str, path: str) -> tuple[int, Any]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port()}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def stop(self, code: int = 0) -> str:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) in (code, -signal.SIGTERM)  # uvicorn raises the signal again once it has ended
        return self.text()


SLOW = """
import asyncio
from fastapi import FastAPI
from delayq import {kind}
queue = {kind}("slow", grace="{grace}")

@queue.callback
{define} process(message):
    print("begun", flush=True)
    {sleep}(message.payload)
    print("finished", flush=True)

app = FastAPI(lifespan=queue.lifespan({options}))
"""


def slow(folder: Path, *, kind: str = "AsyncDelayQueue", grace: str = "10s", options: str = "") -> None:
    is_async = kind.startswith("Async")
    define, sleep = ("async def", "await asyncio.sleep") if is_async else ("def", "__import__('time').sleep")
    text = SLOW.format(kind=kind, grace=grace, options=options, define=define, sleep=sleep)
    (folder / "slow.py").write_text(text)


def test_the_shop_sends_consumes_and_answers(folder, redis_url):
    server = Server(folder, "shop:app", url=redis_url).started()
    assert server.ask("PUT", "/reminders/7?email=ada@example.org&hours=0")[0] == 202
    wait_until(lambda: "remind ada@example.org" in server.text(), timeout=20)
    assert server.ask("PUT", "/reminders/8?email=ada@example.org")[1] == {"id": "reminder-8", "status": "new"}
    assert server.ask("DELETE", "/reminders/8") == (200, {"outcome": "cancelled"})
    assert server.ask("PUT", "/reminders/9?email=ada@example.org&hours=-1")[0] == 400
    assert server.ask("GET", "/health")[1] == {"consumed": True, "overdue": 0, "dead": 0}
    assert "Application shutdown complete" in server.stop()


def test_consuming_composes_with_a_lifespan_of_the_application(folder, redis_url):
    server = Server(folder, "small:app", url=redis_url).started()
    assert server.ask("POST", "/jobs?name=ada")[0] == 202
    wait_until(lambda: "process hello ada" in server.text(), timeout=20)
    server.stop()


@pytest.mark.parametrize("kind", ["AsyncDelayQueue", "DelayQueue"])
def test_a_stop_lets_running_callbacks_finish(folder, redis_url, kind):
    slow(folder, kind=kind)
    server = Server(folder, "slow:app", url=redis_url).started()
    with DelayQueue("slow", url=redis_url) as queue:
        queue.send_delay_msg(1)
        wait_until(lambda: "begun" in server.text(), timeout=20)
        text = server.stop()
        assert text.index("finished") < text.index("Application shutdown complete")
        assert queue.counts().living == 0


@pytest.mark.parametrize("kind", ["AsyncDelayQueue", "DelayQueue"])
def test_a_stop_takes_no_longer_than_grace_and_loses_nothing(folder, redis_url, kind):
    slow(folder, kind=kind, grace="200ms")
    server = Server(folder, "slow:app", url=redis_url).started()
    with DelayQueue("slow", url=redis_url) as queue:
        queue.send_delay_msg(25, id="long")
        wait_until(lambda: "begun" in server.text(), timeout=20)
        began = time.monotonic()
        text = server.stop()
        assert time.monotonic() - began < 15
        assert "finished" not in text
        assert queue.get("long") is not None


def test_only_sending_leaves_messages_to_workers(folder, redis_url):
    slow(folder, options="consume=False")
    server = Server(folder, "slow:app", url=redis_url).started()
    with DelayQueue("slow", url=redis_url) as queue:
        queue.send_delay_msg(0)
        assert queue.workers() == []
        server.stop()
        assert (queue.counts().living, "begun" in server.text()) == (1, False)


def test_each_of_several_processes_consumes(folder, redis_url):
    slow(folder)
    server = Server(folder, "slow:app", "--workers", "2", url=redis_url)
    with DelayQueue("slow", url=redis_url) as queue:
        wait_until(lambda: len(queue.workers()) == 2, timeout=40)
        server.stop()
        wait_until(lambda: queue.workers() == [], timeout=20)


def test_a_reload_drains_and_consumes_with_the_new_code(folder, redis_url):
    slow(folder)
    server = Server(folder, "slow:app", "--reload", url=redis_url).started()
    with DelayQueue("slow", url=redis_url) as queue:
        queue.send_delay_msg(0.5)
        wait_until(lambda: "begun" in server.text(), timeout=20)
        changed = (folder / "slow.py").read_text().replace('"begun"', '"begun anew"')
        (folder / "slow.py").write_text(changed)
        wait_until(lambda: server.text().count("Application startup complete") == 2, timeout=40)
        assert "finished" in server.text()
        queue.send_delay_msg(0)
        wait_until(lambda: "begun anew" in server.text(), timeout=20)
        server.stop()


def test_a_start_without_redis_ends_in_time_and_says_why(folder):
    slow(folder, options="connect_timeout='300ms'")
    server = Server(folder, "slow:app", url=f"redis://127.0.0.1:{free_port()}")
    assert server.process.wait(30) == 3
    assert "UnavailableError" in server.text()
    assert "Application startup failed" in server.text()


@pytest.mark.parametrize("kind", ["AsyncDelayQueue", "DelayQueue"])
def test_a_start_that_does_not_require_redis_consumes_once_it_is_there(folder, kind):
    slow(folder, kind=kind, options="required=False, connect_timeout='300ms'")
    redis = RedisServer(tcp=True)
    server = Server(folder, "slow:app", url=redis.url).started()
    assert "starts without Redis" in server.text()
    with redis, DelayQueue("slow", url=redis.url) as queue:
        queue.send_delay_msg(0)
        wait_until(lambda: "finished" in server.text(), timeout=30)
        server.stop()


def test_a_stop_while_redis_is_still_away_ends_at_once(folder):
    slow(folder, options="required=False, connect_timeout='100ms'")
    server = Server(folder, "slow:app", url=f"redis://127.0.0.1:{free_port()}").started()
    began = time.monotonic()
    assert "Application shutdown complete" in server.stop()
    assert time.monotonic() - began < 10
