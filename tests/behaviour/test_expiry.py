"""Expiry: what has not started by its time is not started any more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from delayq import ConfigurationError, NewMessage
from delayq.broker.message.attributes import Attributes
from delayq.broker.message.expiry import expiry_of
from delayq.streams import StreamQueue
from delayq.values.states import State
from tests.support.waiting import wait_until

PAST = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2190, 1, 1, tzinfo=UTC)


@pytest.fixture
def expired(redis_client):
    """`expired(queue, …)` sends messages that are due now, and have expired since."""

    def send(queue, *messages):
        queue.send_many(list(messages))
        ids = [message.id for message in messages]
        redis_client.zadd(f"delayq:{{{queue.name}}}:pending", dict.fromkeys(ids, 1_700_000_000_000))

    return send


def test_what_has_expired_goes_to_the_dead_letter_or_is_dropped(open_queue, expired, caplog):
    queue = open_queue(events=True)
    seen = []
    queue.callback(lambda message: seen.append(message.id))
    expired(
        queue,
        NewMessage(1, id="dead", expires="2h", name="n"),
        NewMessage(1, id="dropped", expires="2h", missed="drop"),
        NewMessage(1, id="by a time".replace(" ", "-"), expires=LATER),
        NewMessage(1, id="in-time", expires="36000d"),
        NewMessage(1, id="never"),
    )

    queue.run(burst=True)

    assert sorted(seen) == ["by-a-time", "in-time", "never"]
    (dead,) = queue.dead.list().messages
    assert (dead.id, dead.reason, dead.name, dead.expires - dead.due) == ("dead", "missed", "n", timedelta(hours=2))
    totals = queue.stats().totals
    assert (totals["missed"], totals["dead"], totals["discarded"], totals["acked"]) == (2, 1, 1, 3)
    assert "dead expired " in caplog.text
    assert " ago, before it could start, and goes to the dead letter" in caplog.text
    assert " ago, before it could start, and is dropped" in caplog.text
    ends = ("missed", "dead", "discarded")
    log = {id: [(event.kind, event.reason) for event in queue.events() if event.id == id] for id in ("dead", "dropped")}
    assert {id: [one for one in events if one[0] in ends] for id, events in log.items()} == {
        "dead": [("missed", None), ("dead", "missed")],
        "dropped": [("missed", None), ("discarded", None)],
    }


def test_a_retry_after_the_expiry_does_not_start(open_queue, face):
    queue = open_queue(nack_delay=0.3, tick=0.05)
    seen = []

    @queue.callback
    def work(message):
        seen.append(message.attempt)
        return False

    queue.send_delay_msg(1, id="m", retries=5, expires="0.2s")
    queue.start_consume()
    wait_until(lambda: queue.counts().dead == 1)

    assert seen == [1]
    assert queue.get("m").reason == "missed"


def test_a_batch_gets_those_in_time(open_queue, expired):
    queue = open_queue()
    seen = []
    queue.batch_callback(lambda messages: seen.extend(message.id for message in messages))
    expired(queue, NewMessage(1, id="late", expires=1), NewMessage(1, id="in-time"))
    queue.run(burst=True)
    assert seen == ["in-time"]
    assert queue.get("late").state is State.DEAD


def test_a_lease_gets_those_in_time(open_queue, expired):
    queue = open_queue()
    expired(queue, NewMessage(1, id="late", expires=1), NewMessage(1, id="in-time"))
    with queue.lease(n=2) as messages:
        assert [message.id for message in messages] == ["in-time"]
    assert queue.get("late").state is State.DEAD
    assert queue.get("in-time") is None


def test_a_task_has_its_own_expiry(open_queue):
    queue = open_queue()
    remind = queue.task(name="remind", expires="2h", missed="drop")(lambda user: None)
    other = queue.task(name="other")(lambda user: None)
    remind.options(id="a", delay="1h").send(1)
    remind.options(id="b", delay="1h", expires="3h").send(1)
    other.options(id="c", delay="1h").send(1)

    after = {id: (found := queue.get(id)).expires and found.expires - found.due for id in "abc"}
    assert after == {"a": timedelta(hours=2), "b": timedelta(hours=3), "c": None}


def test_an_expiry_moves_with_the_due_time_and_a_redrive_has_none(open_queue, expired):
    queue = open_queue()
    queue.callback(lambda message: None)
    queue.send_delay_msg(1, "1h", id="m", expires="2h")
    queue.send_schedule_msg(1, LATER, id="at", expires=LATER + timedelta(days=1))
    queue.reschedule("m", "5h")
    found = queue.get("m")
    assert found.expires - found.due == timedelta(hours=2)
    assert queue.get("at").expires == LATER + timedelta(days=1)

    expired(queue, NewMessage(1, id="late", expires="2h"))
    queue.run(burst=True)
    queue.dead.redrive("late")
    assert queue.get("late").expires is None
    queue.run(burst=True)
    assert (queue.get("late"), queue.counts().dead) == (None, 0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"expires": 0}, "expires"),
        ({"expires": "-1s"}, "expires"),
        ({"expires": "soon"}, "soon"),
        ({"expires": True}, "expires"),
        ({"expires": datetime(2190, 1, 1)}, "expires"),  # noqa: DTZ001 - a time without a zone
        ({"expires": "2h", "missed": "lost"}, "missed must be 'dead' or 'drop', not 'lost'"),
        ({"missed": "drop"}, "missed goes with expires"),
    ],
    ids=str,
)
def test_a_wrong_expiry_is_refused_and_nothing_stored(open_queue, options, text):
    queue = open_queue()
    for send in (
        lambda: queue.send_delay_msg(1, **options),
        lambda: queue.send_schedule_msg(1, LATER, **options),
        lambda: queue.send_many([1, NewMessage(1, **options)]),
    ):
        with pytest.raises(ConfigurationError, match=text):
            send()
    with pytest.raises(ConfigurationError, match="is not after the due time: it would never start"):
        queue.send_schedule_msg(1, LATER, expires=PAST)
    assert queue.counts().living == 0


def test_streams_refuse_an_expiry(redis_url):
    with (
        StreamQueue("tasks", url=redis_url) as stream,
        pytest.raises(ConfigurationError, match="has no expiry"),
    ):
        stream.send_many([NewMessage(1, expires="2h")])


@pytest.mark.parametrize("text", ["x", "+", "+x", "1.5", "-5"])
def test_what_another_program_has_stored_never_expires(text):
    assert expiry_of(Attributes(expires=text), 5) is None
