"""Occurrences of a schedule that must not overlap, with slow callbacks in two workers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from delayq import DelayQueue
from tests.failures.programs import program
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

WORKER = """
import sys
import redis
from delayq import DelayQueue

queue = DelayQueue("overlap", url=sys.argv[1])
signals = redis.Redis.from_url(sys.argv[1])

@queue.callback
def work(message):
    signals.blpop(message.id)

queue.run()
"""


@pytest.mark.long
@pytest.mark.parametrize("overlap", ["skip", "after"])
def test_slow_callbacks_of_two_workers_never_overlap(redis_url, redis_client, overlap):
    def now() -> datetime:
        seconds, micros = redis_client.time()
        return datetime.fromtimestamp(seconds + micros / 1e6, UTC)

    with DelayQueue("overlap", url=redis_url) as queue, program(WORKER, redis_url), program(WORKER, redis_url):
        queue.schedules.add("sweep", every="1s", overlap=overlap)
        for _ in range(3):
            wait_until(lambda: queue.counts().active == 1)
            began = now()
            wait_until(lambda since=began: now() > since + timedelta(seconds=2.5))  # two more occurrences came due
            (running,) = queue.list("active").messages
            assert queue.counts().living == 1
            if overlap == "skip":
                assert queue.schedules.get("sweep").next > began + timedelta(seconds=2)
            redis_client.lpush(running.id, "end")
            wait_until(lambda done=running.id: queue.get(done) is None)
        queue.schedules.remove("sweep")
        assert queue.counts().living <= 1
        assert not queue.stats().totals.get("nacked")
