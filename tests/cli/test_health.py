"""`delayq health`: one line and an exit code for probes."""

from __future__ import annotations

import os
import re
import sys
from datetime import timedelta

import pytest

from delayq import NewMessage
from tests.support.processes import run

PREFIX = "delayq:{reminders}:"
HEAVY = [
    *("cronsim", "dateutil", "fakeredis", "holidays", "httpx", "icalendar", "prometheus_client", "rich", "starlette"),
    *("tzdata", "uvicorn"),
    *("delayq.broker.context", "delayq.cli.worker.worker", "delayq.queue.async_base"),
    *("delayq.queue.async_delay_queue", "delayq.queue.delay_queue", "delayq.queue.inspecting.message_info"),
    *("delayq.schedules.definition", "delayq.telemetry", "delayq.worker.delivery.message"),
]
"""What `health` does without: it is to start quickly."""


@pytest.fixture
def waits(queue, redis_client):
    """A message that has been due for five minutes, and a dead one."""
    with_id = NewMessage("x", id="dead", retries=0)
    queue.send_many([with_id, NewMessage("x", id="later", delay="1h")])
    with queue.lease() as message:
        message.reject("no such user")
    redis_client.zadd(f"{PREFIX}pending", {"later": (queue.stats().at - timedelta(minutes=5)).timestamp() * 1000})
    redis_client.hdel(f"{PREFIX}meta", "token")  # as if nobody had ever claimed


@pytest.fixture
def report(queue, redis_client):
    """Say that one worker has just reported."""
    return lambda: redis_client.zadd(f"{PREFIX}beats", {"w": queue.stats().at.timestamp() * 1000 + 30_000})


def test_a_queue_that_nobody_needs_is_well(cli, queue):
    queue.send_delay_msg("x", "1h")
    ended = cli("health", "reminders", "--max-lag", "1s", "--max-dead", "0")
    assert (ended.code, ended.out, ended.err) == (0, "reminders: well, 0 workers, 0 overdue, 0 dead\n", "")


@pytest.mark.usefixtures("waits")
def test_problems_in_one_line(cli, report):
    ended = cli("health", "reminders")
    assert (ended.code, ended.out) == (4, "reminders: nobody consumes: 1 message, the first for 5m\n")
    strict = ("--max-lag", "30s", "--max-dead", "0", "--min-workers", "2")
    ended = cli("health", "reminders", *strict)
    assert ended.code == 4
    assert re.fullmatch(
        r"reminders: 0 workers, should be at least 2; a due message has waited for 5m( \ds)?, should be at most 30s; "
        r"1 dead, should be at most 0\n",
        ended.out,
    )
    report()
    well = cli("health", "reminders").out
    assert re.fullmatch(r"reminders: well, 1 worker, 1 overdue, the first for 5m( \ds)?, 1 dead\n", well)
    found = cli("health", "reminders", *strict, "--json")
    assert found.code == 4
    assert found.json | {"problems": [], "lag": 0} == {
        "queue": "reminders", "healthy": False, "problems": [], "lag": 0, "overdue": 1, "throttled": 0, "dead": 1,
        "workers": 1, "paused": False,
    }  # fmt: skip
    assert found.json["lag"] >= 300
    assert found.json["problems"][0] == "1 worker, should be at least 2"
    assert len(found.json["problems"]) == 3


@pytest.mark.usefixtures("waits")
def test_limits_are_kept_up_to_their_value(cli, report):
    report()
    kept = ("--max-lag", "1h", "--max-dead", "1", "--min-workers", "1")
    assert cli("health", "reminders", *kept).code == 0


@pytest.mark.usefixtures("waits")
def test_a_paused_queue_may_lag(cli, queue):
    queue.pause("1h")
    ended = cli("health", "reminders", "--max-lag", "1s")
    assert ended.code == 0
    assert re.fullmatch(r"reminders: paused, 0 workers, 1 overdue, the first for 5m( \ds)?, 1 dead\n", ended.out)
    assert cli("health", "reminders", "--min-workers", "1").code == 4


def test_says_what_limits_and_paused_names_hold_back(cli, queue):
    queue.pause(name="ship")
    queue.send_many(NewMessage(n, name="ship") for n in range(3))
    with queue.lease() as held:  # what claims meets the pause
        assert held is None
    ended = cli("health", "reminders", "--max-lag", "1s")
    assert (ended.code, ended.out) == (0, "reminders: well, 0 workers, 0 overdue, 3 throttled, 0 dead\n")
    hint = "due, but over a limit or paused by name: delayq limits list reminders"
    assert re.search(rf"^throttled +3 +{hint}$", cli("stats", "reminders").out, re.MULTILINE)


def test_wrong_use_is_one_line(cli, queue):
    queue.send_delay_msg("x", "1h")
    assert cli("health", "remindres").line == "no queue named 'remindres', did you mean 'reminders'?"
    assert cli("health", "remindres").code == 3
    for option in ("--max-lag", "--max-dead", "--min-workers"):
        ended = cli("health", "reminders", option, "-1")
        assert (ended.code, ended.out) == (2, "")
        assert option in ended.line
    away = cli("--timeout", "100ms", "health", "reminders", env={"DELAYQ_URL": "unix:///nowhere.sock"})
    assert (away.code, away.out, "nowhere.sock" in away.line) == (69, "", True)


def test_it_loads_only_what_it_needs(queue, redis_url):
    queue.send_delay_msg("x", "1h")
    code = (
        "import atexit, gc, sys; sys.argv = ['delayq', 'health', 'reminders'];"
        f"atexit.register(lambda: print([name for name in {HEAVY} if name in sys.modules],"
        " gc.isenabled(), gc.get_freeze_count() > 0));"
        "sys.modules['opentelemetry'] = None;"  # redis-py loads it wherever it is; delayq does not ask for it
        "from delayq.cli import main; main()"
    )
    ended = run(
        [sys.executable, "-c", code], env=os.environ | {"DELAYQ_URL": redis_url}, capture_output=True, check=True
    )
    assert ended.stdout.decode().splitlines() == ["reminders: well, 0 workers, 0 overdue, 0 dead", "[] True True"]
