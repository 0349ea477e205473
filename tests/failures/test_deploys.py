"""Deploys: an old and a new version run side by side, of a program or of the time zone data, and nothing is lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from delayq import DelayQueue
from tests.failures.programs import program
from tests.support.waiting import wait_until
from tests.support.zones import write_release, write_zone

pytestmark = pytest.mark.faults

WORKER = """
import sys
from delayq import DelayQueue

queue = DelayQueue("deploys", url=sys.argv[1])

def work(message):
    print(message.headers["schedule"], message.attempt, flush=True)

for name in sys.argv[2:]:
    queue.every("1s", name=name)(work)
queue.start_consume()
print("started", flush=True)
sys.stdin.read()
queue.stop_consume()
"""


@pytest.mark.long
def test_old_worker_leaves_messages_of_a_new_function_to_the_new_worker(redis_url):
    with (
        program(WORKER, redis_url, "old") as old,
        program(WORKER, redis_url, "old", "new") as new,
        DelayQueue("deploys", url=redis_url) as queue,
    ):
        assert (old.stdout.readline(), new.stdout.readline()) == ("started\n", "started\n")
        wait_until(lambda: queue.stats().totals.get("released", 0) >= 1, 60)  # the old one has got messages of "new"
        old.stdin.close()
        for name in ("old", "new"):
            queue.schedules.remove(name)
        wait_until(lambda: queue.counts().living == 0)
        new.stdin.close()
        handled = [*old.stdout, *new.stdout]
        totals = queue.stats().totals
    assert set(handled) == {"old 1\n", "new 1\n"}
    assert len(handled) == totals["sent"] == totals["acked"]
    assert not totals.get("dead")
    assert not totals.get("nacked")


ZONED = """
import logging, sys
from delayq import DelayQueue
from delayq.worker.parts import schedule_replanning

schedule_replanning.CHECK_EVERY = 0.1
logging.basicConfig(format="%(message)s", stream=sys.stdout, level=logging.INFO)
queue = DelayQueue("zones", url=sys.argv[1], callback=print)
if sys.argv[2:]:
    queue.schedules.add("daily", cron=sys.argv[2], tz="Test/Zone")
queue.start_consume()
print("started", flush=True)
sys.stdin.read()
queue.stop_consume()
"""


def lines_until(process, text: str) -> list[str]:
    """Read the lines of a process up to one that contains a text."""
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if text in line:
            return lines
    raise AssertionError(f"{text!r} is not in {lines}")


@pytest.mark.long
def test_worker_with_newer_time_zone_data_plans_the_schedules_anew(redis_url, redis_client, tmp_path):
    for release, hours in (("2031a", 1), ("2031b", 2)):
        write_zone(tmp_path / release / "Test" / "Zone", hours)
        write_release(tmp_path / release, release)
    far = (datetime.now(UTC) + timedelta(hours=12)).replace(minute=0, second=0, microsecond=0)
    with DelayQueue("zones", url=redis_url) as queue:
        with program(ZONED, redis_url, f"0 {far.hour} * * *", PYTHONTZPATH=str(tmp_path / "2031a")) as worker:
            lines_until(worker, "time zone data 2031a, before unknown: planning the schedules anew")
            wait_until(lambda: redis_client.hget("delayq:{zones}:meta", "schedules_zones") == b"2031a")
            before = queue.schedules.page().schedules[0].next
            worker.stdin.close()
        with program(ZONED, redis_url, PYTHONTZPATH=str(tmp_path / "2031b")) as worker:
            lines_until(worker, "time zone data 2031b, before 2031a: planning the schedules anew")
            lines_until(worker, "planned anew: 1 schedule moved")
            wait_until(lambda: redis_client.hget("delayq:{zones}:meta", "schedules_zones") == b"2031b")
            after = queue.schedules.page().schedules[0].next
            worker.stdin.close()
        with program(ZONED, redis_url, PYTHONTZPATH=str(tmp_path / "2031a")) as worker:
            lines_until(
                worker, "the time zone data of this machine is 2031a, but the schedules were planned with 2031b"
            )
            assert queue.schedules.page().schedules[0].next == after
    assert before - after == timedelta(hours=1)
