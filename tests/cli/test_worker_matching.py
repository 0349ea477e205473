"""`delayq worker app:tenants --queues 'tenant-*'`: one worker for every queue that matches."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from delayq import DelayQueue
from delayq.broker.keys import Keys, registry
from tests.cli.conftest import Program, Start

pytestmark = pytest.mark.timeout(180)

APP = """
import os

from delayq import AsyncDelayQueue, DelayQueue
from delayq.queue.pooling import matching_queues

if "REREAD_EVERY" in os.environ:
    matching_queues.REREAD_EVERY = float(os.environ["REREAD_EVERY"])

def work(message):
    with open("done", "a") as done:
        done.write(f"{message.queue} {message.payload}\\n")

tenants = DelayQueue("tenants", callback=work)
tasks = AsyncDelayQueue("tenants", callback=work)
other = DelayQueue("other", callback=work)
"""


@pytest.fixture
def app(tmp_path):
    """Writes the module `app`; returns what its callbacks have recorded."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "one.py").write_text("from app import tenants\n")
    done = tmp_path / "done"
    return lambda: done.read_text().splitlines() if done.exists() else []


@pytest.fixture
def fill(redis_url):
    def fill(name, count):
        with DelayQueue(name, url=redis_url) as queue:
            queue.send_many(["x"] * count)

    return fill


@pytest.mark.parametrize("target", ["app:tenants", "app:tasks", "one"])
def test_every_queue_that_matches_is_drained(start: Start, app, fill, target):
    for name in ("tenant-a", "tenant-b", "other"):
        fill(name, 20)
    ended = start("worker", target, "--queues", "tenant-*", "--burst", "--concurrency", "2").ended()
    assert ended.code == 0, ended.err
    assert Counter(line.split()[0] for line in app()) == {"tenant-a": 20, "tenant-b": 20}
    assert "draining tenant-*, 2 at a time" in ended.err
    assert "serving 2 queues: tenant-a, tenant-b" in ended.err


@pytest.mark.long
@pytest.mark.parametrize("processes", ["1", "2"])
def test_queues_to_come_are_served(start: Start, app, fill, processes):
    words = ["worker", "app:tenants", "--queues", "tenant-*", "--processes", processes]
    program: Program = start(*words, env={"REREAD_EVERY": "0.05"})
    program.says("no queue matches tenant-*: waiting for one")
    for name in ("tenant-a", "tenant-b"):
        fill(name, 1)
        program.until(lambda name=name: f"{name} x" in app(), name)
    program.process.send_signal(signal.SIGTERM)
    assert program.ends() == 0


@pytest.mark.long
@pytest.mark.parametrize(("target", "processes"), [("app:tenants", "1"), ("app:tasks", "2")])
def test_a_worker_waits_while_no_queue_matches(start: Start, app, fill, target, processes):
    """By default it reads the names every 10 s, and looks meanwhile, every half second, whether a callback hangs."""
    program: Program = start("worker", target, "--queues", "tenant-*", "--processes", processes)
    program.says("no queue matches tenant-*: waiting for one", times=int(processes))
    fill("tenant-a", 1)
    program.until(lambda: app() == ["tenant-a x"], "tenant-a")
    program.process.send_signal(signal.SIGTERM)
    assert program.ends() == 0
    assert "internal error" not in program.err
    assert "Traceback" not in program.err


@pytest.mark.long
def test_a_worker_waits_when_the_last_queue_is_gone(start: Start, app, fill, redis_client):
    program: Program = start("worker", "app:tenants", "--queues", "tenant-*", env={"REREAD_EVERY": "1.5"})
    program.says("no queue matches tenant-*: waiting for one")
    fill("tenant-a", 1)
    program.until(lambda: app() == ["tenant-a x"], "tenant-a")
    # An ack after the deletion would make the queue anew.
    program.until(lambda: not redis_client.exists(Keys.of("delayq", "tenant-a").messages), "the ack")
    redis_client.delete(registry("delayq"), *redis_client.keys("delayq:{tenant-a}:*"))
    program.says("no queue matches tenant-*: waiting for one", times=2)
    fill("tenant-b", 1)
    program.until(lambda: app()[1:] == ["tenant-b x"], "tenant-b")
    program.process.send_signal(signal.SIGTERM)
    assert program.ends() == 0
    assert "Traceback" not in program.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["app:tenants", "--queues", "tenant-{a"], "--queues must be made of"),
        (["app:tenants", "--queues", ""], "--queues must be made of"),
        (["app:tenants", "app:other", "--queues", "tenant-*"], "needs the one queue"),
        (["--queues", "tenant-*"], "MODULE"),
        (["app:tenants=2", "--queues", "tenant-*"], "without weights"),
        (["app:tenants", "--queues", "tenant-*", "--strict"], "without weights"),
        (["app:tenants", "--queues", "tenant-*", "--limit", "app:other=2"], "limit of each, as in app:tenants=5"),
        (["app:tenants", "--queues", "tenant-*", "--limit", "app:tenants=0"], "limit"),
        (["--queue", "q", "--deliver", "log", "--queues", "tenant-*"], "--queues, --strict and --limit are for"),
    ],
)
def test_wrong_usage_says_what_to_do(cli, importing, app, words, text):
    ended = cli("worker", *words)
    assert ended.code == 2
    assert text in ended.err
