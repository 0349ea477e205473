"""Sends tables of messages as part of a run.

They are sent in batches, each stored as a whole or not at all. They may be sent again, completely or in part: an id is
stored once while its message lives and within the queue's dedupe window, and the run ledger in Redis counts the outcome
of every message sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from delayq.broker.batches import BATCH_BYTES, byte_slices
from delayq.broker.calls import SPENT, SendStatuses
from delayq.broker.context import QueueContext
from delayq.broker.requests import Outgoing, OutgoingTable, ScriptCall
from delayq.bulk.connection import TargetQueue, connect, context_of, partitions_of
from delayq.bulk.load_options import LoadOptions
from delayq.errors import DelayqError
from delayq.queue.placing.layout import by_partition
from delayq.queue.placing.partition_finding import partition_key
from delayq.queue.sending.send_calls import send_spent
from delayq.queue.sweeps.bulk_runs import MAX_REFUSALS
from delayq.values.times import monotonic

CALLS_PER_ROUND_TRIP = 50
"""The server works on the first calls while the last are being packed."""


class Refusal(NamedTuple):
    """A row that cannot become a message: its index in the batch, its id, and the error."""

    row: int
    id: str
    error: DelayqError


class RateLimiter:
    """Limits a sender to a number of rows per second, counted from its first row."""

    def __init__(
        self, rate: float, *, clock: Callable[[], float] = monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Allow `rate` rows per second; `clock` must be monotonic."""
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def wait(self, rows: int) -> None:
        """Wait until `rows` rows may be sent."""
        now = self._clock()
        if now < self._free_at:
            self._sleep(self._free_at - now)
        # Idle time is not made up for: that would send a burst to the server.
        self._free_at = max(now, self._free_at) + rows / self._rate


class TableSender:
    """Sends messages, and keeps an account of those that were refused before."""

    def __init__(self, target: TargetQueue, options: LoadOptions, run: str) -> None:
        """Send as part of a run."""
        self._target = target
        self._options = options
        self._run = run
        self._contexts = [context_of(one) for one in partitions_of(target)]
        """Of each partition, or of the queue."""
        self._executor = connect(target)
        rate = options.max_rows_per_second
        self._limiter = RateLimiter(rate) if rate else None
        self._batch_size = min(options.batch_size, max(1, int(rate))) if rate else options.batch_size
        self.rows = 0
        """Rows that were sent."""
        self.refused = 0
        """Rows that were not sent because they are invalid."""
        self.refusals: list[tuple[str, str]] = []
        """Id and reason of the first of them."""

    def send_tables(self, tables: Iterable[OutgoingTable]) -> None:
        """Send messages, many in one round trip.

        `tables` may be a generator that does not fail: it makes the later ones while the server works on the first.
        """
        parts = chain.from_iterable(map(self._parts, tables))
        calls_per_round_trip = 1 if self._limiter else CALLS_PER_ROUND_TRIP
        for first in parts:
            if self._limiter:
                self._limiter.wait(len(first[1].ids))
            self._send_together(chain([first], islice(parts, calls_per_round_trip - 1)))

    def _parts(self, messages: OutgoingTable) -> Iterator[tuple[QueueContext, OutgoingTable]]:
        """Yield what one call sends, and where."""
        for context, table in self._placed(messages):
            for part in byte_slices(list(map(len, table.payloads)), BATCH_BYTES, self._batch_size):
                yield context, OutgoingTable._make(column[part] for column in table)

    def _placed(self, messages: OutgoingTable) -> Iterator[tuple[QueueContext, OutgoingTable]]:
        """Yield the messages of each partition."""
        if len(self._contexts) == 1:
            yield self._contexts[0], messages
            return
        keys = list(map(partition_key, messages.ids, messages.attributes))
        for number, rows in by_partition(keys, len(self._contexts)).items():
            yield self._contexts[number], OutgoingTable._make([column[at] for at in rows] for column in messages)

    def refuse(self, refusals: list[Refusal], name_row: Callable[[int], str]) -> None:
        """Count the rows of a batch that are invalid, or raise the error of the first; `name_row` names its place."""
        if self._options.on_error == "fail":
            first, more = refusals[0], len(refusals) - 1
            id = f" (id {first.id!r:.140})" if first.id else ""
            others = f"; {more} more in its batch" if more else ""
            raise type(first.error)(
                f"{name_row(first.row)}{id}: {first.error}{others};"
                f" no row of this batch was sent: set {self._options.setting('on_error', 'collect')} to send the"
                " valid ones"
            )
        self.refused += len(refusals)
        free = MAX_REFUSALS - len(self.refusals)
        self.refusals += [(one.id, str(one.error)) for one in refusals[:free]]

    def _send_together(self, parts: Iterable[tuple[QueueContext, OutgoingTable]]) -> None:
        replace, run = self._options.on_conflict == "replace", self._run
        sent: list[tuple[QueueContext, OutgoingTable]] = []

        def calls() -> Iterator[ScriptCall[SendStatuses]]:
            for context, part in parts:
                sent.append((context, part))
                yield context.calls.send(part, replace=replace, max_length=None, run=run)

        replies = self._executor.run(calls())
        for (context, part), reply in zip(sent, replies, strict=True):
            if isinstance(reply, DelayqError):
                raise reply
            statuses = reply
            if SPENT in statuses:
                rows = list(map(Outgoing._make, zip(*part, strict=True)))
                statuses, _ = self._executor.perform(
                    send_spent(context, rows, statuses, [0] * len(rows), replace=replace, run=run)
                )
            if self._options.on_conflict == "fail":
                self._expect_new(part.ids, statuses)
            self.rows += len(statuses)

    def _expect_new(self, ids: Sequence[str], statuses: str) -> None:
        existing = [(id, status) for id, status in zip(ids, statuses, strict=True) if status != "1"]
        if existing:
            id, status = existing[0]
            state = "was settled within the dedupe window of" if status == "5" else "already exists in"
            fail, skip = (self._options.setting("on_conflict", value) for value in ("fail", "skip"))
            raise DelayqError(
                f"id {id!r} {state} queue {self._target.queue}, which {fail} does not allow; messages stored so far"
                f" stay; write the table again with {skip} to add only the rest"
            )
