"""The event log: what it tells of a message, and how it is read and followed."""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from delayq import ConfigurationError, Discard, EventKind, Reject, Retry
from tests.behaviour.places import everywhere
from tests.model.fold import Fold
from tests.support.waiting import wait_until

SOON = 4.0
"""Less than a reader waits for news before it looks again by itself."""


@pytest.fixture
def queue(open_queue):
    """A queue whose log is on."""
    return open_queue(events=True)


class Follower:
    """Reads a log in a thread until it has so many events."""

    def __init__(self, queue, number, after=0):
        self.events = []
        self._thread = threading.Thread(target=self._read, args=(queue, number, after), daemon=True)
        self._thread.start()

    def _read(self, queue, number, after):
        for event in islice(queue.events(after, follow=True), number):
            self.events.append(event)

    def wait(self, number):
        wait_until(lambda: len(self.events) >= number, SOON)
        return self.events

    def join(self):
        self._thread.join(SOON)
        assert not self._thread.is_alive()
        return self.events


def told(queue, *names, after=0):
    """Return some attributes of all events."""
    return [tuple(getattr(event, name) for name in names) for event in queue.events(after)]


# What it tells


@everywhere
def test_nothing_is_logged_unless_it_is_asked_for(open_queue):
    queue = open_queue()
    queue.send_delay_msg("hello")
    queue.lease()

    assert list(queue.events()) == []


@everywhere
def test_the_life_of_a_message_is_told(queue):
    before = datetime.now(UTC) - timedelta(seconds=1)
    queue.send_delay_msg("hello", id="m", retries=1)
    (first,) = queue.lease("60s", n=1)
    first.nack(delay="50ms", error="no stamp\nand more")
    (second,) = queue.lease("60s", n=1, block=5)
    second.release()
    (third,) = queue.lease("60s", n=1, block=5)
    third.nack(error="no such street")
    assert queue.get("m").state == "dead"

    assert told(queue, "kind", "attempt", "token", "retries_left", "error", "reason") == [
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
    assert [event.offset for event in events] == list(range(1, 11))
    assert {event.id for event in events} == {"m"}
    assert {event.index for event in events} == {0}
    assert {event.due for event in events if event.due} == {first.due}
    assert len({event.holder for event in events if event.kind is EventKind.DELIVERED}) == 1
    assert before < events[0].at <= events[-1].at <= datetime.now(UTC) + timedelta(seconds=1)
    assert [event.at for event in events] == sorted(event.at for event in events)


@everywhere
def test_what_producers_and_keepers_do_is_told(queue):
    queue.send_delay_msg(1, 60, id="a", retries=5)
    queue.send_delay_msg(2, 70, id="a", retries=7, replace=True)
    queue.reschedule("a", 80)
    queue.cancel("a")
    queue.send_delay_msg(3, id="b")
    with queue.lease():
        raise Reject("broken")
    queue.dead.redrive("b", retries=9)
    queue.purge()

    assert told(queue, "kind", "id", "retries_left", "reason") == [
        ("sent", "a", 5, None),
        ("replaced", "a", 7, None),
        ("rescheduled", "a", None, None),
        ("cancelled", "a", None, None),
        ("sent", "b", 3, None),
        ("promoted", "b", None, None),
        ("delivered", "b", 3, None),
        ("dead", "b", None, "broken"),
        ("redriven", "b", 9, None),
        ("purged", None, None, None),
    ]
    sent, replaced, rescheduled, *_ = queue.events()
    assert [round((event.due - event.at).total_seconds()) for event in (sent, replaced, rescheduled)] == [60, 70, 80]


@everywhere
def test_what_changes_nothing_is_not_told(queue):
    queue.send_delay_msg("hello", 60, id="m")
    queue.send_delay_msg("hello", 60, id="m")
    queue.cancel("other")
    queue.lease()
    assert queue.dead.redrive("m").redriven == 0

    assert told(queue, "kind") == [("sent",)]


@everywhere
def test_messages_of_one_call_share_an_entry_in_their_order(queue):
    queue.send_many(["a", "b", "c"], run="nightly")
    queue.send_delay_msg("d")

    events = list(queue.events())
    assert [(event.offset, event.index) for event in events] == [(1, 0), (1, 1), (1, 2), (2, 0)]
    assert [event.run for event in events] == ["nightly"] * 3 + [None]
    assert len({event.id for event in events}) == 4


@everywhere
def test_a_lease_that_runs_out_is_told(queue):
    queue.send_delay_msg("hello", id="m", retries=1)
    queue.lease("100ms")
    queue.lease("100ms", block=5)
    wait_until(lambda: queue.stats().at > queue.get("m").deadline)
    queue.lease()
    assert queue.counts().garbage + queue.counts().dead == 1

    assert told(queue, "kind", "retries_left")[3:7] == [
        ("expired", 0),
        ("retried", None),
        ("delivered", 0),
        ("expired", None),
    ]


@everywhere
def test_after_all_outcomes_the_log_agrees_with_the_queue(open_queue):
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

    queue = open_queue(events=True, callback=work, concurrency=4)
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
def test_a_log_is_switched_on_for_every_process(open_queue):
    producer, consumer = open_queue(), open_queue()
    producer.send_delay_msg("before", id="1")
    open_queue(events=True).send_delay_msg("switches", id="2")
    producer.send_delay_msg("hello", id="3")
    consumer.lease("60s", n=3)

    assert told(consumer, "kind", "id") == [
        *[("sent", id) for id in "23"],
        *[("promoted", id) for id in "123"],
        *[("delivered", id) for id in "123"],
    ]


@everywhere
def test_a_log_is_switched_off_for_every_process_and_can_be_read_still(open_queue):
    queue = open_queue(events=True)
    queue.send_delay_msg("hello", 60, id="a")
    open_queue(events=False).open()
    queue.send_delay_msg("hello", 60, id="b")
    assert told(queue, "id") == [("a",)]

    open_queue(events=True).open()
    queue.send_delay_msg("hello", 60, id="c")
    assert told(queue, "offset", "id") == [(1, "a"), (2, "c")]


@everywhere
def test_who_only_reads_switches_nothing_and_makes_no_queue_known(open_queue):
    assert list(open_queue(events=True).events()) == []

    queue = open_queue()
    queue.send_delay_msg("hello")
    assert list(queue.events()) == []


def test_only_as_many_entries_are_kept_as_were_asked_for(open_queue, redis_client):
    queue = open_queue(events=True, events_max_len=1000)
    for n in range(1300):
        queue.send_delay_msg(n, 60)

    assert 1000 <= redis_client.xlen("delayq:{reminders}:events") <= 1100


# Reading


@everywhere
def test_reading_goes_on_behind_an_offset(queue):
    for n in range(5):
        queue.send_delay_msg(n, 60, id=f"m{n}")

    assert told(queue, "id", after=3) == [("m3",), ("m4",)]
    assert told(queue, "id", after=5) == []
    assert told(queue, "id", after=99) == []


@everywhere
def test_a_long_log_is_read_to_its_end(queue):
    for n in range(230):
        queue.send_delay_msg(n, 60)

    assert told(queue, "offset") == [(n,) for n in range(1, 231)]


@everywhere
def test_reading_from_now_on_tells_nothing_of_before(queue):
    queue.send_delay_msg("before", 60)

    assert list(queue.events("now")) == []


@everywhere
@pytest.mark.parametrize("after", [-1, 1 << 63, 1.0, True, None, "", "then", "3", b"now", []], ids=repr)
def test_a_wrong_place_is_refused_at_once(queue, after):
    with pytest.raises(ConfigurationError, match="after must be"):
        queue.events(after)


def test_entries_trimmed_before_they_were_read_are_warned_of(queue, redis_client, caplog):
    for n in range(5):
        queue.send_delay_msg(n, 60, id=f"m{n}")
    redis_client.xtrim("delayq:{reminders}:events", minid="0-4", approximate=False)

    with caplog.at_level(logging.WARNING, "delayq"):
        assert told(queue, "id", after=1) == [("m3",), ("m4",)]

    (record,) = (record for record in caplog.records if record.name == "delayq.events")
    assert record.missing == 2
    assert record.getMessage() == "2 entries of the event log were trimmed before they were read"


def test_who_begins_at_the_beginning_or_where_it_left_off_is_not_warned(queue, redis_client, caplog):
    for n in range(5):
        queue.send_delay_msg(n, 60, id=f"m{n}")
    redis_client.xtrim("delayq:{reminders}:events", minid="0-4", approximate=False)

    with caplog.at_level(logging.WARNING, "delayq"):
        assert told(queue, "id") == [("m3",), ("m4",)]
        assert told(queue, "id", after=3) == [("m3",), ("m4",)]
        assert told(queue, "id", after=4) == [("m4",)]

    assert "delayq.events" not in {record.name for record in caplog.records}


# Following


@everywhere
def test_following_tells_what_there_is_and_waits_for_more(queue, open_queue):
    queue.send_delay_msg("first", 60, id="a")
    follower = Follower(open_queue(), 3)
    assert [event.id for event in follower.wait(1)] == ["a"]

    queue.send_delay_msg("second", 60, id="b")
    follower.wait(2)
    queue.cancel("b")

    assert [(event.kind, event.id) for event in follower.join()] == [("sent", "a"), ("sent", "b"), ("cancelled", "b")]


@everywhere
def test_following_begins_before_there_is_a_log(open_queue):
    follower = Follower(open_queue(), 1)
    plain = open_queue()
    plain.send_delay_msg("hello", 60, id="a")
    open_queue(events=True).open()
    plain.send_delay_msg("hello", 60, id="b")

    assert [event.id for event in follower.join()] == ["b"]


@everywhere
def test_following_from_now_on(queue, open_queue):
    queue.send_delay_msg("before", 60, id="before")
    follower = Follower(open_queue(), 1, "now")
    # Sent until the follower, which may not have begun, sees one; it is none of before.
    number = iter(range(100_000))
    wait_until(lambda: [queue.send_delay_msg("after", 60, id=f"after-{next(number)}"), follower.events][1], SOON)

    assert follower.join()[0].id.startswith("after-")


@pytest.mark.faults
def test_following_outlives_a_restart_of_the_server(open_queue, start_redis):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    queue = open_queue(url=server.url, events=True, deadline="20s")
    queue.send_delay_msg("before", 60, id="a")
    follower = Follower(open_queue(url=server.url, deadline="20s"), 2)
    follower.wait(1)

    server.kill()
    server.start()
    queue.send_delay_msg("after", 60, id="b")

    assert [(event.offset, event.id) for event in follower.join()] == [(1, "a"), (2, "b")]
