"""Pulling without a callback: lease, work, settle."""

from __future__ import annotations

import threading
import time

import pytest

from delayq import ConfigurationError, Discard, Reject, Retry, Snooze, StopWorker
from tests.behaviour.places import bring, everywhere
from tests.support.waiting import wait_until

pytestmark = everywhere


def take(queue, lease="60s", **options):
    (message,) = queue.lease(lease, n=1, **options)
    return message


def lose(queue, **options):
    """Return a message whose lease has expired, and its next delivery, which is active."""
    queue.send_delay_msg("hello", id="m", **options)
    late = take(queue, "100ms")
    return late, take(queue, block=5)


# Leasing


def test_leaving_the_block_acks_the_message(queue):
    queue.send_delay_msg({"user": 42})

    with queue.lease("30s") as message:
        assert message.payload == {"user": 42}
        assert queue.counts().active == 1

    assert queue.counts().living == 0
    assert queue.stats().totals["acked"] == 1


def test_exception_in_the_block_nacks_the_message_and_is_raised(open_queue):
    queue = open_queue(nack_delay=60)
    queue.send_delay_msg("hello", retries=3, id="m")

    with pytest.raises(ValueError, match="no such user"), queue.lease():
        raise ValueError("no such user")

    message = queue.get("m")
    assert (message.state, message.retries_left, message.error) == ("backoff", 2, "ValueError: no such user")


def test_retry_in_the_block_settles_the_message_and_is_not_raised(queue):
    queue.send_delay_msg("hello", id="m")

    with queue.lease():
        raise Retry("rate limited", delay="5m")

    message = queue.get("m")
    assert (message.state, message.error) == ("backoff", "rate limited")


def test_reject_in_the_block_settles_the_message_and_is_not_raised(queue):
    queue.send_delay_msg("hello", id="m")

    with queue.lease():
        raise Reject("no such user")

    assert (queue.get("m").state, queue.get("m").reason) == ("dead", "no such user")


def test_lease_of_700_messages_is_settled_in_several_calls(queue):
    queue.send_many(range(700))

    with queue.lease(n=700):
        raise Reject("no such user")

    assert (queue.counts().living, queue.counts().dead) == (0, 700)


def test_discard_in_the_block_settles_the_message_and_is_not_raised(queue):
    queue.send_delay_msg("hello", id="m")

    with queue.lease():
        raise Discard

    assert queue.get("m") is None
    assert queue.stats().totals["discarded"] == 1


def test_message_without_retries_left_goes_to_the_dead_letter(queue):
    queue.send_delay_msg("hello", retries=0, id="m")

    with pytest.raises(ValueError, match="no such user"), queue.lease():
        raise ValueError("no such user")

    message = queue.get("m")
    assert (message.state, message.reason, message.error) == ("dead", "retries spent", "ValueError: no such user")


def test_lease_returns_none_if_no_message_is_due(queue):
    queue.send_delay_msg("later", 60)

    with queue.lease() as message:
        assert message is None


def test_lease_of_n_messages_returns_an_empty_list_if_none_is_due(queue):
    with queue.lease(n=10) as messages:
        assert messages == []


def test_lease_returns_up_to_n_messages_in_order_and_acks_them_together(queue):
    queue.send_many(range(5))

    with queue.lease(n=3, block=5) as messages:
        assert [message.payload for message in messages] == [0, 1, 2]

    assert queue.counts().living == 2


def test_messages_settled_by_hand_keep_their_settlement(queue):
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


def test_lease_without_a_block_is_a_sequence_to_settle_by_hand(queue):
    queue.send_many(range(3))

    lease = queue.lease(n=10, block=5)

    assert len(lease) == 3
    assert [message.ack() for message in lease] == [True, True, True]
    assert queue.counts().living == 0


def test_lease_taken_before_its_block_is_not_taken_twice(queue):
    queue.send_many(range(4))

    lease = queue.lease(n=2, block=5)
    with lease as messages:
        assert len(messages) == 2

    assert queue.stats().totals["delivered"] == 2


def test_leased_message_is_not_leased_again(queue):
    queue.send_delay_msg("hello")
    take(queue)

    with queue.lease() as message:
        assert message is None


def test_expired_lease_uses_one_retry(queue):
    _, message = lose(queue, retries=3)

    assert (message.attempt, message.retries_left) == (2, 2)
    assert queue.get("m").error == "lease expired"


def test_lease_duration_can_differ_from_the_default_of_the_queue(queue):
    queue.send_delay_msg("hello", id="m")
    take(queue, "10m")

    assert 590 < (queue.get("m").deadline - queue.stats().at).total_seconds() <= 600


@pytest.mark.parametrize("options", [{"n": 0}, {"n": 1001}, {"n": True}, {"block": -1}, {"duration": "1ms"}])
def test_invalid_lease_arguments_are_refused(queue, options):
    queue.send_delay_msg("hello")

    with pytest.raises(ConfigurationError):
        queue.lease(**options)

    assert queue.counts().active == 0


# Blocking


def test_blocking_lease_ends_at_its_timeout(queue):
    began = time.monotonic()

    with queue.lease(block="200ms") as message:
        assert message is None

    assert 0.2 <= time.monotonic() - began < 10


def test_blocking_lease_ends_when_a_message_is_sent(open_queue):
    queue, sender = open_queue(), open_queue()
    seen = []
    waiting = threading.Thread(target=lambda: seen.extend(queue.lease(n=1, block=30)))
    began = time.monotonic()
    waiting.start()

    sender.send_delay_msg("hello")

    waiting.join(30)
    assert [message.payload for message in seen] == ["hello"]
    assert time.monotonic() - began < 10


def test_blocking_lease_ends_when_a_message_becomes_due(queue):
    queue.send_delay_msg("soon", "300ms")

    (message,) = queue.lease(n=1, block=30)

    assert message.payload == "soon"
    assert 0 <= message.lateness < 0.5


def test_blocking_lease_ends_when_a_retry_becomes_due(queue):
    queue.send_delay_msg("hello")
    take(queue).nack(delay="200ms")

    assert take(queue, block=30).attempt == 2


# Receipts


def test_ack_is_true_for_exactly_one_receipt(queue):
    late, message = lose(queue)

    assert [message.ack(), late.ack(), message.ack()] == [True, False, False]


def test_late_ack_is_accepted_if_the_message_is_not_settled(queue):
    late, message = lose(queue)

    assert late.ack()
    assert not message.ack()
    assert queue.get("m") is None


@pytest.mark.parametrize("state", ["pending", "ready", "retry", "backoff"])
def test_late_ack_removes_the_message_from_every_waiting_state(queue, state):
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
def test_expired_receipt_cannot_nack_extend_release_or_reject(queue, act):
    late, message = lose(queue)
    before = queue.get("m")

    assert getattr(late, act)(*["too late"] * (act == "reject")) is False
    assert queue.get("m") == before
    assert message.ack()


def test_receipt_does_not_apply_to_a_message_sent_again_with_the_same_id(queue):
    queue.send_delay_msg("first", id="m")
    old = take(queue)
    old.nack(delay=60)
    queue.cancel("m")
    queue.send_delay_msg("second", id="m")

    assert [old.ack(), old.nack(), old.extend(), old.release(), old.reject("no")] == [False] * 5
    with queue.lease() as message:
        assert (message.payload, message.attempt) == ("second", 1)
        assert not old.ack()


def test_nack_waits_for_at_least_its_delay(queue):
    queue.send_delay_msg("hello")
    take(queue).nack(delay="300ms")
    began = time.monotonic()

    assert take(queue, block=5).attempt == 2
    assert time.monotonic() - began >= 0.25


def test_nack_stores_its_error(queue):
    queue.send_delay_msg("hello", id="m")

    assert take(queue).nack(delay=60, error="busy")
    assert queue.get("m").error == "busy"


def test_extend_prolongs_the_lease(queue):
    queue.send_delay_msg("hello")
    message = take(queue, "300ms")

    assert message.extend("60s")

    with queue.lease(block="500ms") as other:
        assert other is None
    assert not message.lease_lost
    assert message.ack()


def test_release_uses_no_retry(queue):
    queue.send_delay_msg("hello", retries=3)

    assert take(queue).release()

    message = take(queue)
    assert (message.attempt, message.retries_left) == (1, 3)


def test_message_released_for_later_is_delivered_after_the_delay_as_before(queue):
    queue.send_delay_msg("hello", retries=3)

    assert take(queue).release(delay=0.3)

    assert queue.counts().backoff == 1
    message = take(queue, block=5)
    assert (message.attempt, message.retries_left) == (1, 3)
    assert message.lateness >= 0.3


def test_snooze_in_the_block_settles_the_message_and_is_not_raised(queue):
    queue.send_delay_msg("hello", id="m", retries=0)

    with queue.lease():
        raise Snooze("1h")

    message = queue.get("m")
    assert (message.state, message.attempts, message.retries_left) == ("backoff", 0, 0)


def test_stop_in_the_block_returns_the_message_and_is_raised_on(queue):
    queue.send_delay_msg("hello", id="m", retries=0)

    with pytest.raises(StopWorker, match=r"^no password$"), queue.lease():
        raise StopWorker("no password")

    assert (queue.get("m").state, queue.get("m").attempts) == ("ready", 0)


def test_released_message_returns_to_the_head_of_the_queue(queue):
    queue.send_many([*"abc"])
    first = take(queue, block=5)

    first.release()

    assert [message.payload for message in queue.lease(n=3)] == ["a", "b", "c"]


def test_reject_stores_its_reason_in_the_dead_letter(queue):
    bring(queue, "gone")
    queue.send_delay_msg("hello", id="m")

    assert take(queue).reject("no such user")
    assert queue.get("m").reason == "no such user"


def test_lease_lost_becomes_true_at_the_deadline(queue):
    queue.send_delay_msg("hello")
    message = take(queue, "200ms")
    assert not message.lease_lost

    wait_until(lambda: message.lease_lost)
