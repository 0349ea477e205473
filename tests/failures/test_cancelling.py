"""Cancelling while messages are promoted: the result is exact, and a cancelled message never runs."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict

import pytest

from delayq import NewMessage
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

BATCH = 250


def cancel_against_promotion(open_queue, rounds: int) -> Counter[str]:
    """Cancel messages around the time when they are due and delivered; return how often each result came."""
    started, ended = Counter(), Counter()

    def work(message):
        started[message.payload] += 1
        if message.payload % 50 == 0:
            time.sleep(0.005)
        ended[message.payload] += 1
        if message.payload % 5 == 0:
            message.reject("no such user")

    queue = open_queue(callback=work, concurrency=4, prefetch=4, dead_max=rounds)
    other = open_queue()
    queue.start_consume()
    replies: dict[str, set[int]] = defaultdict(set)
    pace = 0.001
    for first in range(0, rounds, BATCH):
        numbers = range(first, first + BATCH)
        # Each is due at some time before or after its turn to be cancelled, at the pace of the batch before.
        delays = [random.uniform(0, 2 * pace * (turn + 1)) for turn in range(BATCH)]
        messages = [NewMessage(number, delay=delay) for number, delay in zip(numbers, delays, strict=True)]
        ids = other.send_many(messages).ids
        began = time.monotonic()
        for number, id in zip(numbers, ids, strict=True):
            before = ended[number]
            outcome = other.cancel(id)
            replies[outcome].add(number)
            if outcome == "gone":
                assert ended[number], "gone before it was done"
            elif outcome == "cancelled":
                assert not before, "cancelled after it was done"
        pace = (time.monotonic() - began) / BATCH
    wait_until(lambda: queue.counts().living == 0, 60)
    assert queue.stop_consume()

    counts = queue.counts()
    assert all(number not in started for number in replies["cancelled"]), "delivered though it was cancelled"
    assert started == dict.fromkeys(replies["running"] | replies["gone"] | replies["dead"], 1)
    assert replies["dead"] <= {number for number in started if number % 5 == 0}
    assert counts.dead == sum(number % 5 == 0 for number in started)
    totals = queue.stats().totals
    assert (totals.get("cancelled", 0), totals["delivered"]) == (len(replies["cancelled"]), len(started))
    return Counter({outcome: len(numbers) for outcome, numbers in replies.items()})


@pytest.mark.timeout(180)
def test_two_thousand_cancels_return_exact_outcomes(open_queue):
    replies = cancel_against_promotion(open_queue, 2000)
    assert replies.total() == 2000
    assert replies["cancelled"] > 50
    assert replies["gone"] + replies["dead"] + replies["running"] > 50


@pytest.mark.torture
def test_a_hundred_thousand_cancels_return_exact_outcomes(open_queue):
    replies = cancel_against_promotion(open_queue, 100_000)
    assert replies.total() == 100_000
    assert set(replies) == {"cancelled", "running", "gone", "dead"}
    print(dict(replies))
