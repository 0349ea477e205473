"""Debounced sends: of several sends of one id in a short time, the last is delivered, and in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from delayq import ConfigurationError, NewMessage, SendStatus
from delayq.streams import StreamQueue
from tests.behaviour.places import ID, bring, everywhere

HALF_A_MINUTE = {"debounce": "30s", "at_most": "5m"}


@everywhere
def test_each_send_puts_the_message_off_and_the_last_payload_counts(queue):
    first = queue.send_delay_msg("one", id=ID, **HALF_A_MINUTE)
    second = queue.send_delay_msg("two", id=ID, retries=7, headers={"n": "2"}, name="n", **HALF_A_MINUTE)

    assert (first.status, second.status) == (SendStatus.NEW, SendStatus.REPLACED)
    assert first.due <= second.due <= queue.stats().at + timedelta(seconds=30, milliseconds=1)
    found = queue.get(ID)
    assert (found.payload, found.due, found.retries_left, found.headers) == ("two", second.due, 7, {"n": "2"})
    assert (found.name, queue.counts().living) == ("n", 1)


@everywhere
def test_it_is_due_at_most_so_long_after_the_first_send(queue):
    first = queue.send_delay_msg("one", id=ID, debounce=60, at_most=60)

    for payload in ("two", "three"):
        sent = queue.send_delay_msg(payload, id=ID, debounce=60, at_most=60)

        assert sent.status is SendStatus.REPLACED
        assert abs(sent.due - first.due) <= timedelta(milliseconds=1)
    without_limit = queue.send_delay_msg("four", id=ID, debounce="1h")
    assert without_limit.due > first.due + timedelta(minutes=50)


@everywhere
def test_what_is_sent_while_it_runs_follows_as_a_burst_of_its_own(queue):
    queue.send_delay_msg("old", id=ID, debounce=0.001)
    (running,) = queue.lease(n=1, block=5)

    sent = [queue.send_delay_msg(n, id=ID, debounce=60, at_most=60) for n in range(3)]

    assert [one.status for one in sent] == [SendStatus.AFTER] * 3
    assert sent[2].due - sent[0].due <= timedelta(milliseconds=1)
    assert (queue.counts().active, queue.counts().successors) == (1, 1)
    running.ack()
    found = queue.get(ID)
    assert (found.state, found.payload, found.due) == ("pending", 2, sent[2].due)


@everywhere
@pytest.mark.parametrize("state", ["ready", "backoff", "retry", "retries spent", "dead", "acked"])
def test_a_burst_begins_whatever_became_of_the_message_before(queue, state):
    if state == "retries spent":
        queue.send_delay_msg("old", id=ID, retries=0)
        (message,) = queue.lease(n=1)
        message.nack()
    else:
        bring(queue, state)

    sent = queue.send_delay_msg("new", id=ID, debounce=60, at_most=60)

    assert queue.get(ID).payload == "new"
    assert sent.due > queue.stats().at + timedelta(seconds=50)
    assert queue.counts().living == 1


def test_a_reserved_id_is_not_debounced(open_queue):
    queue = open_queue()
    queue.send_delay_msg("old", id=ID, unique_after="1h")
    with queue.lease() as message:
        assert message.id == ID

    sent = queue.send_delay_msg("new", id=ID, **HALF_A_MINUTE)

    assert (sent.status, sent.owner.state) == (SendStatus.SETTLED, "settled")
    assert queue.counts().living == 0


def test_a_burst_of_a_task_calls_it_once_with_the_last_arguments(open_queue):
    queue = open_queue()
    calls = []
    index = queue.task(name="index", debounce="2s", at_most="2s")(lambda page, text="": calls.append((page, text)))

    statuses = [index.options(id="page-1").send(1, text).status for text in ("a", "ab", "abc")]

    assert statuses[0] is SendStatus.NEW
    assert queue.counts().living == 1
    assert queue.reschedule("page-1", 0) == "rescheduled"
    queue.run(burst=True)
    assert calls == [(1, "abc")]
    own_time = index.options(id="page-1", delay="1h").send(1, "later")
    assert own_time.due > queue.stats().at + timedelta(minutes=50)


def test_what_contradicts_a_debounce_is_refused_and_nothing_stored(open_queue):
    queue = open_queue()
    for options, text in (
        ({}, "debounce needs an id, or unique='payload'"),
        ({"id": ID, "delay": "1h"}, "give delay or debounce, but not both"),
        ({"id": ID, "replace": True}, "give replace or debounce, but not both"),
        ({"id": ID, "unique_for": "1h"}, "give unique_for or debounce, but not both"),
        ({"id": ID, "at_most": "1s"}, "at_most must not be shorter than debounce"),
        ({"id": ID, "debounce": 0}, "debounce must be between 1ms"),
        ({"id": ID, "debounce": "soon"}, "debounce"),
        ({"id": ID, "debounce": None, "at_most": "1h"}, "at_most goes with debounce"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            queue.send_delay_msg(1, **{"debounce": "30s", **options})
    with pytest.raises(ConfigurationError, match="give at or debounce, but not both"):
        queue.send_schedule_msg(1, datetime.now(UTC), id=ID, debounce="30s")
    for options in ({"delay": "1h"}, {"unique_for": "1h"}, {"at_most": "1s"}):
        with pytest.raises(ConfigurationError):
            queue.task(name="index", debounce="30s", **options)(lambda page: None)
    index = queue.task(name="index", debounce="30s")(lambda page: None)
    with pytest.raises(ConfigurationError, match="give delay or debounce"):
        index.options(delay=1, debounce=1)
    with pytest.raises(ConfigurationError, match="debounce is an option of a single send"):
        index.message(1)
    with pytest.raises(ConfigurationError, match="debounce needs an id"):
        index.send(1)
    assert queue.counts().living == 0


def test_a_full_queue_refuses_a_new_burst_and_puts_off_an_old_one(open_queue):
    queue = open_queue(max_length=1)
    queue.send_delay_msg(1, id=ID, **HALF_A_MINUTE)

    assert queue.send_delay_msg(2, id=ID, **HALF_A_MINUTE).status is SendStatus.REPLACED
    with pytest.raises(Exception, match="of at most 1 messages") as caught:
        queue.send_delay_msg(3, id="other", **HALF_A_MINUTE)
    assert caught.value.ids == ("other",)


def test_other_engines_refuse_it(redis_url):
    with StreamQueue("tasks", url=redis_url) as stream:
        with pytest.raises(ConfigurationError, match="the streams engine has no ids reserved for a time"):
            stream.send_many([NewMessage(1, id=ID, unique_for="1h")])
        assert stream.counts().ready == 0
