"""Sending: when a message becomes due, and how ids prevent duplicates."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from delayq import ConfigurationError, NewMessage, PayloadError, PayloadTooLargeError, QueueFullError
from tests.behaviour.places import LIVING, bring, everywhere

pytestmark = everywhere


def deliver(queue):
    """Process all due messages and return their payloads."""
    seen = []
    queue.callback(lambda message: seen.append(message.payload))
    queue.run(burst=True)
    return seen


def test_a_message_without_a_delay_is_due_at_once(queue):
    queue.send_delay_msg({"user": 42})

    assert deliver(queue) == [{"user": 42}]


def test_message_due_at_once_is_delivered_by_the_next_burst(queue):
    seen = []
    queue.callback(lambda message: seen.append(message.payload))
    for number in range(20):
        queue.send_delay_msg(number)

        queue.run(burst=True)

        assert seen.pop() == number
        assert not seen


def test_a_message_is_not_delivered_before_its_time(queue):
    sent = time.monotonic()
    queue.send_delay_msg("later", "200ms")

    (message,) = queue.lease(n=1, block=5)

    assert time.monotonic() - sent >= 0.2
    assert message.lateness >= 0


def test_message_that_is_not_due_stays_pending(queue):
    queue.send_delay_msg("later", 60)

    assert deliver(queue) == []
    assert queue.counts().pending == 1


@pytest.mark.parametrize("due", [{"delay": 60}, {"delay": 0}, {"at": datetime(2033, 5, 18, tzinfo=UTC)}])
def test_send_says_when_the_message_is_due(queue, due):
    sent = queue.send_schedule_msg(1, **due) if "at" in due else queue.send_delay_msg(1, **due)
    again = queue.send_delay_msg(2, "2h", id=sent.id)
    kept = queue.get(sent.id).due
    replaced = queue.send_delay_msg(3, "2h", id=sent.id, replace=True)

    assert sent.due == kept
    assert (again.status, again.due) == ("exists", None)  # the stored message keeps its own
    assert (replaced.status, replaced.due) == ("replaced", queue.get(sent.id).due)


def test_send_many_says_when_each_message_is_due(queue):
    at = datetime(2033, 5, 18, tzinfo=UTC)
    sent = [*queue.send_many(range(600), "1h"), *queue.send_many([1, NewMessage(2, at=at), NewMessage(3, "2h")])]

    assert [one.due for one in sent] == [queue.get(one.id).due for one in sent]
    assert sent[601].due == at
    assert sent[0].due < sent[-1].due


@pytest.mark.parametrize("delay", [90, 90.0, timedelta(seconds=90), "90s", "1m30s"])
def test_delay_can_be_seconds_a_timedelta_or_text(queue, delay):
    before = queue.stats().at
    id = queue.send_delay_msg("later", delay).id

    due_in = queue.get(id).due - before
    assert timedelta(seconds=90) <= due_in <= timedelta(seconds=95)


def test_a_message_can_be_sent_for_a_time(queue):
    when = datetime(2033, 5, 18, 9, 0, tzinfo=timezone(timedelta(hours=2)))
    id = queue.send_schedule_msg("wake up", at=when).id

    assert queue.get(id).due == when
    assert queue.get(id).due.tzinfo is UTC


def test_message_for_a_past_time_is_due_at_once(queue):
    queue.send_schedule_msg("missed", at=datetime(2001, 9, 9, tzinfo=UTC))

    assert deliver(queue) == ["missed"]


def test_a_time_without_a_zone_is_refused(queue):
    with pytest.raises(ConfigurationError, match="naive"):
        queue.send_schedule_msg("when?", at=datetime(2033, 5, 18))  # noqa: DTZ001 - what is refused here

    assert queue.counts().living == 0


def test_messages_are_delivered_in_the_order_of_their_times(queue):
    for second in (3, 1, 2):
        queue.send_schedule_msg(second, at=datetime(2001, 9, 9, 1, 0, second, tzinfo=UTC))

    assert deliver(queue) == [1, 2, 3]


def test_an_id_made_by_delayq_is_22_characters_and_sorts_by_time(queue):
    ids = [queue.send_delay_msg(number, 60).id for number in range(10)]

    assert {len(id) for id in ids} == {22}
    assert ids == sorted(ids)


def test_retries_can_be_given_by_position_by_name_or_by_default(open_queue):
    queue = open_queue(default_retries=7)
    ids = [
        queue.send_delay_msg("default", 60).id,
        queue.send_delay_msg("by position", 60, 5).id,
        queue.send_delay_msg("by name", delay=60, retries=0).id,
    ]

    assert [queue.get(id).retries_left for id in ids] == [7, 5, 0]


# Sending with an id


@pytest.mark.parametrize("state", LIVING)
def test_id_of_an_unsettled_message_is_not_sent_again(queue, state):
    bring(queue, state, payload="first")
    before = queue.get("m")

    sent = queue.send_delay_msg("second", 5, id="m")

    assert (sent.id, sent.status, sent.new) == ("m", "exists", False)
    assert queue.get("m") == before


@pytest.mark.parametrize("state", ["gone", "acked", "dead"])
def test_an_id_is_free_when_its_message_is_settled_or_dead(queue, state):
    bring(queue, state, payload="first")

    sent = queue.send_delay_msg("second", id="m")

    assert (sent.status, sent.new) == ("new", True)
    assert deliver(queue) == ["second"]


@pytest.mark.parametrize("state", ["pending", "ready", "backoff", "retry"])
def test_replace_gives_a_waiting_message_a_new_payload_and_time(queue, state):
    bring(queue, state, payload="first", headers={"trace": "1"})

    sent = queue.send_delay_msg("second", 3600, 9, id="m", replace=True)

    message = queue.get("m")
    assert (sent.status, sent.new) == ("replaced", False)
    assert (message.state, message.payload, message.retries_left) == ("pending", "second", 9)
    assert message.due - queue.stats().at > timedelta(minutes=59)
    assert queue.counts().living == 1


@pytest.mark.parametrize("state", ["backoff", "retry"])
def test_replaced_message_starts_with_no_attempts_or_error(queue, state):
    bring(queue, state, headers={"trace": "1"}, retries=7)

    queue.send_delay_msg("second", id="m", replace=True)

    with queue.lease(block=5) as message:
        assert (message.payload, message.attempt, message.retries_left) == ("second", 1, 7)
        assert (message.headers, queue.get("m").error) == ({"trace": "1"}, "")


LATER = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
KEPT = {
    "retries": (7, 8, "retries_left"),
    "headers": ({"trace": "1"}, {}, "headers"),
    "name": ("mail", "letter", "name"),
    "expires": (LATER, LATER + timedelta(days=1), "expires"),
    "priority": (3, 0, "priority"),
    "retention": ("1h", "2h", "retention"),
    "timeout": (5, 6, "timeout"),
}


@pytest.mark.parametrize("way", ["send_delay_msg", "send_schedule_msg", "send_many"])
@pytest.mark.parametrize("option", KEPT)
def test_replaced_message_keeps_what_is_not_given(queue, option, way):
    first, second, shown = KEPT[option]

    def send_again(payload, replace, **options):
        if way == "send_many":
            return queue.send_many([NewMessage(payload, delay="1h", id="m", **options)], replace=replace)
        if way == "send_schedule_msg":
            at = datetime.now(UTC) + timedelta(hours=1)
            return queue.send_schedule_msg(payload, at, id="m", **options, replace=replace)
        return queue.send_delay_msg(payload, "1h", id="m", **options, replace=replace)

    queue.send_delay_msg(1, "1h", id="given", **{option: second})
    queue.send_delay_msg(1, "2h", id="m", **{option: first})
    before = getattr(queue.get("m"), shown)
    for replace in (True, "after"):
        send_again(replace, replace)
        assert (queue.get("m").payload, getattr(queue.get("m"), shown)) == (replace, before)
    send_again(3, True, **{option: second})
    assert getattr(queue.get("m"), shown) == getattr(queue.get("given"), shown) != before


def test_replace_does_not_change_a_running_message(queue):
    bring(queue, "active", payload="first")

    assert queue.send_delay_msg("second", 5, id="m", replace=True).status == "running"
    assert queue.get("m").payload == "first"


def test_replace_sends_a_message_with_an_unknown_id(queue):
    assert queue.send_delay_msg("first", id="m", replace=True).status == "new"
    assert deliver(queue) == ["first"]


# Sending many


def test_send_many_sends_all_messages(queue):
    sent = queue.send_many(range(1_500))

    assert len(sent) == len(set(sent.ids)) == len(sent.new) == 1_500
    assert queue.counts().ready == 1_500


def test_each_message_of_send_many_can_have_its_own_options(queue):
    when = datetime(2033, 5, 18, tzinfo=UTC)
    queue.send_many(
        [
            NewMessage("at", at=when, id="at"),
            NewMessage("delayed", delay="1h", id="delayed"),
            NewMessage("tough", retries=9, headers={"trace": "1"}, id="tough"),
        ],
        delay=60,
        retries=1,
    )

    at, delayed, tough = (queue.get(id) for id in ("at", "delayed", "tough"))
    assert at.due == when
    assert delayed.due - tough.due == timedelta(minutes=59)
    assert (at.retries_left, tough.retries_left) == (1, 9)
    assert (at.headers, tough.headers) == ({}, {"trace": "1"})


def test_send_many_returns_which_ids_are_new(queue):
    queue.send_delay_msg("old", 60, id="b")

    sent = queue.send_many([NewMessage(id, id=id) for id in "abca"], 60)

    assert [one.status for one in sent] == ["new", "exists", "new", "exists"]
    assert sent.new == ["a", "c"]
    assert queue.get("b").payload == "old"


def test_repeated_send_many_changes_nothing(queue):
    batch = [NewMessage(number, id=str(number)) for number in range(10)]
    queue.send_many(batch, 60)

    assert queue.send_many(batch, 60).new == []
    assert queue.counts().pending == 10


def test_send_many_can_replace_messages(queue):
    queue.send_delay_msg("old", 60, id="b")

    sent = queue.send_many([NewMessage(f"new {id}", id=id) for id in "ab"], 60, replace=True)

    assert [one.status for one in sent] == ["new", "replaced"]
    assert queue.get("b").payload == "new b"


def test_send_many_sends_nothing_if_one_message_is_invalid(queue):
    with pytest.raises(PayloadError):
        queue.send_many(["good", object(), "good"])

    assert queue.counts().living == 0


def test_send_many_of_no_messages_sends_nothing(queue):
    assert list(queue.send_many([])) == []


# Limits


def test_a_payload_over_the_limit_is_refused(open_queue):
    queue = open_queue(max_payload=100)

    with pytest.raises(PayloadTooLargeError, match="max_payload is 100"):
        queue.send_delay_msg("x" * 99)  # and two quotation marks

    queue.send_delay_msg("x" * 98)
    assert queue.counts().living == 1


def test_full_queue_refuses_the_whole_batch(open_queue):
    queue = open_queue(max_length=3)
    queue.send_many([*"ab"], 60)

    with pytest.raises(QueueFullError, match="2 of at most 3"):
        queue.send_many([*"cd"], 60)

    assert queue.counts().living == 2


@pytest.mark.parametrize("state", ["pending", "ready", "active", "backoff", "retry"])
def test_send_says_who_has_an_id_that_exists(queue, state):
    bring(queue, state)
    found = queue.get("m")

    sent = queue.send_delay_msg("again", id="m")

    assert (sent.status, sent.due, sent.owner) == ("exists", None, (state, found.due))
    (of_many,) = queue.send_many([NewMessage("again", id="m")])
    assert of_many.owner == sent.owner
    assert queue.send_delay_msg("new", id="n").owner is None


def test_send_says_that_the_message_to_replace_runs(queue):
    bring(queue, "active")

    sent = queue.send_delay_msg("again", id="m", replace=True)

    assert (sent.status, sent.owner) == ("running", ("active", queue.get("m").due))
    assert queue.send_delay_msg("again", id="m", replace="after").owner is None


def test_send_says_when_a_settled_id_is_free_again(open_queue):
    queue = open_queue(dedupe_window="1h")
    bring(queue, "acked")

    sent = queue.send_delay_msg("again", id="m")

    assert (sent.status, sent.owner.state) == ("settled", "settled")
    assert timedelta(minutes=59) < sent.owner.due - queue.stats().at <= timedelta(hours=1)
