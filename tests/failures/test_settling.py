"""What a worker cannot settle it does not claim either: a process with default options."""

from __future__ import annotations

import pytest
import redis

from delayq import DelayQueue
from delayq.broker.keys import Keys
from tests.failures.programs import program
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

WORKER = """
import logging, sys
from delayq import DelayQueue

logging.basicConfig(stream=sys.stdout, format="%(message)s")
logging.getLogger("delayq.consumer").setLevel("INFO")
logging.getLogger("delayq.doctor").setLevel("ERROR")
queue = DelayQueue("reminders", url=sys.argv[1])

@queue.callback
def work(message):
    pass

queue.run()
"""
ERRORS = Keys.of("delayq", "reminders").errors


@pytest.mark.long
def test_nothing_is_claimed_while_settlements_are_refused(redis_url):
    logged = DelayQueue(
        "reminders", url=redis_url, events=True
    )  # a turn of a plain queue settles and claims, or neither
    with logged as queue, redis.Redis.from_url(redis_url) as client:

        def refusals():
            return client.info("errorstats").get("errorstat_WRONGTYPE", {}).get("count", 0)

        def delivered():
            return queue.stats().totals["delivered"]

        with program(WORKER, redis_url) as worker:
            queue.send_many(["first"] * 100)
            wait_until(lambda: queue.counts().living == 0)  # now it prefetches as much as it ever does
            client.set(ERRORS, "something else")  # ack and nack refuse this, a claim does not look at it
            queue.send_many(["later"] * 3000)
            assert "retrying every 1 s, claiming nothing meanwhile: ack: WRONGTYPE" in worker.stdout.readline()
            before = refusals()
            wait_until(lambda: refusals() > before)
            claimed = delivered()
            wait_until(lambda: refusals() > before + 3)
            assert delivered() == claimed < 3000
            client.delete(ERRORS)
            assert worker.stdout.readline() == "Redis accepts settlements again\n"  # nothing else was said
            wait_until(lambda: queue.counts().living == 0)
        totals = queue.stats().totals
        assert (totals["acked"], totals.get("expired", 0)) == (3100, 0)
