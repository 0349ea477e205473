"""The event log: what it records of a message, and how it is read and followed."""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from delayq import ConfigurationError, Discard, EventKind, Reject, Retry, UnavailableError
from tests.behaviour.places import everywhere
from tests.model.fold import Fold
from tests.support.scripts import without_gaps
from tests.support.waiting import wait_until

SOON = 4.0
"""Shorter than the interval at which a reader polls by itself."""


@pytest.fixture
def queue(open_queue):
    """A queue whose log is on."""
    return open_queue(events=True)


class Follower:
    """Reads a log in a thread until it has a number of events, or one of the message `until`."""

    def __init__(self, queue, number, after=0, until=None):
        self.events = []
        self._thread = threading.Thread(target=self._read, args=(queue, number, after, until), daemon=True)
        self._thread.start()

    def _read(self, queue, number, after, until):
        for event in islice(queue.events(after, follow=True), number):
            self.events.append(event)
            if event.id == until:
                return

    def wait(self, number):
        wait_until(lambda: len(self.events) >= number, SOON)
        return self.events

    def join(self, within=SOON):
        self._thread.join(within)
        assert not self._thread.is_alive()
        return self.events


def read(queue, *names, after=0):
    """Return some attributes of all events."""
    return [tuple(getattr(event, name) for name in names) for event in queue.events(after)]


# What is recorded


@everywhere
def test_log_is_off_by_default(open_queue):
    queue = open_queue()
    queue.send_delay_msg("hello")
    queue.lease()

    assert list(queue.events()) == []


@everywhere
def test_log_has_every_event_of_a_message(queue):
    before = datetime.now(UTC) - timedelta(seconds=1)
    queue.send_delay_msg("hello", id="m", retries=1)
    (first,) = queue.lease("60s", n=1)
    first.nack(delay="50ms", error="no stamp\nand more")
    (second,) = queue.lease("60s", n=1, block=5)
    second.release()
    (third,) = queue.lease("60s", n=1, block=5)
    third.nack(error="no such street")
    assert queue.get("m").state == "dead"

    assert read(queue, "kind", "attempt", "token", "retries_left", "error", "reason") == [
        ("sent", None, None, 1, None, None),
        ("promoted", None, None, None, None, None),
        ("delivered", 1, first.token, 1, None, None),
        ("nacked", None, first.token, 0, "no stamp", None),
        ("retried", None, first.token, None, None, None),
        ("delivered", 2, second.token, 0, None, None),
        ("released", None, second.token, None, None, None),
        ("delivered", 2, third.token, 0, None, None),
        ("nacked", None, third.token, None, "no such street", None),
        ("dead", 2, third.token, None, "no such street", "retries spent"),
    ]
    events = list(queue.events())
    assert [event.offset for event in events] == sorted({event.offset for event in events})
    assert {event.id for event in events} == {"m"}
    assert {event.index for event in events} == {0}
    assert {event.due for event in events if event.due} == {first.due}
    assert len({event.holder for event in events if event.kind is EventKind.DELIVERED}) == 1
    assert before < events[0].at <= events[-1].at <= datetime.now(UTC) + timedelta(seconds=1)
    assert [event.at for event in events] == sorted(event.at for event in events)


@everywhere
def test_operations_of_producers_and_admins_are_logged(queue):
    queue.send_delay_msg(1, 60, id="a", retries=5)
    queue.send_delay_msg(2, 70, id="a", retries=7, replace=True)
    queue.reschedule("a", 80)
    queue.cancel("a")
    queue.send_delay_msg(3, id="b")
    with queue.lease():
        raise Reject("broken")
    queue.dead.redrive("b", retries=9)
    with queue.lease():
        raise Reject("broken still")
    queue.dead.purge("b")
    queue.send_delay_msg(4, 60, id="c")
    queue.purge()

    assert read(queue, "kind", "id", "retries_left", "reason") == [
        ("sent", "a", 5, None),
        ("replaced", "a", 7, None),
        ("rescheduled", "a", None, None),
        ("cancelled", "a", None, None),
        ("sent", "b", 3, None),
        ("promoted", "b", None, None),
        ("delivered", "b", 3, None),
        ("dead", "b", None, "broken"),
        ("redriven", "b", 9, None),
        ("promoted", "b", None, None),
        ("delivered", "b", 9, None),
        ("dead", "b", None, "broken still"),
        ("dead_purged", "b", None, None),
        ("sent", "c", 3, None),
        ("purged", None, None, None),
    ]
    sent, replaced, rescheduled, *_ = queue.events()
    assert [round((event.due - event.at).total_seconds()) for event in (sent, replaced, rescheduled)] == [60, 70, 80]
    totals = queue.stats().totals
    assert (totals["purged"], totals["dead_purged"]) == (1, 1)


@everywhere
def test_calls_that_change_nothing_are_not_logged(queue):
    queue.send_delay_msg("hello", 60, id="m")
    queue.send_delay_msg("hello", 60, id="m")
    queue.cancel("other")
    queue.lease()
    assert queue.dead.redrive("m").redriven == 0

    assert read(queue, "kind") == [("sent",)]


@everywhere
def test_messages_of_one_call_share_an_entry_in_order(queue):
    queue.send_many(["a", "b", "c"], run="nightly")
    queue.send_delay_msg("d")

    events = list(queue.events())
    first, last = events[0].offset, events[-1].offset
    assert first < last
    assert [(event.offset, event.index) for event in events] == [(first, 0), (first, 1), (first, 2), (last, 0)]
    assert [event.run for event in events] == ["nightly"] * 3 + [None]
    assert len({event.id for event in events}) == 4


@everywhere
def test_expired_lease_is_logged(queue):
    queue.send_delay_msg("hello", id="m", retries=1)
    queue.lease("100ms")
    queue.lease("100ms", block=5)
    wait_until(lambda: queue.stats().at > queue.get("m").deadline)
    queue.lease()
    assert queue.counts().garbage + queue.counts().dead == 1

    assert read(queue, "kind", "retries_left")[3:7] == [
        ("expired", 0),
        ("retried", None),
        ("delivered", 0),
        ("expired", None),
    ]


@without_gaps
@everywhere
def test_log_agrees_with_the_queue_after_all_outcomes(open_queue):
    outcomes = random.Random(7)

    def work(message):
        match outcomes.randrange(6):
            case 0:
                raise Reject("no")
            case 1:
                raise Discard("no need")
            case 2:
                raise Retry("later", delay="50ms")
            case 3:
                return False
        return None

    queue = open_queue(events=True, callback=work, concurrency=4, nack_delay=0)
    queue.send_many(range(150), retries=1)
    queue.send_many(range(50), delay=60)
    queue.run(burst=True)

    fold = Fold()
    events = list(queue.events())
    fold.take(events)
    assert {life.state for life in fold.lives.values()} == {"pending"}
    assert fold.lives.keys() == {message.id for message in queue.list("pending", limit=100).messages}
    page = queue.dead.list(limit=200)
    assert fold.dead.keys() == {message.entry for message in page.messages}
    kinds = Counter(event.kind for event in events)
    totals = queue.stats().totals
    for kind in ("sent", "delivered", "acked", "discarded", "nacked", "dead"):
        assert kinds[kind] == totals[kind], kind


# Switching


@everywhere
def test_log_is_switched_on_for_every_process(open_queue):
    producer, consumer = open_queue(), open_queue()
    producer.send_delay_msg("before", id="1")
    open_queue(events=True).send_delay_msg("switches", id="2")
    producer.send_delay_msg("hello", id="3")
    consumer.lease("60s", n=3)

    assert read(consumer, "kind", "id") == [
        *[("sent", id) for id in "23"],
        *[("promoted", id) for id in "123"],
        *[("delivered", id) for id in "123"],
    ]


@everywhere
def test_log_that_is_switched_off_can_still_be_read(open_queue):
    queue = open_queue(events=True)
    queue.send_delay_msg("hello", 60, id="a")
    open_queue(events=False).open()
    queue.send_delay_msg("hello", 60, id="b")
    assert read(queue, "id") == [("a",)]

    open_queue(events=True).open()
    queue.send_delay_msg("hello", 60, id="c")
    assert read(queue, "id") == [("a",), ("c",)]


@everywhere
def test_reading_the_log_does_not_switch_it_on(open_queue):
    assert list(open_queue(events=True).events()) == []

    queue = open_queue()
    queue.send_delay_msg("hello")
    assert list(queue.events()) == []


def test_events_max_len_limits_the_log(open_queue, redis_client):
    queue = open_queue(events=True, events_max_len=1000)
    for n in range(1300):
        queue.send_delay_msg(n, 60)

    assert 1000 <= redis_client.xlen("delayq:{reminders}:events") <= 1100


# Reading


@everywhere
def test_reading_continues_after_an_offset(queue):
    for n in range(5):
        queue.send_delay_msg(n, 60, id=f"m{n}")

    offsets = [offset for (offset,) in read(queue, "offset")]
    assert read(queue, "id", after=offsets[2]) == [("m3",), ("m4",)]
    assert read(queue, "id", after=offsets[4]) == []
    assert read(queue, "id", after=offsets[4] + 99) == []


@without_gaps
@everywhere
def test_a_long_log_is_read_to_its_end(queue):
    for n in range(230):
        queue.send_delay_msg(n, 60)

    assert read(queue, "offset") == [(n,) for n in range(1, 231)]


@everywhere
def test_reading_from_now_skips_earlier_events(queue):
    queue.send_delay_msg("before", 60)

    assert list(queue.events("now")) == []


@everywhere
@pytest.mark.parametrize("after", [-1, 1 << 63, 1.0, True, None, "", "then", "3", b"now", []], ids=repr)
def test_invalid_offset_is_refused_at_once(queue, after):
    with pytest.raises(ConfigurationError, match="after must be"):
        queue.events(after)


@without_gaps
def test_reader_warns_about_entries_trimmed_before_they_were_read(queue, redis_client, caplog):
    for n in range(5):
        queue.send_delay_msg(n, 60, id=f"m{n}")
    redis_client.xtrim("delayq:{reminders}:events", minid="0-4", approximate=False)

    with caplog.at_level(logging.WARNING, "delayq"):
        assert read(queue, "id", after=1) == [("m3",), ("m4",)]

    (record,) = (record for record in caplog.records if record.name == "delayq.events")
    assert record.missing == 2
    assert record.getMessage().startswith("2 entries of the event log were trimmed before they were read: raise")


@without_gaps
def test_reader_does_not_warn_if_it_missed_no_entries(queue, redis_client, caplog):
    for n in range(5):
        queue.send_delay_msg(n, 60, id=f"m{n}")
    redis_client.xtrim("delayq:{reminders}:events", minid="0-4", approximate=False)

    with caplog.at_level(logging.WARNING, "delayq"):
        assert read(queue, "id") == [("m3",), ("m4",)]
        assert read(queue, "id", after=3) == [("m3",), ("m4",)]
        assert read(queue, "id", after=4) == [("m4",)]

    assert "delayq.events" not in {record.name for record in caplog.records}


# A log that cannot be written


@without_gaps
@pytest.mark.faults
def test_foreign_entry_in_the_log_stops_neither_sending_nor_consuming(open_queue, redis_client):
    seen = []
    queue = open_queue(events=True, callback=lambda message: seen.append(message.payload))
    queue.start_consume()
    queue.send_delay_msg("before")
    wait_until(lambda: seen == ["before"])
    redis_client.xadd("delayq:{reminders}:events", {"not": "ours"}, id=f"{2**63}-0")
    queue.send_many(range(50))
    wait_until(lambda: len(seen) == 51)
    wait_until(lambda: queue.stats().totals["acked"] == 51)
    assert queue.counts().living + queue.counts().dead == 0
    assert queue.stats().totals["events_lost"] >= 4  # sent, promoted, delivered and acked


# Following


@everywhere
def test_following_returns_existing_events_and_waits_for_more(queue, open_queue):
    queue.send_delay_msg("first", 60, id="a")
    follower = Follower(open_queue(), 3)
    assert [event.id for event in follower.wait(1)] == ["a"]

    queue.send_delay_msg("second", 60, id="b")
    follower.wait(2)
    queue.cancel("b")

    assert [(event.kind, event.id) for event in follower.join()] == [("sent", "a"), ("sent", "b"), ("cancelled", "b")]


@everywhere
def test_following_can_start_before_the_log_exists(open_queue):
    follower = Follower(open_queue(), 1)
    plain = open_queue()
    plain.send_delay_msg("hello", 60, id="a")
    open_queue(events=True).open()
    plain.send_delay_msg("hello", 60, id="b")

    assert [event.id for event in follower.join()] == ["b"]


@everywhere
def test_following_from_now_skips_earlier_events(queue, open_queue):
    queue.send_delay_msg("before", 60, id="before")
    follower = Follower(open_queue(), 1, "now")
    # Send until the follower sees a message: it may not have started yet. It never sees an earlier one.
    number = iter(range(100_000))
    wait_until(lambda: [queue.send_delay_msg("after", 60, id=f"after-{next(number)}"), follower.events][1], SOON)

    assert follower.join()[0].id.startswith("after-")


@pytest.mark.faults
def test_following_survives_a_server_restart(open_queue, start_redis):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    queue = open_queue(url=server.url, events=True, deadline="20s")
    queue.send_delay_msg("before", 60, id="a")
    follower = Follower(open_queue(url=server.url, deadline="20s"), 2)
    follower.wait(1)

    server.kill()
    server.start()
    queue.send_delay_msg("after", 60, id="b")

    assert [event.id for event in follower.join()] == ["a", "b"]


@pytest.mark.long
@pytest.mark.faults
def test_following_goes_on_after_an_outage_longer_than_the_deadline(open_queue, start_redis):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    queue = open_queue(url=server.url, events=True)
    queue.send_delay_msg("before", 60, id="a")
    follower = Follower(open_queue(url=server.url, deadline="100ms"), 2)
    follower.wait(1)

    server.kill()
    with pytest.raises(UnavailableError):
        open_queue(url=server.url, deadline="1s").counts()
    server.start()
    queue.send_delay_msg("after", 60, id="b")

    assert [event.id for event in follower.join(30)] == ["a", "b"]


def test_following_an_unreachable_redis_fails_at_the_deadline(open_queue):
    with pytest.raises(UnavailableError):
        next(iter(open_queue(url="redis://localhost:1", deadline="100ms").events(follow=True)))


@pytest.mark.long
@pytest.mark.faults
@pytest.mark.parametrize(("lost", "later"), [(5, 8), (200, 2)], ids=["the log has grown past its old end", "shorter"])
def test_following_misses_nothing_after_a_failover_that_has_undone_events(open_queue, start_redis, caplog, lost, later):
    server = start_redis()
    queue = open_queue(url=server.url, events=True)
    queue.send_delay_msg("kept", 60, id="kept")
    with server.client() as client:
        client.save()
    for number in range(lost):
        queue.send_delay_msg(number, 60, id=f"lost-{number}")
    ids = [f"later-{number}" for number in range(later)]
    follower = Follower(open_queue(url=server.url), 10_000, until=ids[-1])
    follower.wait(1 + lost)

    server.kill()
    server.start()  # with what was saved, as on a replica that lacks the rest
    for id in ids:
        queue.send_delay_msg("later", 60, id=id)

    assert {event.id for event in follower.join(30)} >= set(ids)
    assert "the event log has lost its end" in caplog.text


@pytest.mark.long
def test_following_goes_on_after_the_log_was_deleted(queue, open_queue, redis_client):
    for number in range(3):
        queue.send_delay_msg(number, 60, id=f"before-{number}")
    follower = Follower(open_queue(), 4)
    follower.wait(3)
    redis_client.delete("delayq:{reminders}:events")
    queue.send_delay_msg("later", 60, id="later")

    assert follower.join(30)[-1].id == "later"
