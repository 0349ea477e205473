"""Sends to a partitioned queue: each message to the partition of its id, many side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delayq.broker.calls import Placing
from delayq.broker.message.ids import new_ids
from delayq.broker.requests import Outgoing, Replace
from delayq.broker.transport.operation import Operation
from delayq.errors import DelayqError, NotReplicatedError, OutcomeUnknown, QueueFullError
from delayq.queue.partitioned.fan_out import named, side_by_side
from delayq.queue.partitioned.layout import by_place, key_of
from delayq.queue.sending.producer import Producer, SentMany


class PartitionedSends:
    """In place of the `GroupCommit` of a queue: those of its partitions."""

    def __init__(self, queue: Any, kind: Any) -> None:
        """Send by one `kind(partition)` for each partition."""
        self._queue, self._kind = queue, kind
        self._sends: dict[str, Any] = {}

    def _of(self, outgoing: Outgoing) -> tuple[str, Any]:
        """Return the name of the partition of a message, and what sends to it."""
        key = key_of(outgoing.id, outgoing.attributes) if outgoing.attributes else outgoing.id
        partition = self._queue.partition_of(key)
        name = partition.name
        return name, self._sends.get(name) or self._sends.setdefault(name, self._kind(partition))

    def send(self, outgoing: Outgoing, *, replace: Replace) -> Any:
        """Send a message."""
        if self._queue.executor.opening:
            self._queue.open()
        name, sends = self._of(outgoing)
        try:
            return sends.send(outgoing, replace=replace)
        except DelayqError as error:
            raise named(error, name) from error.__cause__


class AsyncPartitionedSends(PartitionedSends):
    """The sends of an asyncio queue."""

    async def send(self, outgoing: Outgoing, *, replace: Replace) -> Any:
        """Send a message."""
        if self._queue.executor.opening:
            await self._queue.open()
        name, sends = self._of(outgoing)
        try:
            return await sends.send(outgoing, replace=replace)
        except DelayqError as error:
            raise named(error, name) from error.__cause__


class PartitionedProducer(Producer):
    """A producer that sends many messages to the partitions of their ids."""

    def __init__(self, queue: Any) -> None:
        """Encode as the queue does."""
        super().__init__(queue.context, queue.codec, queue.handlers.in_one_form)
        self.send_ready = self._spread  # type: ignore[method-assign]  # an observed producer takes it over
        self._queue = queue

    def _spread(
        self,
        ready: list[Outgoing] | list[bytes],
        due: int,
        retries: int,
        *,
        replace: Replace,
        run: str,
        own_ids: Sequence[str] | None = None,
    ) -> Operation[SentMany]:
        """Send encoded messages, each partition's in calls of their own; raises the first error, with all ids it is of.

        What other partitions have stored by then stays: send again with the same ids.
        """
        are_bytes = bool(ready) and isinstance(ready[0], bytes)
        if are_bytes:
            ids = list(own_ids or new_ids(len(ready)))
            keys = ids
        else:
            ids = [one.id for one in ready]  # type: ignore[union-attr]
            keys = [key_of(one.id, one.attributes) if one.attributes else one.id for one in ready]  # type: ignore[union-attr]
        rows = by_place(keys, self._queue.layout.partitions)
        partitions = [self._queue.partition_at(number) for number in rows]
        sends: list[Operation[SentMany]] = [
            partition.producer.send_ready(
                [ready[at] for at in some],
                due,
                retries,
                replace=replace,
                run=run,
                own_ids=[ids[at] for at in some] if are_bytes else None,
            )
            for partition, some in zip(partitions, rows.values(), strict=True)
        ]
        results: Sequence[Any] = yield from side_by_side(sends)
        _raise_failed(results, [one.name for one in partitions], [[ids[at] for at in some] for some in rows.values()])
        statuses: list[str] = [""] * len(ids)
        times: list[Placing] = [0] * len(ids)
        dues: list[str | int] = [0] * len(ids)
        for some, sent in zip(rows.values(), results, strict=True):
            for at, *cells in zip(some, *sent.columns, strict=True):
                statuses[at], dues[at], times[at] = cells
        return SentMany(ids, "".join(statuses), dues, times)


def _raise_failed(results: Sequence[Any], names: Sequence[str], ids: Sequence[list[str]]) -> None:
    """Raise the first error, if there is one; it names the ids of all partitions with such an error."""
    failed = [at for at, result in enumerate(results) if isinstance(result, DelayqError)]
    if not failed:
        return
    error = named(results[failed[0]], names[failed[0]])
    if isinstance(error, OutcomeUnknown | QueueFullError | NotReplicatedError):
        error.ids = tuple(id for at in failed for id in getattr(results[at], "ids", ()) or ids[at])
    raise error
