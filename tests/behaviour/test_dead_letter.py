"""The dead letter: which messages died and why; redrive, purge and limits."""

from __future__ import annotations

import logging
from datetime import timedelta
from itertools import pairwise

import pytest

from delayq import ConfigurationError, PayloadError, Reject
from tests.behaviour.places import bring, everywhere

pytestmark = everywhere


def kill(queue, *ids, reason="broken"):
    """Send messages and reject them with a reason, in this order."""
    for id in ids:
        queue.send_delay_msg(f"payload of {id}", id=id)
        with queue.lease():
            raise Reject(reason)


def entries(queue):
    return [message.id for message in queue.dead.list().messages]


@pytest.mark.long
def test_dead_message_keeps_its_data(queue):
    queue.send_delay_msg({"user": 42}, retries=1, id="m", headers={"trace": "1"})
    for attempt in (1, 2):
        with pytest.raises(ValueError, match="attempt"), queue.lease(block=5):
            raise ValueError(f"attempt {attempt}")

    (message,) = queue.dead.list().messages
    assert (message.id, message.state, message.payload) == ("m", "dead", {"user": 42})
    assert (message.reason, message.error) == ("retries spent", "ValueError: attempt 2")
    assert (message.attempts, message.headers) == (2, {"trace": "1"})
    assert timedelta() <= queue.stats().at - message.died < timedelta(seconds=10)
    assert message.due <= message.died
    assert message.entry.startswith("m:")


def test_message_without_retries_dies_when_its_lease_expires(queue):
    queue.send_delay_msg("hello", retries=0, id="m")
    queue.lease("100ms")

    with queue.lease(block="500ms") as message:
        assert message is None

    message = queue.get("m")
    assert (message.state, message.reason, message.error) == ("dead", "retries spent", "lease expired")


def test_dead_messages_are_listed_in_pages_oldest_first(queue):
    kill(queue, *"abcde")

    first = queue.dead.list(limit=2)
    second = queue.dead.list(limit=2, cursor=first.cursor)
    third = queue.dead.list(limit=2, cursor=second.cursor)

    assert [[message.id for message in page.messages] for page in (first, second, third)] == [
        ["a", "b"],
        ["c", "d"],
        ["e"],
    ]
    assert third.cursor is None


def test_one_message_is_redriven_by_its_id(queue):
    kill(queue, "a", "b")

    redriven = queue.dead.redrive("a")

    assert (redriven.redriven, redriven.exists) == (1, 0)
    assert entries(queue) == ["b"]
    with queue.lease() as message:
        assert (message.id, message.payload, message.attempt, message.retries_left) == ("a", "payload of a", 1, 3)


def test_redriven_message_keeps_its_headers(queue):
    queue.send_delay_msg("hello", id="m", headers={"trace": "1"})
    with queue.lease():
        raise Reject("broken")

    queue.dead.redrive("m")

    with queue.lease() as message:
        assert message.headers == {"trace": "1"}


def test_a_redriven_message_may_get_other_retries(queue):
    kill(queue, "a")

    queue.dead.redrive("a", retries=9)

    assert queue.get("a").retries_left == 9


def test_redrive_by_id_takes_the_latest_entry(queue):
    kill(queue, "a", reason="first")
    kill(queue, "a", reason="second")
    assert [message.reason for message in queue.dead.list().messages] == ["first", "second"]

    queue.dead.redrive("a")

    assert [message.reason for message in queue.dead.list().messages] == ["first"]


def test_redrive_by_entry_takes_that_entry(queue):
    kill(queue, "a", reason="first")
    kill(queue, "a", reason="second")
    first, _ = queue.dead.list().messages

    assert queue.dead.redrive(first.entry).redriven == 1
    assert [message.reason for message in queue.dead.list().messages] == ["second"]


def test_id_that_looks_like_an_entry_is_treated_as_an_id(queue):
    kill(queue, "order:42")

    assert queue.dead.redrive("order:42").redriven == 1
    assert queue.get("order:42").state == "ready"


def test_messages_are_redriven_by_reason(queue):
    kill(queue, "a", reason="no such user")
    kill(queue, "b", reason="time-out")
    kill(queue, "c", reason="user is gone")

    assert queue.dead.redrive(reason="user").redriven == 2
    assert entries(queue) == ["b"]


def test_messages_are_redriven_by_error(queue):
    for id, error in (("a", "ValueError: x"), ("b", "TimeoutError: y")):
        queue.send_delay_msg("hello", retries=0, id=id)
        (message,) = queue.lease(n=1)
        message.nack(error=error)

    assert queue.dead.redrive(error="Timeout").redriven == 1
    assert entries(queue) == ["a"]


def test_redriving_everything_takes_several_batches(queue):
    queue.send_many(range(250), retries=0)
    for message in queue.lease(n=250, block=5):
        message.reject("broken")

    assert queue.dead.redrive(all=True).redriven == 250
    assert (queue.counts().dead, queue.counts().ready) == (0, 250)


def test_redrive_of_an_id_that_is_in_use_changes_nothing(queue):
    kill(queue, "a")
    queue.send_delay_msg("alive", 60, id="a")

    redriven = queue.dead.redrive("a")

    assert (redriven.redriven, redriven.exists) == (0, 1)
    assert entries(queue) == ["a"]
    assert queue.get("a").payload == "alive"


@pytest.mark.parametrize("state", ["gone", "pending", "active"])
def test_redrive_ignores_messages_that_are_not_dead(queue, state):
    bring(queue, state)
    before = queue.get("m")

    assert queue.dead.redrive("m").redriven == 0
    assert queue.get("m") == before


def test_purge_selects_entries_like_redrive(queue):
    kill(queue, "a", "b", reason="time-out")
    kill(queue, "c", "d")

    assert queue.dead.purge("a") == 1
    assert queue.dead.purge(reason="time-out") == 1
    assert entries(queue) == ["c", "d"]
    assert queue.dead.purge(all=True) == 2
    assert queue.counts().dead == 0


@pytest.mark.parametrize("which", [{}, {"id": "a", "all": True}, {"reason": ""}, {"id": "a", "reason": "x"}])
def test_redrive_or_purge_without_one_selection_is_refused(queue, which):
    kill(queue, "a")

    with pytest.raises(ConfigurationError, match=r"select entries|text to search for"):
        queue.dead.redrive(**which)
    with pytest.raises(ConfigurationError, match=r"select entries|text to search for"):
        queue.dead.purge(**which)

    assert entries(queue) == ["a"]


def test_purging_the_queue_keeps_its_dead_letter(queue):
    kill(queue, "a")
    queue.send_delay_msg("alive", 60)

    assert queue.purge() == 1
    assert entries(queue) == ["a"]


def test_dead_letter_keeps_the_latest_entries_and_counts_and_logs_trimming(open_queue, caplog):
    queue = open_queue(dead_max=3, callback=lambda message: False)
    queue.send_many([*range(5)], retries=0)

    with caplog.at_level(logging.WARNING, "delayq"):
        queue.run(burst=True)

    assert queue.counts().dead == 3
    assert queue.stats().totals["trimmed"] == 2
    assert any("trimmed" in record.message for record in caplog.records)


def test_dead_letter_entries_expire(open_queue):
    queue = open_queue(dead_ttl=0, callback=lambda message: False)
    kill(queue, "old")
    queue.send_delay_msg("new", retries=0)

    queue.run(burst=True)

    assert "old" not in entries(queue)
    assert queue.stats().totals["trimmed"] >= 1


def test_dead_max_of_zero_keeps_no_entries(open_queue):
    queue = open_queue(dead_max=0, callback=lambda message: False)
    queue.send_delay_msg("hopeless", retries=0, id="m")

    queue.run(burst=True)

    assert queue.get("m") is None
    assert queue.counts().dead == 0


def test_limits_of_the_dead_letter_are_the_queues_whoever_collects(open_queue):
    owner = open_queue(dead_max=2)
    owner.open()
    worker = open_queue(callback=lambda message: False)
    worker.send_many([*range(4)], retries=0)
    worker.run(burst=True)
    assert worker.counts().dead == 2

    open_queue(dead_max=100, dead_ttl="1d").open()  # the latest counts
    owner.send_many([*range(4)], retries=0)
    worker.run(burst=True)
    assert worker.counts().dead == 6
    assert {"dead_max", "dead_ttl"}.isdisjoint(worker.stats().totals)
    assert not [one for one in worker.examine().findings if one.kind == "unknown field"]


def test_dead_messages_are_grouped_by_the_shape_of_their_errors(queue):
    kill(queue, "a", reason="user 42 unknown")
    kill(queue, "b", reason="card 'x-1' refused")
    kill(queue, "c", reason="user 4711 unknown")

    users, cards = queue.dead.groups()
    first, _, last = queue.dead.list().messages
    assert (users.count, users.reason, users.error) == (2, "user # unknown", "")
    assert (users.first, users.last, users.sample) == (first.died, last.died, last.entry)
    assert (cards.count, cards.reason) == (1, "card '…' refused")

    assert queue.dead.redrive(group=users.group).redriven == 2
    assert entries(queue) == ["b"]
    assert queue.dead.purge(group=users.group) == 0
    assert queue.dead.purge(group=cards.group) == 1
    assert queue.dead.groups() == []


@pytest.mark.long
def test_redrive_at_a_rate_lets_messages_become_due_one_after_another(queue):
    names = [f"m{n:03}" for n in range(130)]
    kill(queue, *names)
    before = queue.stats().at
    assert queue.dead.redrive(all=True, rate="10/s").redriven == 130
    after = queue.stats().at

    dues = [queue.get(id).due for id in names]
    took = after - before
    assert before <= dues[0] <= after
    steps = [later - earlier for earlier, later in pairwise(dues)]
    assert min(steps) == timedelta(milliseconds=100)
    assert max(steps) <= timedelta(milliseconds=101) + took  # between batches
    assert dues[-1] - dues[0] <= timedelta(seconds=12.9) + 2 * took


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"group": "Timeout"}, "group must be 8 hexadecimal digits"),
        ({"group": 12345678}, "group must be 8 hexadecimal digits"),
        ({"group": "0123abcd", "all": True}, "select entries"),
        ({"all": True, "rate": "fast"}, "rate must look like '200/s'"),
        ({"all": True, "rate": 50}, "rate must look like '200/s'"),
        ({"all": True, "rate": "0/s"}, "rate must be from 1 to 100000 a second"),
    ],
)
def test_wrong_groups_and_rates_are_refused(queue, options, error):
    kill(queue, "a")
    with pytest.raises(ConfigurationError, match=error):
        queue.dead.redrive(**options)
    assert queue.counts().dead == 1


def test_messages_are_redriven_with_other_payloads(queue):
    kill(queue, *"abc", "a")
    first, last = (message.entry for message in queue.dead.list().messages if message.id == "a")

    done = queue.dead.redrive(payloads={last: "new a", "b": "new b", "gone": 1, "a:12345": 2}, retries=7)

    assert (done.redriven, done.exists, done.gone) == (2, 0, ("gone", "a:12345"))
    assert [queue.get(id).payload for id in "ab"] == ["new a", "new b"]
    assert (queue.get("b").retries_left, queue.counts().ready) == (7, 2)
    assert {message.entry for message in queue.dead.list().messages if message.id != "c"} == {first}
    again = queue.dead.redrive(payloads={first: "lost"})
    assert (again.redriven, again.exists, again.gone) == (0, 1, ())
    assert queue.get("a").payload == "new a"


def test_many_large_payloads_are_replaced_at_a_pace(queue):
    large = "x" * 300_000
    kill(queue, *(f"m{n}" for n in range(8)))
    done = queue.dead.redrive(payloads={f"m{n}": f"{n}{large}" for n in range(8)}, rate="1/m")
    assert done.redriven == 8
    messages = [*queue.list("ready").messages, *queue.list("pending").messages]
    assert sorted(queue.get(message.id).payload[0] for message in messages) == [*"01234567"]
    dues = sorted(message.due for message in messages)
    assert {round((later - earlier).total_seconds()) for earlier, later in pairwise(dues)} == {60}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"payloads": {}}, "payloads must map ids or entries"),
        ({"payloads": [("a", 1)]}, "payloads must map ids or entries"),
        ({"payloads": {"a b": 1}}, "id must be 1 to 128"),
        ({"payloads": {"a": 1, 5: 1}}, "id must be 1 to 128"),
        ({"payloads": {"a": 1, "b": object()}}, "of b: payload cannot be encoded"),
        ({"payloads": {"a": 1, "b": "x" * (1 << 21)}}, "of b: the payload is"),
        ({"payloads": {"a": 1}, "id": "a"}, "payloads select their messages"),
        ({"payloads": {"a": 1}, "all": True}, "payloads select their messages"),
        ({"payloads": {"a": 1}, "retries": -1}, "retries"),
        ({"payloads": {"a": 1}, "rate": "often"}, "rate"),
    ],
    ids=["none", "list", "space", "number", "object", "large", "id", "all", "retries", "rate"],
)
def test_wrong_payloads_are_refused_before_anything_is_sent(queue, wrong, text):
    kill(queue, *"ab")
    with pytest.raises((ConfigurationError, PayloadError), match=text):
        queue.dead.redrive(**wrong)
    assert entries(queue) == [*"ab"]
