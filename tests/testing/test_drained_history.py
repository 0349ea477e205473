"""The history of a drained queue adds up to its event log, hour by hour."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import timedelta

import pytest

from delayq import Discard, NewMessage, Reject, Retry, Snooze
from delayq.testing import drain

COUNTED = ("delivered", "acked", "discarded", "nacked", "released")
HOW = ("ack", "nack", "reject", "release", "discard", "retry", "rejected", "error", "snooze", "done", "false")
RAISES = {
    "discard": Discard(),
    "retry": Retry("busy", delay="5m"),
    "rejected": Reject("no"),
    "error": ValueError("broken"),
    "snooze": Snooze("10m"),
}


def end(message):
    """End a message as its payload says, by hand, by what is returned, or by what is raised."""
    how = message.payload
    by_hand = {"ack": message.ack, "nack": message.nack, "reject": lambda: message.reject("no")}
    if how == "release" and not message.snoozes:
        assert message.release(delay="1m")
    elif how in by_hand:
        assert by_hand[how]()
    elif how in RAISES and not (how == "snooze" and message.snoozes):
        raise RAISES[how]
    return how != "false"


def add_up(history, events):
    """Check that each hour has what the event log has of it; returns how many events there are of each kind."""
    events = list(events)
    logged = Counter((str(event.kind), event.at.replace(minute=0, second=0, microsecond=0)) for event in events)
    for bucket in history.buckets:
        found = {kind: getattr(bucket, kind) for kind in COUNTED}
        assert found == {kind: logged[kind, bucket.start] for kind in COUNTED}
    kinds = Counter(str(event.kind) for event in events)
    assert {kind: getattr(history.total, kind) for kind in COUNTED} == {kind: kinds[kind] for kind in COUNTED}
    return kinds


@pytest.mark.long
@pytest.mark.usefixtures("delayq_clock")
@pytest.mark.parametrize("retention", [0, "1h"])
def test_every_hour_of_the_history_adds_up_to_the_event_log(delayq_queues, retention):
    rng = random.Random(19)
    queue = delayq_queues("tests", events=True, default_retries=1, callback=end)
    ways = [rng.choice(HOW) for _ in range(200)]
    queue.send_many([NewMessage(how, f"{rng.randrange(1, 40_000)}s", retention=retention) for how in ways])
    drain(queue)
    history = queue.history(2, "hour")
    kinds = add_up(history, queue.events())
    assert all(kinds[kind] > 10 for kind in COUNTED)
    assert history.total.rejected == ways.count("reject") + ways.count("rejected")
    assert history.total.callbacks == kinds["delivered"]
    assert history.total.lateness.total == 200 - ways.count("release")  # given back, as if not started
    assert history.total.lateness.percentile(0.5) == timedelta(milliseconds=1)


@pytest.mark.long
@pytest.mark.usefixtures("delayq_clock")
def test_the_history_of_a_batch_callback_adds_up(delayq_queues):
    queue = delayq_queues("tests", events=True)

    @queue.batch_callback(most=7)
    def process(messages):
        return [message.payload % 3 != 0 for message in messages]

    queue.send_many(list(range(100)), retries=2)
    drain(queue)
    kinds = add_up(queue.history(2, "hour"), queue.events())
    assert (kinds["acked"], kinds["nacked"]) == (66, 3 * 34)
    total = queue.history().total
    assert total.callbacks < total.delivered == 66 + 3 * 34
    assert total.lateness.total == 100


@pytest.mark.usefixtures("delayq_clock")
def test_messages_that_are_missed_add_up(delayq_queues):
    queue = delayq_queues("tests", events=True, callback=end)
    queue.pause()
    some = [NewMessage("done", expires="1m", missed="drop"), NewMessage("done", expires="1m"), NewMessage("done")]
    queue.send_many(some)
    drain(queue, until="1h")
    queue.resume()
    drain(queue)
    kinds = add_up(queue.history(2, "hour"), queue.events())
    assert (kinds["acked"], kinds["discarded"], kinds["missed"]) == (1, 1, 2)
    total = queue.history().total
    assert (total.rejected, total.lateness.total, sum(total.lateness.numbers[-2:])) == (1, 3, 3)


@pytest.mark.usefixtures("delayq_clock")
def test_an_asyncio_queue_is_counted_as_well(delayq_async_queues):
    async def scenario():
        async with delayq_async_queues(callback=lambda message: message.payload == "done") as queue:
            await queue.send_many(["done", "false"], retries=0)
            await drain(queue)
            return (await queue.history()).total

    total = asyncio.run(scenario())
    assert (total.delivered, total.acked, total.nacked) == (2, 1, 1)


def test_it_is_days_by_default_and_hours_up_to_two_days(delayq_clock, delayq_queues):
    queue = delayq_queues("tests", callback=end)
    for _ in range(5):
        queue.send_delay_msg("done", "23h")
        drain(queue)
    found = queue.history(3)
    assert (found.unit, len(found.buckets)) == ("day", 3)
    assert sum(bucket.acked for bucket in found.buckets) in (3, 4)
    assert found.buckets[-1].start <= found.at < found.buckets[-1].end
    assert (queue.history(2).unit, len(queue.history(2).buckets)) == ("hour", 48)
    assert sum(bucket.acked for bucket in queue.history(30, "hour").buckets) == 5
    assert queue.history(90).total.acked == 5


def test_days_are_those_of_a_time_zone(delayq_clock, delayq_queues):
    queue = delayq_queues("tests", callback=end)
    delayq_clock.move_to((delayq_clock.now + timedelta(days=1)).replace(hour=23, minute=30))
    queue.send_delay_msg("done")
    drain(queue)
    delayq_clock.advance(timedelta(hours=1))
    assert [bucket.acked for bucket in queue.history(2, "day").buckets] == [1, 0]
    assert [bucket.acked for bucket in queue.history(2, "day", tz="Asia/Tokyo").buckets] == [0, 1]
