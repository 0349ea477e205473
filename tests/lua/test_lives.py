"""Messages over several scripts: old receipts and stale entries cause no early or duplicate delivery."""

from __future__ import annotations

import pytest

from delayq.broker.replies import ClaimedMessage
from delayq.broker.requests import Failure, Outgoing, Receipt, Rejection, Release, ScriptCall
from delayq.broker.transport.executor import Executor
from tests.support.scripts import NOW, World, at, calls, observe


def send(due: int | str = 0, *, replace: bool = False) -> ScriptCall[str]:
    return calls.send([Outgoing("a", due, 3, b"A", b"")], replace=replace, max_length=None)


def next_delivery(executor: Executor, offset: int = 0) -> ClaimedMessage | None:
    """Promote and expire what is due at an offset from `NOW`, and claim one message."""
    executor.call(at(offset).pending_to_ready())
    executor.call(at(offset).unack_to_retry())
    brought = executor.call(at(offset).ready_to_unack(1, lease=1000, consumer_id="w")).messages
    return brought[0] if brought else None


def receipt_of_a(executor: Executor, offset: int = 0) -> Receipt:
    delivery = next_delivery(executor, offset)
    assert delivery is not None
    assert delivery.id == "a"
    return Receipt("a", delivery.token)


def every_touch(executor: Executor, receipt: Receipt) -> str:
    """Return the replies of all calls that take a receipt."""
    return "".join(
        executor.call(call)
        for call in (
            calls.extend([receipt], lease=5000),
            calls.nack([Failure(*receipt, 0, "boom")]),
            calls.release([Release(*receipt)]),
            calls.reject([Rejection(*receipt, "r", "")]),
            calls.ack([receipt]),
        )
    )


def replaced(executor: Executor, receipt: Receipt) -> None:
    executor.call(calls.release([Release(*receipt)]))
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
    executor.call(calls.release([Release(*receipt)]))
    assert executor.call(calls.cancel(["a"])) == "1"
    assert executor.call(send()) == "1"


def killed(executor: Executor, receipt: Receipt) -> None:
    executor.call(calls.release([Release(*receipt)]))
    assert executor.call(calls.kill(["a"])) == "1"
    assert executor.call(calls.redrive([f"a:{receipt.token}"], retries=None)) == "1"


def acked(executor: Executor, receipt: Receipt) -> None:
    assert executor.call(calls.ack([receipt])) == "1"
    assert executor.call(send()) == "1"


NEW_LIFE = [replaced, redriven, collected_and_redriven, purged, cancelled, killed, acked]


@pytest.mark.parametrize("end", NEW_LIFE)
def test_receipt_does_not_apply_to_a_later_message_with_the_same_id(executor, end):
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
def test_message_sent_again_is_delivered_once_despite_old_entries(executor, end):
    executor.call(send())
    end(executor, receipt_of_a(executor))
    delivery = next_delivery(executor)
    assert delivery is not None
    assert (delivery.attempt, delivery.retries_left) == (1, 3)
    assert next_delivery(executor) is None
    assert {
        name: count for name, count in observe(executor).meta.items() if "stale" in name or name == "backoffs"
    } == {}


def test_first_late_ack_wins_over_the_current_consumer(executor):
    executor.call(send())
    first = receipt_of_a(executor)
    second = receipt_of_a(executor, 1000)
    assert executor.call(calls.nack([Failure(*first, 0, "boom")])) == "0"
    assert executor.call(calls.ack([first])) == "1"
    assert every_touch(executor, second) == "00000"
    assert every_touch(executor, first) == "00000"
    assert observe(executor).but(meta={}) == World(wake=1)


def test_late_ack_settles_a_message_that_waits_again(executor):
    executor.call(send())
    first = receipt_of_a(executor)
    executor.call(at(1000).unack_to_retry())
    assert executor.call(calls.ack([first])) == "1"
    assert next_delivery(executor, 5000) is None
    assert observe(executor).but(meta={}) == World(wake=1)


def test_reschedule_keeps_attempts_retries_and_receipts(executor):
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
def test_stale_entry_causes_no_early_or_duplicate_delivery(executor, place, means):
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
    assert executor.call(calls.ready_to_unack(9, lease=1, consumer_id="w")).messages == []
    assert next_delivery(executor, 999) is None
    assert next_delivery(executor, 1000) is not None
    assert next_delivery(executor, 1000) is None


def test_releases_and_reschedules_use_no_retries(executor):
    executor.call(send())
    for _ in range(10):
        executor.call(calls.release([Release(*receipt_of_a(executor))]))
        executor.call(calls.reschedule([("a", 0)]))
    delivery = next_delivery(executor)
    assert delivery is not None
    assert (delivery.attempt, delivery.retries_left) == (1, 3)


def test_message_is_delivered_once_more_than_its_retries(executor):
    executor.call(send())
    attempts = []
    for turn in range(10):
        if delivery := next_delivery(executor, 2000 * turn):
            attempts.append((delivery.attempt, delivery.retries_left))
            if turn % 2:  # the other leases expire
                executor.call(at(2000 * turn).nack([Failure("a", delivery.token, 0, "boom")]))
    assert attempts == [(1, 3), (2, 2), (3, 1), (4, 0)]
    assert observe(executor).garbage == {"a"}
