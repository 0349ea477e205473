"""Inspecting: one message, pages of messages, counts and totals. Inspecting never changes a queue."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest

from delayq import ConfigurationError, NewMessage
from tests.behaviour.places import LIVING, bring, everywhere

pytestmark = everywhere

STATES = (*LIVING, "dead")


@pytest.mark.parametrize("state", STATES)
def test_a_message_is_found_in_each_state(queue, state):
    bring(queue, state, payload={"user": 42}, headers={"trace": "1"})

    message = queue.get("m")

    assert (message.id, message.state) == ("m", state)
    assert (message.payload, message.size, message.headers) == ({"user": 42}, 11, {"trace": "1"})
    assert (message.deadline is not None) == (state in ("active", "backoff"))
    assert (message.died is not None) == (message.reason != "") == (state == "dead")
    assert message.attempts == (0 if state in ("pending", "ready") else 1)


@pytest.mark.parametrize("state", STATES)
def test_a_listing_shows_what_get_shows(queue, state):
    bring(queue, state, headers={"trace": "1"})

    page = queue.list(state)

    assert page.messages == [queue.get("m")]
    assert page.cursor is None


@pytest.mark.parametrize("state", STATES)
def test_a_message_is_listed_and_counted_in_its_state_only(queue, state):
    bring(queue, state)
    counts = queue.counts()

    for other in (*STATES, "garbage"):
        assert len(queue.list(other).messages) == getattr(counts, other) == (other == state)
    assert counts.living == (state != "dead")


def test_get_returns_none_for_an_unknown_id(queue):
    assert queue.get("unknown") is None


def test_message_sent_again_shows_its_dead_letter_entry(queue):
    bring(queue, "dead")
    queue.send_delay_msg("again", 60, id="m")

    message = queue.get("m")

    assert (message.state, message.payload) == ("pending", "again")
    assert message.entry == queue.dead.list().messages[0].entry


def test_active_message_shows_its_consumer_and_deadline(queue):
    bring(queue, "active")

    message = queue.get("m")

    assert message.consumer.startswith(f"{os.uname().nodename}:{os.getpid()}:")
    assert message.token
    assert timedelta(seconds=50) < message.deadline - queue.stats().at <= timedelta(seconds=60)


@pytest.mark.parametrize("state", ["pending", "ready", "active", "backoff", "dead"])
def test_a_listing_comes_in_pages(queue, state):
    when = datetime(2033 if state == "pending" else 2001, 9, 9, tzinfo=UTC)
    ids = [f"m{number}" for number in range(7)]
    queue.send_many([NewMessage(id, at=when + timedelta(seconds=at), id=id) for at, id in enumerate(ids)])
    if state == "ready":
        (message,) = queue.lease(n=1)
        message.release()
    elif state != "pending":
        for message in queue.lease("60s", n=7):
            if state == "dead":
                message.reject("broken")
            elif state == "backoff":
                message.nack(delay=60)

    seen, cursor = [], None
    while True:
        page = queue.list(state, limit=3, cursor=cursor)
        assert len(page.messages) <= 3
        seen += [message.id for message in page.messages]
        cursor = page.cursor
        if cursor is None:
            break

    assert seen == ids


def test_large_page_is_complete_although_it_is_read_in_parts(queue):
    sent = queue.send_many(range(1100), "1h").ids
    first = queue.list("pending", limit=1000)
    assert [message.id for message in first.messages] == sent[:1000]
    second = queue.list("pending", limit=1000, cursor=first.cursor)
    assert [message.id for message in second.messages] == sent[1000:]
    assert second.cursor is None


def test_next_page_starts_after_a_message_that_has_been_removed(queue):
    ids = [f"m{number}" for number in range(6)]
    when = datetime(2033, 5, 18, tzinfo=UTC)
    queue.send_many([NewMessage(id, at=when + timedelta(seconds=at), id=id) for at, id in enumerate(ids)])

    first = queue.list("pending", limit=3)
    queue.cancel("m2")
    second = queue.list("pending", limit=10, cursor=first.cursor)

    assert [message.id for message in second.messages] == ["m3", "m4", "m5"]


def test_pending_messages_are_listed_by_their_due_time(queue):
    start = datetime(2033, 5, 18, tzinfo=UTC)
    times = [start + timedelta(hours=hour) for hour in range(6)]
    queue.send_many([NewMessage(f"m{hour}", at=at, id=f"m{hour}") for hour, at in enumerate(times)])

    def due(limit=100, **period):
        page = queue.list("pending", limit=limit, **period)
        ids = [message.id for message in page.messages]
        return ids + due(limit, **{**period, "cursor": page.cursor}) if page.cursor else ids

    assert due(due_from=times[4]) == ["m4", "m5"]
    assert due(due_to=times[2]) == ["m0", "m1"]
    assert due(due_from=times[1], due_to=times[3]) == ["m1", "m2"]
    assert due(due_from=times[1], due_to=times[5], limit=1) == ["m1", "m2", "m3", "m4"]
    assert due(due_from=times[1] + timedelta(microseconds=1), due_to=times[3] + timedelta(microseconds=1)) == [
        "m2",
        "m3",
    ]
    assert due(due_to=times[0]) == due(due_from=times[5] + timedelta(days=1)) == []


def test_listing_truncates_long_payloads_and_get_does_not(queue):
    queue.send_delay_msg("x" * 100_000, 60, id="m")

    (listed,) = queue.list("pending").messages

    assert (len(listed.payload), listed.size) == (4096, 100_002)
    assert len(queue.get("m").payload) == 100_000


@pytest.mark.parametrize(
    "arguments",
    [
        ("nowhere",),
        ("pending", {"limit": 0}),
        ("pending", {"limit": 1001}),
        ("pending", {"cursor": "nonsense"}),
        ("pending", {"due_from": datetime(2033, 5, 18)}),  # noqa: DTZ001 - naive on purpose
        ("pending", {"due_to": "2033-05-18"}),
        ("pending", {"due_from": datetime(2033, 5, 18, tzinfo=UTC), "due_to": datetime(2033, 5, 17, tzinfo=UTC)}),
        ("ready", {"due_from": datetime(2033, 5, 18, tzinfo=UTC)}),
    ],
)
def test_invalid_list_arguments_are_refused(queue, arguments):
    state, *rest = arguments

    with pytest.raises(ConfigurationError):
        queue.list(state, **(rest[0] if rest else {}))


def test_counts_follow_messages_through_their_states(queue):
    queue.send_many(range(10), 60)
    queue.send_many([NewMessage(number, id=str(number)) for number in range(10)])
    held = list(queue.lease("60s", n=6, block=5))
    held[0].ack()
    held[1].nack(delay=60)
    held[2].reject("broken")
    held[3].release()
    queue.cancel("9")

    counts = queue.counts()

    assert (counts.pending, counts.ready, counts.active) == (10, 4, 2)
    assert (counts.backoff, counts.retry, counts.garbage, counts.dead) == (1, 0, 0, 1)
    assert counts.living == 17


def test_totals_count_every_operation(queue):
    queue.send_many([NewMessage(number, id=str(number)) for number in range(8)])
    held = list(queue.lease("60s", n=6, block=5))
    held[0].ack()
    held[1].nack(delay=60)
    held[2].reject("broken")
    held[3].release()
    queue.cancel("7")
    queue.reschedule("6", 60)
    queue.dead.redrive(all=True)

    totals = queue.stats().totals

    assert totals == {
        "acked": 1,
        "cancelled": 1,
        "dead": 1,
        "delivered": 6,
        "nacked": 1,
        "redriven": 1,
        "released": 1,
        "rescheduled": 1,
        "sent": 8,
    }


def test_stats_show_next_due_oldest_due_and_next_deadline(queue):
    past, future = datetime(2001, 9, 9, tzinfo=UTC), datetime(2033, 5, 18, tzinfo=UTC)
    queue.send_schedule_msg("past", past)
    queue.send_schedule_msg("past", past)
    queue.send_schedule_msg("future", future)
    (message,) = queue.lease("60s", n=1)

    stats = queue.stats()

    assert (stats.next_due, stats.oldest_due) == (future, past)
    assert stats.next_deadline == queue.get(message.id).deadline
    assert stats.counts == queue.counts()


def test_messages_that_wait_for_a_consumer_are_overdue(queue):
    past = datetime(2001, 9, 9, tzinfo=UTC)
    queue.send_many([NewMessage(n, at=past) for n in range(3)], delay=0)
    queue.send_delay_msg("not due", 60)

    unseen = queue.stats()
    with queue.lease("60s", n=2):
        running = queue.stats()

    assert (unseen.counts.overdue, unseen.oldest_due, unseen.nobody_consumes) == (3, past, True)
    assert unseen.lag == unseen.at - past
    assert (running.counts.overdue, running.held, running.nobody_consumes) == (1, 2, False)
    assert running.last_claim is not None


def test_an_empty_queue_has_no_times(queue):
    stats = queue.stats()

    assert (stats.next_due, stats.oldest_due, stats.next_deadline) == (None, None, None)
    assert stats.counts.living == stats.counts.dead == stats.counts.overdue == stats.held == 0
    assert (stats.lag, stats.last_claim, stats.nobody_consumes) == (timedelta(), None, False)
    assert not any(stats.totals.values())


def test_inspecting_changes_nothing(queue):
    bring(queue, "ready")
    before = (queue.counts(), queue.get("m"), dict(queue.stats().totals))

    for state in (*STATES, "garbage"):
        queue.list(state)
    queue.dead.list()

    assert (queue.counts(), queue.get("m"), dict(queue.stats().totals)) == before


def test_purge_empties_every_state_and_returns_the_number(queue):
    queue.send_many(range(3), 60)
    queue.send_many(range(4))
    queue.lease("60s", n=2, block=5)

    assert queue.purge() == 7
    assert queue.counts().living == 0
    queue.send_delay_msg("after")
    with queue.lease() as message:
        assert message.payload == "after"
