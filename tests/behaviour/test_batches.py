"""Batches: a callback that takes a list of messages, and how each message is settled."""

from __future__ import annotations

import logging
import threading

import pytest

from delayq import Discard, Reject, Retry, Snooze, StoppedByCallbackError, StopWorker
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until

pytestmark = everywhere


def once(queue, act, payloads="abc", **options):
    """Deliver one batch to `act`, and return the state of its messages afterwards."""
    seen = []

    def work(messages):
        seen.append([message.payload for message in messages])
        return act(messages)

    queue.batch_callback(work)
    with queue:
        for payload in payloads:
            queue.send_delay_msg(payload, id=payload, **options)
        queue.run(burst=True)
        assert seen == [[*payloads]]
        return [queue.get(payload) for payload in payloads]


@pytest.fixture
def batch_queue(open_queue):
    """A queue that claims a whole batch at a time, and holds no second one."""

    def batch_queue(**options):
        return open_queue(**{"nack_delay": 60} | options)

    return batch_queue


# Registering


def test_batch_callback_decorator_returns_the_function_unchanged(queue):
    @queue.batch_callback
    def double(number):
        return 2 * number

    assert double(21) == 42


def test_batch_callback_gets_lists_of_messages_in_order(queue):
    seen = []
    queue.batch_callback(lambda messages: seen.append([message.payload for message in messages]))
    queue.send_many(range(250))

    queue.run(burst=True)

    assert [payload for batch in seen for payload in batch] == [*range(250)]
    assert max(map(len, seen)) == 100


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_batch_is_never_larger_than_most(queue, most):
    sizes = []
    queue.batch_callback(lambda messages: sizes.append(len(messages)), most=most)
    queue.send_many(range(1100))

    queue.run(burst=True)

    assert sum(sizes) == 1100
    assert max(sizes) == most
    assert queue.stats().totals["acked"] == 1100


def test_partial_batch_is_delivered_at_once(open_queue):
    seen = []
    queue = open_queue(tick=60)
    queue.batch_callback(lambda messages: seen.append([message.payload for message in messages]))
    queue.start_consume()

    for number in range(3):
        queue.send_delay_msg(number)
        wait_until(lambda number=number: len(seen) == number + 1)

    assert seen == [[0], [1], [2]]


def test_messages_of_a_batch_have_the_same_attributes_as_single_ones(open_queue):
    seen = []
    queue = open_queue(payload_type=int)
    queue.batch_callback(lambda messages: seen.extend(messages))
    queue.send_delay_msg(5, retries=2, id="m", headers={"user": "7"})

    queue.run(burst=True)

    (message,) = seen
    assert (message.id, message.payload, message.attempt, message.retries_left) == ("m", 5, 1, 2)
    assert message.headers == {"user": "7"}
    assert 0 <= message.lateness < 10


# Results of a batch


@pytest.mark.parametrize("result", [None, True, 0, "", "a text", (False, False, False)], ids=repr)
def test_any_other_return_value_of_a_batch_callback_acks_all_messages(batch_queue, result):
    queue = batch_queue()

    assert once(queue, lambda messages: result) == [None, None, None]
    assert queue.stats().totals["acked"] == 3


def test_returning_false_uses_one_retry_of_each_message(batch_queue):
    for message in once(batch_queue(), lambda messages: False, retries=3):
        assert (message.state, message.attempts, message.retries_left) == ("backoff", 1, 2)
        assert message.error == "the callback returned False"


def failures(caplog):
    """The lines of failed attempts that are tried again."""
    told = (record for record in caplog.records if record.name == "delayq.consumer")
    return [record for record in told if record.levelno == logging.WARNING]


@pytest.mark.parametrize("error", [ValueError("no database"), SystemExit(1), KeyboardInterrupt(), MemoryError()])
def test_exception_uses_one_retry_of_each_message_and_is_logged_once(batch_queue, error, caplog):
    def fail(messages):
        raise error

    messages = once(batch_queue(), fail, retries=3)

    assert [message.error for message in messages] == [f"{type(error).__name__}: {error}"] * 3
    assert [message.retries_left for message in messages] == [2, 2, 2]
    told = failures(caplog)
    assert [record.id for record in told] == ["a", "b", "c"]
    assert [record.exc_info[1] for record in told if record.exc_info] == [error]


@pytest.mark.parametrize("how", ["raised", "returned"])
@pytest.mark.parametrize(
    ("outcome", "states", "total"),
    [
        (Retry("rate limited", delay="5m"), ["backoff"] * 3, "nacked"),
        (Snooze("5m"), ["backoff"] * 3, "released"),
        (Reject("no such table"), ["dead"] * 3, "dead"),
        (Discard("over"), [None] * 3, "discarded"),
    ],
    ids=["retry", "snooze", "reject", "discard"],
)
def test_outcome_applies_to_all_messages_of_the_batch(batch_queue, outcome, states, total, how):
    def act(messages):
        if how == "raised":
            raise outcome
        return outcome

    queue = batch_queue()
    found = once(queue, act)

    assert [message and message.state for message in found] == states
    assert queue.stats().totals[total] == 3


@pytest.mark.parametrize("how", ["raised", "in a list"])
def test_stop_ends_the_consumer_and_returns_its_messages(batch_queue, how):
    def act(messages):
        if how == "raised":
            raise StopWorker("no table")
        return [None, StopWorker("no table"), StopWorker("other")]

    queue = batch_queue()
    with pytest.raises(StoppedByCallbackError, match=r"^no table$"):
        once(queue, act, retries=0)

    found = [queue.get(id) for id in "abc"]
    assert [message and (message.state, message.attempts) for message in found][1:] == [("ready", 0)] * 2
    assert (found[0] is None) == (how == "in a list")


def test_returned_list_settles_each_message_by_its_entry(batch_queue, caplog):
    entries = [
        None,
        False,
        Retry("busy", delay="1h"),
        Reject("no such user"),
        Discard("over"),
        ValueError("boom"),
        True,
    ]
    queue = batch_queue()

    found = once(queue, lambda messages: entries, payloads="abcdefg", retries=3)

    assert [message and message.state for message in found] == [
        *(None, "backoff", "backoff", "dead", None, "backoff", None)
    ]
    assert found[1].error == "the callback returned False"
    assert found[2].error == "busy"
    assert (found[2].deadline - queue.stats().at).total_seconds() > 3000
    assert found[3].reason == "no such user"
    assert found[5].error == "ValueError: boom"
    totals = queue.stats().totals
    assert (totals["acked"], totals["nacked"], totals["discarded"]) == (2, 3, 1)
    record = next(record for record in failures(caplog) if record.id == "f")
    assert record.getMessage() == f"{queue.name}: message f failed at attempt 1 and is tried again in 1m"


@pytest.mark.parametrize("result", [[], [None], [None] * 4], ids=len)
def test_returned_list_of_wrong_length_fails_all_messages(batch_queue, result, caplog):
    messages = once(batch_queue(), lambda messages: result, retries=3)

    assert [message.retries_left for message in messages] == [2, 2, 2]
    (error,) = {message.error for message in messages}
    assert error.startswith(f"TypeError: the batch callback returned a list of {len(result)} results for 3 messages: ")
    assert [record.id for record in failures(caplog)] == ["a", "b", "c"]


def test_messages_settled_by_hand_keep_their_settlement(batch_queue):
    def act(messages):
        a, b, c, _ = messages
        assert a.ack()
        assert b.nack(delay="1h", error="by hand")
        assert c.reject("by hand")
        raise ValueError("boom")

    queue = batch_queue()
    a, b, c, d = once(queue, act, payloads="abcd", retries=3)

    assert a is None
    assert (b.state, b.error, b.retries_left) == ("backoff", "by hand", 2)
    assert (c.state, c.reason) == ("dead", "by hand")
    assert (d.state, d.error, d.retries_left) == ("backoff", "ValueError: boom", 2)


def test_returned_list_has_entries_for_messages_settled_by_hand_too(batch_queue):
    def act(messages):
        messages[0].ack()
        return [False, False]

    a, b = once(batch_queue(), act, payloads="ab")

    assert a is None
    assert b.error == "the callback returned False"


def test_undecodable_message_fails_and_is_left_out_of_the_batch(open_queue):
    seen = []
    sender, queue = open_queue(), open_queue(payload_type=int)
    queue.batch_callback(lambda messages: seen.append([message.payload for message in messages]) or [None, None])
    for id, payload in {"a": 1, "b": "no number", "c": 3}.items():
        sender.send_delay_msg(payload, id=id, retries=0)

    queue.run(burst=True)

    assert seen == [[1, 3]]
    assert (queue.get("b").state, queue.get("b").attempts) == ("dead", 1)
    assert queue.get("b").reason.startswith("undecodable")
    assert queue.counts().living == 0


def test_callback_is_not_called_if_the_whole_batch_is_undecodable(open_queue):
    seen = []
    sender, queue = open_queue(), open_queue(payload_type=int)
    queue.batch_callback(seen.append)
    sender.send_many(["a", "b"], retries=0)

    queue.run(burst=True)

    assert seen == []
    assert queue.counts().dead == 2


# Running


def test_concurrency_limits_the_batches_that_run_at_once(open_queue, gate):
    running, most = [], []
    queue = open_queue(concurrency=3)

    def work(messages):
        running.append(messages)
        most.append(len(running))
        if len(most) == 3:
            gate.set()
        gate.wait(30)
        running.remove(messages)

    queue.batch_callback(work, most=5)
    queue.send_many(range(60))
    queue.run(burst=True)

    assert max(most) == 3
    assert len(most) >= 12


def test_consumer_claims_enough_messages_to_fill_every_batch(open_queue, gate):
    sizes = []
    queue = open_queue(concurrency=2, prefetch=3)
    queue.batch_callback(lambda messages: sizes.append(len(messages)) or gate.wait(30), most=10)
    queue.send_many(range(50))
    queue.start_consume()

    wait_until(lambda: queue.counts().active == 23)
    wait_until(lambda: sizes == [10, 10])


def test_stop_finishes_the_running_batch_and_releases_the_rest(open_queue, gate):
    seen = []
    queue = open_queue(prefetch=4)
    queue.batch_callback(lambda messages: seen.append(len(messages)) or gate.wait(30), most=3)
    ids = queue.send_many(range(10)).ids
    consuming = queue.start_consume()
    wait_until(lambda: seen and queue.counts().active == 7)

    consuming.stop()
    wait_until(lambda: queue.counts().ready == 7)
    gate.set()
    consuming.wait()

    left = queue.list("ready").messages
    assert [message.id for message in left] == ids[3:]
    assert {(message.attempts, message.retries_left) for message in left} == {(0, 3)}
    assert queue.stats().totals["acked"] == 3


def test_stop_returns_unsettled_messages_of_a_batch_that_exceeds_the_grace_period(open_queue, gate):
    started = threading.Event()
    queue = open_queue(nack_delay=60)

    def work(messages):
        messages[0].ack()
        started.set()
        gate.wait(30)

    queue.batch_callback(work)
    for id in "abc":
        queue.send_delay_msg("endless", id=id)
    queue.start_consume()
    assert started.wait(30)

    assert queue.stop_consume(grace="100ms")

    left = [message and (message.attempts, message.snoozes) for message in map(queue.get, "abc")]
    assert left == [None, (0, 1), (0, 1)]


@pytest.mark.long
def test_the_leases_of_a_slow_batch_are_renewed(open_queue, gate):
    deliveries = []
    queue = open_queue(lease="1s")

    def work(messages):
        deliveries.extend(message.id for message in messages)
        gate.wait(2.5)
        assert not any(message.lease_lost for message in messages)

    queue.batch_callback(work)
    ids = queue.send_many(range(20)).ids
    queue.run(burst=True)

    assert sorted(deliveries) == sorted(ids)


@pytest.mark.long
def test_hanging_batch_is_abandoned_once_and_does_not_block_its_consumer(open_queue, gate, caplog):
    seen = []
    queue = open_queue(lease="1s", max_consume_duration="300ms", concurrency=1)

    def work(messages):
        seen.append([message.payload for message in messages])
        if messages[0].payload == "poison" and messages[0].attempt == 1:
            gate.wait(30)

    queue.batch_callback(work, most=3)
    queue.send_many(["poison", "a", "b", "c", "d"])
    queue.start_consume()

    wait_until(lambda: queue.counts().living == 0)
    assert len(seen[0]) > 1
    assert {*seen[0]} < {payload for batch in seen[1:] for payload in batch} == {"poison", *"abcd"}
    abandoned = [record for record in caplog.records if "took longer than" in record.getMessage()]
    assert sorted(record.id for record in abandoned) == sorted({record.id for record in abandoned})
    assert len(abandoned) == len(seen[0])


def test_a_batch_can_be_settled_and_extended_message_by_message(open_queue):
    replies = []
    queue = open_queue()
    queue.batch_callback(lambda messages: replies.extend((m.extend("1m"), m.ack()) for m in messages))
    queue.send_many(range(3))

    queue.run(burst=True)

    assert replies == [(True, True)] * 3
    assert queue.stats().totals["acked"] == 3
