"""The event logs of all partitions as one, in the order of their times."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from delayq.broker.transport.operation import Operation, Wait
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.inspecting.event_log import EventReader, MessageEvent
from delayq.queue.placing.fan_out import results_of, side_by_side

LOOK_EVERY = 0.2
"""Seconds between two looks at logs that have nothing new: one blocking command cannot wait for those of many slots."""


class MergedEvents:
    """Reads the logs of several partitions side by side. Offsets are those of a partition, which each event names."""

    def __init__(
        self, partitions: Sequence[Any], executor: Any, after: int | str | Mapping[int, int], *, follow: bool
    ) -> None:
        """Start after the offset of each partition, by its number; with `"now"` at the end, with 0 at the beginning."""
        numbers = range(len(partitions))
        if not (all(at in numbers for at in after) if isinstance(after, Mapping) else after in (0, "now")):
            text = "after must be 0, 'now', or the offsets of partitions by their numbers, as in {3: 1200}"
            raise ConfigurationError(f"{text}, not {short_repr(after)}")
        starts = after if isinstance(after, Mapping) else dict.fromkeys(numbers, after)
        self._names = [one.name for one in partitions]
        self._readers = [
            EventReader(one.context, executor, starts.get(number, 0), follow=follow, waits=False)
            for number, one in enumerate(partitions)
        ]
        self._executor, self._follow = executor, follow
        self._waiting: list[list[MessageEvent]] = [[] for _ in partitions]

    def next(self) -> Operation[list[MessageEvent]]:
        """Read the next events of all partitions, up to the time until which all are known."""
        empty = [
            at
            for at, reader in enumerate(self._readers)
            if not self._waiting[at] and (self._follow or not reader.ended)
        ]
        results = yield from side_by_side([self._readers[at].next() for at in empty])
        found: list[list[MessageEvent]] = results_of(results, [self._names[at] for at in empty])
        for at, events in zip(empty, found, strict=True):
            self._waiting[at] = [replace(event, partition=at) for event in events]
        ready = self._ready()
        if not ready and self._follow:
            yield Wait(LOOK_EVERY)
        return ready

    def _ready(self) -> list[MessageEvent]:
        """Return what no other partition can have anything before, as far as it has been read."""
        last = [some[-1].at for some in self._waiting if some]
        if not last:
            return []
        until = min(last)
        ready = [event for some in self._waiting for event in some if event.at <= until]
        self._waiting = [[event for event in some if event.at > until] for some in self._waiting]
        return sorted(ready, key=lambda event: event.at)  # stable: those of one partition keep their order

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to read."""
        return not self._follow and not any(self._waiting) and all(reader.ended for reader in self._readers)

    def iterate(self) -> Iterator[MessageEvent]:
        """Yield the events; the executor is a blocking one."""
        while not self.ended:
            yield from self._executor.perform(self.next())

    async def iterate_async(self) -> AsyncIterator[MessageEvent]:
        """Yield the events; the executor is an asyncio one."""
        while not self.ended:
            for event in await self._executor.perform(self.next()):
                yield event
