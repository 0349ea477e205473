"""Cancel against promotion: the answer is exact, and what was cancelled never runs."""

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
    """Cancel messages about the moment when they become due and are delivered; returns how often each answer came."""
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
    answers: dict[str, set[int]] = defaultdict(set)
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
            answers[outcome].add(number)
            if outcome == "gone":
                assert ended[number], "gone before it was done"
            elif outcome == "cancelled":
                assert not before, "cancelled after it was done"
        pace = (time.monotonic() - began) / BATCH
    wait_until(lambda: queue.counts().living == 0, 60)
    assert queue.stop_consume()

    counts = queue.counts()
    assert all(number not in started for number in answers["cancelled"]), "delivered though it was cancelled"
    assert started == dict.fromkeys(answers["running"] | answers["gone"] | answers["dead"], 1)
    assert answers["dead"] <= {number for number in started if number % 5 == 0}
    assert counts.dead == sum(number % 5 == 0 for number in started)
    totals = queue.stats().totals
    assert (totals.get("cancelled", 0), totals["delivered"]) == (len(answers["cancelled"]), len(started))
    return Counter({outcome: len(numbers) for outcome, numbers in answers.items()})


@pytest.mark.timeout(180)
def test_two_thousand_cancels_are_answered_exactly(open_queue):
    answers = cancel_against_promotion(open_queue, 2000)
    assert answers.total() == 2000
    assert answers["cancelled"] > 50
    assert answers["gone"] + answers["dead"] + answers["running"] > 50


@pytest.mark.torture
def test_a_hundred_thousand_cancels_are_answered_exactly(open_queue):
    answers = cancel_against_promotion(open_queue, 100_000)
    assert answers.total() == 100_000
    assert set(answers) == {"cancelled", "running", "gone", "dead"}
    print(dict(answers))
