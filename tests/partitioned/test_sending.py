"""Sends to partitions, and what is done to one message by its id."""

from __future__ import annotations

from datetime import timedelta

import pytest

from delayq import (
    CancelOutcome,
    ConfigurationError,
    EditOutcome,
    KillOutcome,
    NewMessage,
    NoResultError,
    QueueFullError,
    RescheduleOutcome,
    SendStatus,
    State,
)
from tests.behaviour.places import everywhere
from tests.partitioned.places import PARTITIONS, claim, ids_of, one_of_each, place, stored_at


def test_each_message_is_in_the_partition_of_its_id(queue, url):
    ids = [f"m{number}" for number in range(60)]
    for id in ids[:20]:
        queue.send_delay_msg("x", 60, id=id)
    queue.send_many([NewMessage("x", id=id, delay=60) for id in ids[20:]])

    assert stored_at(url) == {id: place(id) for id in ids}


def test_payloads_without_ids_are_spread_over_all_partitions(queue, url):
    sent = queue.send_many(range(400), 60)

    assert stored_at(url) == {id: place(id) for id in sent.ids}
    assert [queue.get(id).payload for id in sent.ids[:20]] == [*range(20)]
    assert queue.counts().pending == len(sent) == 400


@everywhere
def test_outcomes_are_in_the_order_of_the_messages(queue):
    ids = [f"m{number}" for number in range(50)]
    queue.send_many([NewMessage("old", id=id, delay=60) for id in ids[::2]])

    sent = queue.send_many([NewMessage(id, id=id, delay=60) for id in ids])

    assert [one.id for one in sent] == sent.ids == ids
    assert [one.status for one in sent] == [SendStatus.EXISTS, SendStatus.NEW] * 25
    replaced = queue.send_many([NewMessage(id, id=id, delay=n + 60) for n, id in enumerate(ids)], replace=True)
    assert {one.status for one in replaced} == {SendStatus.REPLACED}
    dues = [one.due for one in replaced]
    assert dues == sorted(dues)
    assert all(queue.get(one.id).due == one.due and queue.get(one.id).payload == one.id for one in replaced)


def test_nothing_is_sent_of_no_messages(queue):
    assert list(queue.send_many([])) == []
    assert queue.counts().living == 0


@everywhere
def test_one_message_is_found_and_changed_by_its_id(queue):
    for id in one_of_each():
        assert queue.send_delay_msg("hello", 60, id=id).status is SendStatus.NEW
        assert queue.send_delay_msg("again", 60, id=id).status is SendStatus.EXISTS
        assert queue.get(id).payload == "hello"
        assert queue.why(id).state is State.PENDING
        assert queue.edit(id, payload="edited") is EditOutcome.EDITED
        assert queue.get(id).payload == "edited"
        before = queue.get(id).due
        assert queue.reschedule(id, "1h") is RescheduleOutcome.RESCHEDULED
        assert queue.get(id).due > before + timedelta(minutes=50)
        assert queue.cancel(id) is CancelOutcome.CANCELLED
        assert queue.get(id) is None
    assert queue.counts().living == 0


@everywhere
def test_of_an_unknown_id_all_say_so(queue):
    queue.open()
    assert queue.cancel("nobody") is CancelOutcome.GONE
    assert queue.kill("nobody") is KillOutcome.GONE
    assert queue.edit("nobody", payload=1) is EditOutcome.GONE
    assert queue.reschedule("nobody", 1) is RescheduleOutcome.GONE
    assert queue.get("nobody") is None
    assert queue.why("nobody").state is None
    with pytest.raises(NoResultError):
        queue.result("nobody", timeout=0)


def test_kill_moves_a_waiting_message_to_the_dead_letter_of_its_partition(queue):
    for id in one_of_each():
        queue.send_delay_msg("x", 60, id=id)
        assert queue.kill(id) is KillOutcome.KILLED
        assert queue.get(id).state is State.DEAD
    assert queue.counts().dead == PARTITIONS


@everywhere
def test_a_message_with_a_key_is_where_its_key_is_and_found_by_its_id(queue):
    (id,) = ids_of(0, 1)
    (key,) = ids_of(2, 1)
    queue.limits.set("m*", in_order=True)
    queue.send_delay_msg("first", 60, id=id, key=key)
    queue.send_many([NewMessage("second", id="other", delay=60, key=key)])

    assert queue.partition_of(key).name == "reminders#2"
    assert queue.get(id).payload == "first"
    assert queue.why(id).state is State.PENDING
    assert queue.edit(id, payload="edited") is EditOutcome.EDITED
    assert queue.reschedule(id, 0) is RescheduleOutcome.RESCHEDULED
    assert queue.reschedule("other", 0) is RescheduleOutcome.RESCHEDULED
    (message,) = claim(queue)  # one of a key at a time
    assert (message.id, message.payload, message.key) == (id, "edited", key)
    assert message.ack()
    (message,) = claim(queue)
    assert message.payload == "second"
    assert message.ack()
    queue.send_delay_msg("third", 60, id=id, key=key)
    assert queue.cancel(id) is CancelOutcome.CANCELLED


def test_messages_of_a_key_are_in_one_partition(queue, url):
    queue.send_many([NewMessage(n, id=f"k{n}", delay=60, key=f"account:{n % 7}") for n in range(70)])

    assert stored_at(url) == {f"k{n}": place(f"account:{n % 7}") for n in range(70)}


@everywhere
def test_messages_of_a_group_become_one(queue):
    group = {"group": "ada", "debounce": "30s", "at_most": "5m", "collect": 3}
    later = queue.send_delay_msg("later", 3600, **group)
    queue.send_delay_msg("at once", **group)
    assert queue.get(later.id).payload == "later"  # by an id that is not where it hashes to
    queue.reschedule(later.id, 0)
    queue.send_delay_msg("now", 0.001, **group)
    seen = []
    queue.callback(lambda message: seen.append((message.id, message.payload)))
    queue.run(burst=True)
    queue.reschedule("ada", 0)
    queue.run(burst=True)

    ((id, payload),) = seen
    assert (id, sorted(payload)) == ("ada", ["at once", "later", "now"])


@everywhere
def test_collected_and_debounced_sends_join_what_waits_under_their_id(queue):
    messages = [NewMessage(f"{id}{n}", id=id) for n in range(3) for id in one_of_each()]
    sent = queue.send_many(messages, debounce="30s", at_most="5m", collect=3)
    assert [one.status for one in sent] == [SendStatus.NEW] * 4 + [SendStatus.ADDED] * 8

    found = {message.id: message.payload for message in claim(queue)}

    assert found == {id: [f"{id}{n}" for n in range(3)] for id in one_of_each()}
    assert queue.send_delay_msg("a", id="d", debounce="30s").status is SendStatus.NEW
    assert queue.send_delay_msg("b", id="d", debounce="30s").status is SendStatus.REPLACED
    assert queue.get("d").payload == "b"


@everywhere
def test_run_adds_up_over_partitions(queue):
    ids = [f"m{number}" for number in range(40)]
    queue.send_many([NewMessage("x", id=id, delay=60) for id in ids[:10]])
    queue.send_many([NewMessage("x", id=id, delay=60) for id in ids], run="nightly")
    queue.send_many([NewMessage("x", id=id, delay=60) for id in ids], run="nightly")  # the same again

    (run,) = queue.runs()
    assert (run.run, run.new, run.exists, run.ended) == ("nightly", 30, 50, None)
    ended = queue.end_run("nightly", refusals=[("bad", "no such user")], refused=1)
    assert (ended.new, ended.exists, ended.refused) == (30, 50, 1)
    assert queue.runs()[0].ended is not None
    assert queue.refusals("nightly") == [("bad", "no such user")]
    assert queue.forget_run("nightly")
    assert queue.runs() == []
    assert not queue.forget_run("nightly")


@everywhere
def test_result_is_read_from_the_partition_that_has_it(queue):
    queue.callback(lambda message: message.payload * 2)
    (key,) = ids_of(3, 1)
    sent = [(id, {}) for id in one_of_each()] + [(ids_of(0, 2)[1], {"key": key})]
    for number, (id, options) in enumerate(sent):
        queue.send_delay_msg(number, id=id, retention="1h", **options)
    queue.run(burst=True)

    assert [queue.result(id, timeout=5) for id, _ in sent] == [0, 2, 4, 6, 8]
    assert queue.counts().completed == 5


def test_limit_of_a_partition_names_the_messages_that_were_not_sent(open_queue):
    queue = open_queue(partitions=PARTITIONS, max_length=3)
    full = ids_of(1, 3)
    queue.send_many([NewMessage("x", id=id, delay=60) for id in full])
    others = [ids_of(number, 1)[0] for number in (0, 2, 3)]
    refused = ids_of(1, 5)[3:]

    with pytest.raises(QueueFullError, match="reminders#1") as raised:
        queue.send_many([NewMessage("x", id=id, delay=60) for id in [*others, *refused]])

    assert set(raised.value.ids) == set(refused)
    assert all(queue.get(id) for id in others)
    with pytest.raises(QueueFullError):
        queue.send_delay_msg("x", 60, id=refused[0])


def test_wrong_messages_are_refused_before_any_is_sent(queue):
    with pytest.raises(ConfigurationError, match="id"):
        queue.send_many([NewMessage("x", id="m1"), NewMessage("x", id="no spaces")])
    with pytest.raises(ConfigurationError, match="one str"):
        queue.send_many("hello")
    assert queue.counts().living == 0
