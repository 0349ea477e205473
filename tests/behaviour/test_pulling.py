"""Pulling without a callback: lease, work, settle."""

from __future__ import annotations

import threading
import time

import pytest

from delayq import ConfigurationError, Discard, Reject, Retry
from tests.behaviour.places import bring, everywhere
from tests.support.waiting import wait_until

pytestmark = everywhere


def take(queue, lease="60s", **options):
    (message,) = queue.lease(lease, n=1, **options)
    return message


def lose(queue, **options):
    """Return a message whose lease has run out and whose next delivery is held by another, and that other one."""
    queue.send_delay_msg("hello", id="m", **options)
    late = take(queue, "100ms")
    return late, take(queue, block=5)


# Leasing


def test_leaving_the_block_acks(queue):
    queue.send_delay_msg({"user": 42})

    with queue.lease("30s") as message:
        assert message.payload == {"user": 42}
        assert queue.counts().active == 1

    assert queue.counts().living == 0
    assert queue.stats().totals["acked"] == 1


def test_an_exception_in_the_block_nacks_and_goes_on(open_queue):
    queue = open_queue(nack_delay=60)
    queue.send_delay_msg("hello", retries=3, id="m")

    with pytest.raises(ValueError, match="no such user"), queue.lease():
        raise ValueError("no such user")

    message = queue.get("m")
    assert (message.state, message.retries_left, message.error) == ("backoff", 2, "ValueError: no such user")


def test_retry_in_the_block_is_obeyed_and_ends_there(queue):
    queue.send_delay_msg("hello", id="m")

    with queue.lease():
        raise Retry("rate limited", delay="5m")

    message = queue.get("m")
    assert (message.state, message.error) == ("backoff", "rate limited")


def test_reject_in_the_block_is_obeyed_and_ends_there(queue):
    queue.send_delay_msg("hello", id="m")

    with queue.lease():
        raise Reject("no such user")

    assert (queue.get("m").state, queue.get("m").reason) == ("dead", "no such user")


def test_more_than_one_call_settles_are_settled_all_the_same(queue):
    queue.send_many(range(700))

    with queue.lease(n=700):
        raise Reject("no such user")

    assert (queue.counts().living, queue.counts().dead) == (0, 700)


def test_discard_in_the_block_is_obeyed_and_ends_there(queue):
    queue.send_delay_msg("hello", id="m")

    with queue.lease():
        raise Discard

    assert queue.get("m") is None
    assert queue.stats().totals["discarded"] == 1


def test_spent_retries_lead_to_the_dead_letter(queue):
    queue.send_delay_msg("hello", retries=0, id="m")

    with pytest.raises(ValueError, match="no such user"), queue.lease():
        raise ValueError("no such user")

    message = queue.get("m")
    assert (message.state, message.reason, message.error) == ("dead", "retries spent", "ValueError: no such user")


def test_nothing_due_is_none(queue):
    queue.send_delay_msg("later", 60)

    with queue.lease() as message:
        assert message is None


def test_nothing_due_is_an_empty_list(queue):
    with queue.lease(n=10) as messages:
        assert messages == []


def test_up_to_n_messages_come_in_order_and_are_acked_together(queue):
    queue.send_many(range(5))

    with queue.lease(n=3, block=5) as messages:
        assert [message.payload for message in messages] == [0, 1, 2]

    assert queue.counts().living == 2


def test_what_was_settled_by_hand_is_left_alone(queue):
    queue.send_many([*"abc"])

    def work(a, b, _):
        assert a.ack()
        assert b.reject("no such user")
        raise ValueError("c is broken")

    with pytest.raises(ValueError, match="c is broken"), queue.lease(n=3, block=5) as messages:
        work(*messages)

    assert queue.stats().totals["acked"] == 1
    assert queue.counts().dead == 1
    assert queue.counts().backoff + queue.counts().retry == 1


def test_a_lease_is_a_sequence_of_messages_to_be_settled_by_hand(queue):
    queue.send_many(range(3))

    lease = queue.lease(n=10, block=5)

    assert len(lease) == 3
    assert [message.ack() for message in lease] == [True, True, True]
    assert queue.counts().living == 0


def test_a_lease_taken_before_its_block_is_not_taken_twice(queue):
    queue.send_many(range(4))

    lease = queue.lease(n=2, block=5)
    with lease as messages:
        assert len(messages) == 2

    assert queue.stats().totals["delivered"] == 2


def test_what_is_leased_is_not_leased_again(queue):
    queue.send_delay_msg("hello")
    take(queue)

    with queue.lease() as message:
        assert message is None


def test_a_lease_that_runs_out_costs_a_retry(queue):
    _, message = lose(queue, retries=3)

    assert (message.attempt, message.retries_left) == (2, 2)
    assert queue.get("m").error == "lease expired"


def test_a_lease_may_take_another_time_than_the_queues(queue):
    queue.send_delay_msg("hello", id="m")
    take(queue, "10m")

    assert 590 < (queue.get("m").deadline - queue.stats().at).total_seconds() <= 600


@pytest.mark.parametrize("options", [{"n": 0}, {"n": 1001}, {"n": True}, {"block": -1}, {"duration": "1ms"}])
def test_wrong_arguments_are_refused(queue, options):
    queue.send_delay_msg("hello")

    with pytest.raises(ConfigurationError):
        queue.lease(**options)

    assert queue.counts().active == 0


# Waiting


def test_waiting_ends_when_time_is_up(queue):
    began = time.monotonic()

    with queue.lease(block="200ms") as message:
        assert message is None

    assert 0.2 <= time.monotonic() - began < 10


def test_waiting_ends_when_a_message_is_sent(open_queue):
    queue, sender = open_queue(), open_queue()
    seen = []
    waiting = threading.Thread(target=lambda: seen.extend(queue.lease(n=1, block=30)))
    began = time.monotonic()
    waiting.start()

    sender.send_delay_msg("hello")

    waiting.join(10)
    assert [message.payload for message in seen] == ["hello"]
    assert time.monotonic() - began < 5


def test_waiting_ends_when_a_message_becomes_due(queue):
    queue.send_delay_msg("soon", "300ms")

    (message,) = queue.lease(n=1, block=30)

    assert message.payload == "soon"
    assert 0 <= message.lateness < 0.5


def test_waiting_ends_when_a_nack_delay_is_over(queue):
    queue.send_delay_msg("hello")
    take(queue).nack(delay="200ms")

    assert take(queue, block=30).attempt == 2


# Receipts


def test_ack_is_true_for_exactly_one_receipt(queue):
    late, message = lose(queue)

    assert [message.ack(), late.ack(), message.ack()] == [True, False, False]


def test_a_late_ack_is_accepted_if_nobody_was_faster(queue):
    late, message = lose(queue)

    assert late.ack()
    assert not message.ack()
    assert queue.get("m") is None


@pytest.mark.parametrize("state", ["pending", "ready", "retry", "backoff"])
def test_a_late_ack_takes_the_message_out_wherever_it_waits(queue, state):
    queue.send_delay_msg("hello", id="m")
    late = take(queue, "100ms")
    again = take(queue, block=5)
    if state == "pending":
        again.nack(delay=60)
        queue.reschedule("m", 60)
    elif state == "ready":
        again.release()
    elif state == "backoff":
        again.nack(delay=60)
    else:
        again.nack(delay="50ms")
        wait_until(lambda: queue.stats().at > queue.get("m").deadline)
        queue.send_delay_msg("plug", id="plug")
        assert take(queue).id == "plug"
    assert queue.get("m").state == state

    assert late.ack()
    assert queue.get("m") is None
    with queue.lease() as message:
        assert message is None


@pytest.mark.parametrize("act", ["nack", "extend", "release", "reject"])
def test_an_old_receipt_changes_nothing(queue, act):
    late, message = lose(queue)
    before = queue.get("m")

    assert getattr(late, act)(*["too late"] * (act == "reject")) is False
    assert queue.get("m") == before
    assert message.ack()


def test_a_receipt_of_an_earlier_life_touches_no_later_one(queue):
    queue.send_delay_msg("first", id="m")
    old = take(queue)
    old.nack(delay=60)
    queue.cancel("m")
    queue.send_delay_msg("second", id="m")

    assert [old.ack(), old.nack(), old.extend(), old.release(), old.reject("no")] == [False] * 5
    with queue.lease() as message:
        assert (message.payload, message.attempt) == ("second", 1)
        assert not old.ack()


def test_a_nack_waits_as_asked_and_not_less(queue):
    queue.send_delay_msg("hello")
    take(queue).nack(delay="300ms")
    began = time.monotonic()

    assert take(queue, block=5).attempt == 2
    assert time.monotonic() - began >= 0.25


def test_a_nack_keeps_its_error(queue):
    queue.send_delay_msg("hello", id="m")

    assert take(queue).nack(delay=60, error="busy")
    assert queue.get("m").error == "busy"


def test_extend_keeps_a_message_beyond_its_first_lease(queue):
    queue.send_delay_msg("hello")
    message = take(queue, "300ms")

    assert message.extend("60s")

    with queue.lease(block="500ms") as other:
        assert other is None
    assert not message.lease_lost
    assert message.ack()


def test_release_gives_a_message_back_uncharged(queue):
    queue.send_delay_msg("hello", retries=3)

    assert take(queue).release()

    message = take(queue)
    assert (message.attempt, message.retries_left) == (1, 3)


def test_what_is_released_is_first_in_line_again(queue):
    queue.send_many([*"abc"])
    first = take(queue, block=5)

    first.release()

    assert [message.payload for message in queue.lease(n=3)] == ["a", "b", "c"]


def test_reject_goes_to_the_dead_letter_with_its_reason(queue):
    bring(queue, "gone")
    queue.send_delay_msg("hello", id="m")

    assert take(queue).reject("no such user")
    assert queue.get("m").reason == "no such user"


def test_lease_lost_is_told_without_asking_redis(queue):
    queue.send_delay_msg("hello")
    message = take(queue, "200ms")
    assert not message.lease_lost

    wait_until(lambda: message.lease_lost, 2)
