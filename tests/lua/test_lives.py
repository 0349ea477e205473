"""Messages over several scripts: what a receipt is worth later; old entries make nothing early and nothing double."""

from __future__ import annotations

import pytest

from delayq.answers import Delivery
from delayq.executor import Executor
from delayq.values import Call, Failure, Outgoing, Receipt, Rejection
from tests.support.scripts import NOW, World, at, calls, observe


def send(due: int | str = 0, *, replace: bool = False) -> Call[str]:
    return calls.send([Outgoing("a", due, 3, b"A", b"")], replace=replace, max_length=None)


def next_delivery(executor: Executor, offset: int = 0) -> Delivery | None:
    """Promote and expire what is due at an offset from `NOW`, and claim one message."""
    executor.call(at(offset).pending_to_ready())
    executor.call(at(offset).unack_to_retry())
    brought = executor.call(at(offset).ready_to_unack(1, lease=1000, holder="w")).deliveries
    return brought[0] if brought else None


def receipt_of_a(executor: Executor, offset: int = 0) -> Receipt:
    delivery = next_delivery(executor, offset)
    assert delivery is not None
    assert delivery.id == "a"
    return Receipt("a", delivery.token)


def every_touch(executor: Executor, receipt: Receipt) -> str:
    """Return what everything answers that can be done with a receipt."""
    return "".join(
        executor.call(call)
        for call in (
            calls.extend([receipt], lease=5000),
            calls.nack([Failure(*receipt, 0, "boom")]),
            calls.release([receipt]),
            calls.reject([Rejection(*receipt, "r", "")]),
            calls.ack([receipt]),
        )
    )


def replaced(executor: Executor, receipt: Receipt) -> None:
    executor.call(calls.release([receipt]))
    assert executor.call(send(replace=True)) == "2"


def redriven(executor: Executor, receipt: Receipt) -> None:
    assert executor.call(calls.reject([Rejection(*receipt, "r", "")])) == "1"
    assert executor.call(calls.redrive([f"a:{receipt.token}"], retries=None)) == "1"


def collected_and_redriven(executor: Executor, receipt: Receipt) -> None:
    for _ in range(4):
        executor.call(calls.nack([Failure(*receipt, 0, "boom")]))
        if delivery := next_delivery(executor):
            receipt = Receipt("a", delivery.token)
    assert executor.call(calls.collect_garbage(limit=9, dead_max=9, dead_ttl=9, slot_ttl=9)).collected == 1
    assert executor.call(calls.redrive([f"a:{receipt.token}"], retries=None)) == "1"


def purged(executor: Executor, receipt: Receipt) -> None:
    assert executor.call(calls.purge()) == 1
    assert executor.call(send()) == "1"


def cancelled(executor: Executor, receipt: Receipt) -> None:
    executor.call(calls.release([receipt]))
    assert executor.call(calls.cancel(["a"])) == "1"
    assert executor.call(send()) == "1"


def acked(executor: Executor, receipt: Receipt) -> None:
    assert executor.call(calls.ack([receipt])) == "1"
    assert executor.call(send()) == "1"


NEW_LIFE = [replaced, redriven, collected_and_redriven, purged, cancelled, acked]


@pytest.mark.parametrize("end", NEW_LIFE)
def test_a_receipt_of_an_earlier_life_touches_nothing_of_a_later_one(executor, end):
    executor.call(send())
    old = receipt_of_a(executor)
    end(executor, old)
    assert every_touch(executor, old) == "00000"
    executor.call(calls.pending_to_ready())
    before = observe(executor)
    assert every_touch(executor, old) == "00000"
    assert observe(executor) == before
    new = receipt_of_a(executor)
    assert new.token > old.token
    before = observe(executor)
    assert every_touch(executor, old) == "00000"
    assert observe(executor) == before
    assert executor.call(calls.ack([new])) == "1"
    assert next_delivery(executor, 10_000) is None


@pytest.mark.parametrize("end", NEW_LIFE)
def test_a_new_life_is_delivered_once_whatever_was_left_of_the_earlier_one(executor, end):
    executor.call(send())
    end(executor, receipt_of_a(executor))
    delivery = next_delivery(executor)
    assert delivery is not None
    assert (delivery.attempt, delivery.retries_left) == (1, 3)
    assert next_delivery(executor) is None
    assert {
        name: count for name, count in observe(executor).meta.items() if "stale" in name or name == "backoffs"
    } == {}


def test_a_late_ack_is_won_by_the_first_to_come_and_whoever_holds_the_message_is_too_late(executor):
    executor.call(send())
    first = receipt_of_a(executor)
    second = receipt_of_a(executor, 1000)
    assert executor.call(calls.nack([Failure(*first, 0, "boom")])) == "0"
    assert executor.call(calls.ack([first])) == "1"
    assert every_touch(executor, second) == "00000"
    assert every_touch(executor, first) == "00000"
    assert observe(executor).but(meta={}) == World(wake=1)


def test_a_late_ack_ends_a_message_that_waits_again(executor):
    executor.call(send())
    first = receipt_of_a(executor)
    executor.call(at(1000).unack_to_retry())
    assert executor.call(calls.ack([first])) == "1"
    assert next_delivery(executor, 5000) is None
    assert observe(executor).but(meta={}) == World(wake=1)


def test_a_reschedule_goes_on_with_the_same_life(executor):
    executor.call(send())
    receipt = receipt_of_a(executor)
    executor.call(calls.nack([Failure(*receipt, 10, "boom")]))
    assert executor.call(calls.reschedule([("a", 5000)])) == "1"
    assert next_delivery(executor, 4999) is None
    delivery = next_delivery(executor, 5000)
    assert delivery is not None
    assert (delivery.attempt, delivery.retries_left, delivery.due) == (2, 2, NOW + 5000)
    assert executor.call(calls.ack([receipt])) == "1"


@pytest.mark.parametrize("place", ["ready", "retry"])
@pytest.mark.parametrize("means", ["reschedule", "cancel and send", "replace"])
def test_an_old_entry_makes_nothing_early_and_nothing_double(executor, place, means):
    executor.call(send())
    executor.call(calls.pending_to_ready())
    if place == "retry":
        executor.call(calls.nack([Failure(*receipt_of_a(executor), 0, "boom")]))
        executor.call(calls.unack_to_retry())
    for due in (3000, 2000, 1000):
        if means == "reschedule":
            executor.call(calls.reschedule([("a", due)]))
        elif means == "replace":
            executor.call(send(due, replace=True))
        else:
            executor.call(calls.cancel(["a"]))
            executor.call(send(due))
    assert executor.call(calls.ready_to_unack(9, lease=1, holder="w")).deliveries == []
    assert next_delivery(executor, 999) is None
    assert next_delivery(executor, 1000) is not None
    assert next_delivery(executor, 1000) is None


def test_released_and_rescheduled_again_and_again_a_message_keeps_its_retries(executor):
    executor.call(send())
    for _ in range(10):
        executor.call(calls.release([receipt_of_a(executor)]))
        executor.call(calls.reschedule([("a", 0)]))
    delivery = next_delivery(executor)
    assert delivery is not None
    assert (delivery.attempt, delivery.retries_left) == (1, 3)


def test_a_message_is_delivered_once_more_often_than_it_has_retries(executor):
    executor.call(send())
    attempts = []
    for turn in range(10):
        if delivery := next_delivery(executor, 2000 * turn):
            attempts.append((delivery.attempt, delivery.retries_left))
            if turn % 2:  # the others let their lease run out
                executor.call(at(2000 * turn).nack([Failure("a", delivery.token, 0, "boom")]))
    assert attempts == [(1, 3), (2, 2), (3, 1), (4, 0)]
    assert observe(executor).garbage == {"a"}
