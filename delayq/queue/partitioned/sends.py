"""Sends to a partitioned queue: each message to the partition of its id, many side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delayq.broker.calls import Placing
from delayq.broker.message.ids import new_ids
from delayq.broker.requests import Outgoing, Replace
from delayq.broker.transport.failures import EpochError
from delayq.broker.transport.operation import Operation
from delayq.errors import DelayqError, NotReplicatedError, OutcomeUnknown, QueueFullError
from delayq.queue.placing.fan_out import named, side_by_side
from delayq.queue.placing.layout import by_partition, names_of
from delayq.queue.placing.partition_finding import partition_key
from delayq.queue.sending.producer import Producer, Sent, SentMany


class PartitionedSends:
    """In place of the `GroupCommit` of a queue: those of its partitions."""

    def __init__(self, queue: Any, kind: Any) -> None:
        """Send by one `kind(partition)` for each partition."""
        self._queue, self._kind = queue, kind
        self._sends: dict[str, Any] = {}

    def _of(self, key: str) -> Any:
        partition = self._queue.partition_at(key)
        return self._sends.get(partition.name) or self._sends.setdefault(partition.name, self._kind(partition))

    def send(self, outgoing: Outgoing, *, replace: Replace) -> Any:
        """Send a message."""
        queue, key = self._queue, partition_key(outgoing.id, outgoing.attributes)
        if queue.executor.opening:
            queue.open()
        while True:
            try:
                if queue.layout.growing_from is None:
                    return self._of(key).send(outgoing, replace=replace)
                return queue.executor.perform(_send_moving(queue, outgoing, key, replace))
            except EpochError:
                queue.executor.perform(queue.relocate())
            except DelayqError as error:
                raise named(error, queue.partition_of(key).name) from error.__cause__


class AsyncPartitionedSends(PartitionedSends):
    """The sends of an asyncio queue."""

    async def send(self, outgoing: Outgoing, *, replace: Replace) -> Any:
        """Send a message."""
        queue, key = self._queue, partition_key(outgoing.id, outgoing.attributes)
        if queue.executor.opening:
            await queue.open()
        while True:
            try:
                if queue.layout.growing_from is None:
                    return await self._of(key).send(outgoing, replace=replace)
                return await queue.executor.perform(_send_moving(queue, outgoing, key, replace))
            except EpochError:
                await queue.executor.perform(queue.relocate())
            except DelayqError as error:
                raise named(error, queue.partition_of(key).name) from error.__cause__


def _send_moving(queue: Any, outgoing: Outgoing, key: str, replace: Replace) -> Operation[Sent]:
    """Send a message while the number of partitions changes: what has its id moves first."""
    (own,) = yield from queue.names_for([outgoing.id], [key])
    (sent,) = yield from queue.named(own).producer.send([outgoing], replace=replace)
    return sent  # type: ignore[no-any-return]  # the producer's


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
        messages: Any = ready
        ids = list(own_ids or new_ids(len(ready))) if are_bytes else [one.id for one in messages]
        keys = ids if are_bytes else [partition_key(one.id, one.attributes) for one in messages]
        statuses: list[str] = [""] * len(ids)
        times: list[Placing] = [0] * len(ids)
        dues: list[str | int] = [0] * len(ids)
        left: Sequence[int] = range(len(ids))
        while left:
            rows = yield from self._placed(left, ids, keys)
            sends = [
                self._queue.named(name).producer.send_ready(
                    [ready[at] for at in some],
                    due,
                    retries,
                    replace=replace,
                    run=run,
                    own_ids=[ids[at] for at in some] if are_bytes else None,
                )
                for name, some in rows.items()
            ]
            results: Sequence[Any] = yield from side_by_side(sends)
            _raise_failed(results, list(rows), [[ids[at] for at in some] for some in rows.values()])
            left = []
            for some, sent in zip(rows.values(), results, strict=True):
                if isinstance(sent, EpochError):
                    left += some
                    continue
                for at, *cells in zip(some, *sent.columns, strict=True):
                    statuses[at], dues[at], times[at] = cells
            if left:
                yield from self._queue.relocate()
        return SentMany(ids, "".join(statuses), dues, times)

    def _placed(self, left: Sequence[int], ids: Sequence[str], keys: Sequence[str]) -> Operation[dict[str, list[int]]]:
        """Return the positions of messages by the name of their partition."""
        queue = self._queue
        rows: dict[str, list[int]] = {}
        if queue.layout.growing_from is None:
            names = names_of(queue.name, queue.layout.partitions)
            for number, some in by_partition([keys[at] for at in left], len(names)).items():
                rows[names[number]] = [left[at] for at in some]
            return rows
        found = yield from queue.following(lambda: queue.names_for([ids[at] for at in left], [keys[at] for at in left]))
        for at, own in zip(left, found, strict=True):
            rows.setdefault(own, []).append(at)
        return rows


def _raise_failed(results: Sequence[Any], names: Sequence[str], ids: Sequence[list[str]]) -> None:
    """Raise the first error, if there is one; it names the ids of all partitions with such an error."""
    failed = [at for at, one in enumerate(results) if isinstance(one, DelayqError) and not isinstance(one, EpochError)]
    if not failed:
        return
    error = named(results[failed[0]], names[failed[0]])
    if isinstance(error, OutcomeUnknown | QueueFullError | NotReplicatedError):
        error.ids = tuple(id for at in failed for id in getattr(results[at], "ids", ()) or ids[at])
    raise error
