"""`delayq worker app:critical=6 app:low=1`: queues with weights share one pool of callbacks."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from delayq import DelayQueue
from tests.cli.conftest import Program, Start

pytestmark = pytest.mark.timeout(180)

APP = """
import time
from pathlib import Path
from delayq import AsyncDelayQueue, DelayQueue

def work(message):
    with open("done", "a") as done:
        done.write(f"{message.queue} {message.payload}\\n")
    if message.payload == "slow":
        while not Path("go").exists():
            time.sleep(0.01)

critical, low = DelayQueue("critical", callback=work), DelayQueue("low", callback=work)
mails = AsyncDelayQueue("mails", callback=work)
news = AsyncDelayQueue("news", callback=work)
silent = DelayQueue("silent")
"""


@pytest.fixture
def app(tmp_path):
    """Writes the module `app`; returns what its callbacks have recorded."""
    (tmp_path / "app.py").write_text(APP)
    done = tmp_path / "done"
    return lambda: done.read_text().splitlines() if done.exists() else []


@pytest.fixture
def fill(redis_url):
    def fill(name, count, payload="quick"):
        with DelayQueue(name, url=redis_url) as queue:
            queue.send_many([payload] * count)

    return fill


@pytest.mark.parametrize(("first", "second"), [("critical", "low"), ("mails", "news")])
def test_queues_with_weights_share_one_pool(start: Start, app, fill, first, second):
    for name in (first, second):
        fill(name, 140)
    ended = start("worker", f"app:{first}=6", f"app:{second}=1", "--burst", "--concurrency", "1").ended()
    assert ended.code == 0, ended.err
    assert Counter(line.split()[0] for line in app()[:140]) == {first: 120, second: 20}
    assert len(app()) == 280
    assert f"draining {first}=6, {second}=1, 1 at a time" in ended.err


@pytest.mark.long
def test_strict_goes_by_the_order_given(start: Start, app, fill):
    fill("critical", 50)
    fill("low", 50)
    ended = start("worker", "app:low", "app:critical", "--strict", "--burst", "--concurrency", "1").ended()
    assert ended.code == 0, ended.err
    assert [line.split()[0] for line in app()] == ["low"] * 50 + ["critical"] * 50


def test_sigterm_drains_the_pool(start: Start, app, fill, redis_url, tmp_path):
    fill("low", 10, "slow")
    fill("critical", 10, "slow")
    options = ["--concurrency", "5", "--limit", "app:low=2", "--processes", "1"]
    program: Program = start("worker", "app:critical=1", "app:low=9", *options)
    program.until(lambda: len(app()) == 5, "five callbacks")
    assert Counter(line.split()[0] for line in app()) == {"critical": 3, "low": 2}
    program.process.send_signal(signal.SIGTERM)
    program.says("SIGTERM: finishing running callbacks")
    (tmp_path / "go").touch()
    assert program.ends() == 0
    assert len(app()) == 5
    for name, left in (("critical", 7), ("low", 8)):
        with DelayQueue(name, url=redis_url) as queue:
            assert queue.counts().ready == left


@pytest.mark.long
def test_several_processes_take_the_weights(start: Start, app, fill):
    fill("critical", 20)
    fill("low", 20)
    words = ["app:critical=6", "app:low=1", "--limit", "app:low=3", "--limit", "app:critical=3"]
    ended = start("worker", *words, "--burst", "--processes", "2").ended()
    assert ended.code == 0, ended.err
    assert Counter(line.split()[0] for line in app()) == {"critical": 20, "low": 20}


WRONG = {
    "app:low=0": "the weight of low must be a whole number from 1 to 1000, not 0",
    "app:low=many": "app:low=many: the weight must be a whole number from 1, as in app:low=5",
    "app:low=-1": "app:low=-1: the weight must be a whole number from 1, as in app:low=5",
    "app:low=6 app:mails=1": "one worker cannot share its callbacks between blocking and asyncio queues: start two",
    "app:low=6 app:low=1": "app:low is given twice",
    "app:silent=1": "has no callback",
    "app:low --limit app:critical=5": "--limit app:critical=5: the worker does not serve app:critical: add it",
    "app:low --limit app:low=0": "the limit of low must be a whole number",
    "app:low --limit app:low": "give a number of callbacks, as in --limit app:low=5",
    "app:low app:critical=6 --strict": "serves queues in the order given, without weights such as app:critical=6",
    "--strict --queue low --deliver log": "--strict and --limit are for several queues of modules",
}


@pytest.mark.parametrize(("words", "error"), WRONG.items())
def test_wrong_weights_are_usage_errors(cli, importing, app, words, error):
    ended = cli("worker", *words.split())
    assert (ended.code, error in " ".join(ended.err.split())) == (2, True), ended.err
