"""Deploys: an old and a new version of a program run side by side, and no message dies of it."""

from __future__ import annotations

import pytest

from delayq import DelayQueue
from tests.failures.programs import program
from tests.support.waiting import wait_until

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
