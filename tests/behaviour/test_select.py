"""`queue.select`: many waiting messages at once, beside what does not match."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from delayq import ConfigurationError, NewMessage
from tests.behaviour.places import bring, everywhere
from tests.support.waiting import wait_until

NOW = datetime.now(UTC).replace(microsecond=0)


def ids(queue, state="pending") -> set[str]:
    return {message.id for message in queue.list(state, limit=1000).messages}


def brought(queue, state):
    """Return the queue, with the message "m" in a state."""
    if state == "throttled":
        queue.pause(name="mail")
        queue.send_delay_msg("x", id="m", name="mail")
        assert list(queue.lease(n=5)) == []
    else:
        bring(queue, state)
    assert queue.get("m").state == state
    return queue


@pytest.fixture
def mixed(open_queue):
    """A queue of 60 pending messages: of two names and none, due in one to ten hours."""
    queue = open_queue()
    queue.send_many(
        NewMessage(
            n, id=f"{'abc'[n % 3]}:{n}", name=("mail", "push", None)[n % 3], at=NOW + timedelta(hours=1 + n % 10)
        )
        for n in range(60)
    )
    return queue


@everywhere
@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        ({"name": "mail"}, lambda n: n % 3 == 0),
        ({"id_prefix": "b:1"}, lambda n: n % 3 == 1 and str(n).startswith("1")),
        ({"due_to": NOW + timedelta(hours=3)}, lambda n: n % 10 < 2),
        ({"due_from": NOW + timedelta(hours=3), "due_to": NOW + timedelta(hours=5)}, lambda n: n % 10 in (2, 3)),
        ({"name": "push", "due_from": NOW + timedelta(hours=10)}, lambda n: n % 3 == 1 and n % 10 == 9),
        ({"state": "pending"}, lambda n: True),
        ({"state": "backoff"}, lambda n: False),
    ],
    ids=["name", "id prefix", "due before", "due between", "name and due from", "state", "another state"],
)
def test_what_matches_is_counted_and_cancelled_and_nothing_else(mixed, wanted, matches):
    expected = {f"{'abc'[n % 3]}:{n}" for n in range(60) if matches(n)}
    selected = mixed.select(**wanted)
    assert selected.count() == len(expected)
    before = ids(mixed)
    assert selected.cancel() == ({"cancelled": len(expected)} if expected else {})
    assert before - ids(mixed) == expected
    assert selected.count() == 0
    assert selected.cancel() == {}


@everywhere
@pytest.mark.parametrize("state", ["pending", "ready", "backoff", "retry", "throttled"])
def test_one_in_any_waiting_state_is_cancelled_rescheduled_and_run(open_queue, state):
    moved, cancelled = (brought(open_queue(name), state) for name in ("moved", "cancelled"))
    assert moved.select(state).count() == moved.select(id_prefix="m").count() == 1
    assert moved.select(id_prefix="m").reschedule("2h") == {"rescheduled": 1}
    assert timedelta(minutes=119) < moved.get("m").due - moved.stats().at < timedelta(minutes=121)
    assert moved.select(id_prefix="m").run_now() == {"rescheduled": 1}
    assert moved.get("m").due <= moved.stats().at
    assert moved.select(id_prefix="m").run_now() == {}
    assert cancelled.select(state).cancel() == {"cancelled": 1}
    assert cancelled.get("m") is None


@everywhere
def test_messages_in_backoff_run_at_once(open_queue):
    queue = open_queue()
    bring(queue, "backoff")
    assert queue.select("backoff").run_now() == {"rescheduled": 1}
    assert [message.id for message in queue.lease(n=5)] == ["m"]


@everywhere
def test_messages_keep_their_place_if_they_are_due_then_already(mixed):
    at = NOW + timedelta(hours=4)
    assert mixed.select(name="mail").reschedule(at=at) == {"rescheduled": 18}  # two of 20 are due then
    assert mixed.select(name="mail").reschedule(at=at) == {}
    assert {message.due for message in mixed.list("pending").messages if message.name == "mail"} == {at}


def test_thousands_are_cancelled_while_a_worker_takes_some(open_queue):
    queue, seen = open_queue(concurrency=2), Counter()
    queue.callback(lambda message: seen.update([message.id]))
    order = [f"m{n}" for n in range(6000)]
    random.Random(7).shuffle(order)
    queue.send_many(NewMessage("x", id=id) for id in order)
    queue.start_consume()
    wait_until(lambda: len(seen) > 50)
    outcomes = queue.select(id_prefix="m").cancel()
    wait_until(lambda: queue.counts().living == 0)
    assert seen.most_common(1)[0][1] == 1
    assert len(seen) + outcomes["cancelled"] == 6000
    assert queue.stats().totals["cancelled"] == outcomes["cancelled"]


@everywhere
def test_what_runs_is_left_alone_or_asked_to_stop(open_queue):
    queue = open_queue()
    bring(queue, "active")
    assert queue.select("active").count() == 1
    assert queue.select(id_prefix="m").cancel() == {}
    assert queue.select("active").cancel() == {"running": 1}
    assert queue.select("active").cancel(running=True) == {"stopping": 1}


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({}, "say which messages: give a state, name, id_prefix, due_from or due_to"),
        (
            {"state": "dead"},
            "the state of a selection must be one of pending, ready, throttled, backoff, retry, active",
        ),
        ({"state": 3}, "not 3"),
        ({"name": "a b"}, "name must be 1 to 128 of"),
        ({"id_prefix": ""}, "id_prefix must be 1 to 128 of"),
        ({"due_from": NOW.replace(tzinfo=None)}, "due_from"),
        ({"due_from": "now"}, "due_from"),
        ({"due_from": NOW, "due_to": NOW - timedelta(1)}, "is after due_to"),
    ],
    ids=["nothing", "dead", "number", "name", "no id", "naive", "text", "reversed"],
)
def test_wrong_filters_are_refused(open_queue, wanted, text):
    with pytest.raises(ConfigurationError, match=text):
        open_queue().select(**wanted)


def test_wrong_arguments_are_refused_and_nothing_is_changed(mixed):
    before = ids(mixed)
    for call in (
        lambda: mixed.select(name="mail").reschedule(),
        lambda: mixed.select(name="mail").reschedule("1h", at=NOW),
        lambda: mixed.select(name="mail").reschedule("never"),
        lambda: mixed.select(name="mail").cancel(running="yes"),
    ):
        with pytest.raises(ConfigurationError):
            call()
    assert ids(mixed) == before
