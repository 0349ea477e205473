"""From rows to Redis: the operation that does what rows of one queue say, without any database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from delayq.broker.batches import BATCH, BATCH_BYTES, byte_slices
from delayq.broker.calls import SPENT
from delayq.broker.context import QueueContext
from delayq.broker.requests import OutgoingTable
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError
from delayq.options import DEDUPE_MAX
from delayq.outbox.rows import CANCEL, REPLACE, RESCHEDULE, SEND, TakenRow
from delayq.queue.placing.fan_out import results_of, side_by_side
from delayq.queue.placing.partition_finding import partition_key
from delayq.queue.sending.producer import Producer, SendStatus
from delayq.queue.sending.send_calls import send_call, send_spent
from delayq.queue.sweeps.cancellation import CancelOutcome, RescheduleOutcome, cancel, cancel_each, reschedule_each
from delayq.safe_log import SafeLog

log = SafeLog("delayq.outbox")

DEDUPE_WINDOW = 86_400_000
"""Milliseconds for which a queue without a dedupe window remembers ids: a relay that crashed sends again by then."""


def first_of_each_id(rows: Iterable[TakenRow]) -> list[TakenRow]:
    """Return the rows that can be done together: of each id the first.

    So a crash repeats at most one operation of an id, and that changes nothing: what was sent exists or is settled,
    what was cancelled is gone. The others come with the next batch.
    """
    found: dict[str, TakenRow] = {}
    for row in rows:
        found.setdefault(row.id, row)
    return list(found.values())


def move(queue: Any, rows: Sequence[TakenRow], now: int) -> Operation[None]:
    """Do what rows of one queue say, each of another id; `now` is the database's time (ms) at which they were read.

    Once it returns, all is done. If it raises, some may be: done again, they change nothing.
    """
    unknown = {row.operation for row in rows} - {SEND, REPLACE, CANCEL, RESCHEDULE}
    if unknown:
        raise ConfigurationError(f"a newer delayq wants to {', '.join(sorted(unknown))}: this relay cannot")
    if hasattr(queue, "partitions"):
        return _over_partitions(queue, rows, now)
    return _into(queue, rows, now)


def _over_partitions(queue: Any, rows: Sequence[TakenRow], now: int) -> Operation[None]:
    """Send each message to its partition, and look for what is changed where it belongs, then in the others."""
    sends = [row for row in rows if row.operation in (SEND, REPLACE)]
    ids, keys = [row.id for row in sends], [partition_key(row.id, bytes(row.attributes)) for row in sends]

    def send() -> Operation[Any]:
        names = yield from queue.names_for(ids, keys)
        parts: dict[str, list[TakenRow]] = {}
        for row, name in zip(sends, names, strict=True):
            parts.setdefault(name, []).append(row)
        moved = yield from side_by_side([_into(queue.named(name), some, now) for name, some in parts.items()])
        return results_of(moved, list(parts))

    yield from queue.following(send)
    changes = [row for row in rows if row.operation in (CANCEL, RESCHEDULE)]

    def change() -> Operation[Any]:
        changed = yield from side_by_side([_change(queue, row, now) for row in changes])
        return results_of(changed, [queue.name] * len(changed))

    yield from queue.following(change)


def _change(queue: Any, row: TakenRow, now: int) -> Operation[Any]:
    """Cancel or reschedule a message, whichever partition has it."""
    if row.operation == CANCEL:
        return queue.at_own(row.id, lambda one: cancel(one.context, row.id), CancelOutcome.GONE.__eq__)  # type: ignore[no-any-return]
    due = row.due_at(now)

    def reschedule(one: Any) -> Operation[RescheduleOutcome]:
        (outcome,) = yield from reschedule_each(one.context, [row.id], due)
        return outcome

    return queue.at_own(row.id, reschedule, RescheduleOutcome.GONE.__eq__)  # type: ignore[no-any-return]


def _into(queue: Any, rows: Sequence[TakenRow], now: int) -> Operation[None]:
    """Do what rows say in one queue, or in one partition."""
    context: QueueContext = queue.context
    producer: Producer = queue.producer
    window = context.calls.default_dedupe_window(DEDUPE_WINDOW, DEDUPE_MAX)
    sends = [row for row in rows if row.operation == SEND]
    calls = [send_call(context, _table(sends[some], now), replace=False) for some in _slices(sends)]
    replies = (yield [window, *calls, *context.confirming])[1 : 1 + len(calls)]
    if any(SPENT in statuses for statuses in replies):
        times = [time for reply in replies for time in reply.placings]
        messages = [row.outgoing(now) for row in sends]
        yield from send_spent(context, messages, "".join(replies), times, replace=False)
    replaces = [row for row in rows if row.operation == REPLACE]
    for some in _slices(replaces):
        sent = yield from producer.send([row.outgoing(now) for row in replaces[some]], replace=True)
        running = [one.id for one in sent if one.status is SendStatus.RUNNING]
        if running:
            log.warning("%s: %s run already, so that they were not replaced", context.queue, ", ".join(running))
    cancelled = [row.id for row in rows if row.operation == CANCEL]
    if cancelled:
        yield from cancel_each(context, cancelled, running=False)
    for row in rows:
        if row.operation == RESCHEDULE:
            yield from reschedule_each(context, [row.id], row.due_at(now))


def _slices(rows: Sequence[TakenRow]) -> Iterable[slice]:
    return byte_slices([len(row.payload) for row in rows], BATCH_BYTES, BATCH)


def _table(rows: Sequence[TakenRow], now: int) -> OutgoingTable:
    """Return the messages of rows by columns, which is faster than one by one."""
    _, ids, _, _, retries, payloads, headers, attributes, _ = zip(*rows, strict=True)
    texts = ([bytes(text) for text in column] for column in (payloads, headers, attributes))  # some drivers have views
    return OutgoingTable(ids, [row.due_at(now) for row in rows], retries, *texts)
