"""Where the dashboard reads: the queues at one Redis, over shared connections."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from delayq.broker.calls import Calls
from delayq.broker.keys import Keys, check_name, is_name
from delayq.broker.stored_presence import RECENT, history_call
from delayq.broker.transport.executor import open_executor
from delayq.broker.transport.operation import together
from delayq.errors import ServerError
from delayq.options import QueueOptions, read_settings
from delayq.privacy.redaction import codec_for_inspectors
from delayq.queue.control.registered import is_in_use, queue_names
from delayq.queue.inspecting.counts import Stats, stats_of
from delayq.queue.inspecting.lateness_report import lateness_of
from delayq.queue.inspecting.readings import Readings, read_queues
from delayq.queue.placing.layout import read_layout
from delayq.queue.placing.merged_stats import merged_stats
from delayq.queue.placing.partition_finding import partition_key, partition_name

if TYPE_CHECKING:
    from delayq.queue.delay_queue import DelayQueue

MAX_KEPT = 500
"""Queue objects that are kept: each checks the server at its first action only."""
MAX_READINGS = 100_000
"""Queues of which earlier readings are kept, for their rates."""
DEADLINE = 5.0
"""Seconds in which Redis has to answer."""


class Snapshot(NamedTuple):
    """What was read of all queues, or of one, at a time."""

    at: datetime
    queues: dict[str, Readings | ServerError]
    """By name; for a queue that Redis refuses to read, why."""


class QueueSource:
    """The queues with one prefix at one Redis. Thread-safe."""

    def __init__(self, options: QueueOptions, *, reveal: bool = False) -> None:
        """Take the options of a queue that say where it is; nothing is connected yet.

        What queues redact is hidden, unless `reveal`.
        """
        options = {"deadline": DEADLINE, **options}
        self.prefix = check_name(options.get("prefix", "delayq"), "prefix")
        self.executor = open_executor(options, read_settings(options))
        self._options = {name: value for name, value in options.items() if name not in ("url", "redis", "codec")}
        self._reveal = reveal
        self._readings: dict[str, Readings] = {}
        self._snapshot: Snapshot | None = None
        self._read_at = 0.0
        self._lock = threading.Lock()
        self._queues: dict[tuple[str, tuple[str, ...]], DelayQueue[Any]] = {}
        self._opening = threading.Lock()

    def queue(self, name: str) -> DelayQueue[Any] | None:
        """Return a queue in use, with payloads as bytes; None for one that is not, and for what can be no queue."""
        if not is_name(name):
            return None
        requests: list[Any] = [is_in_use(self.prefix, name), self.calls(name).redact_paths()]
        is_used, paths, layout = self.executor.perform(together([*requests, read_layout(self.prefix, name)]))
        if not is_used:
            return None
        if has_partitions := layout.layout(name) is not None:
            (paths,) = self.executor.perform(together([self.calls(layout.names(name)[0]).redact_paths()]))
        return self._opened(name, () if self._reveal else tuple(paths), has_partitions=has_partitions)

    def _opened(self, name: str, paths: tuple[str, ...], *, has_partitions: bool) -> DelayQueue[Any]:
        from delayq.queue.delay_queue import DelayQueue

        with self._opening:
            if (name, paths) not in self._queues:
                if len(self._queues) >= MAX_KEPT:
                    self._queues.clear()
                codec = codec_for_inspectors(paths)
                options: dict[str, Any] = {**self._options, "redis": self.executor.client, "codec": codec}
                if has_partitions:
                    options["partitions"] = "stored"
                self._queues[name, paths] = DelayQueue(name, **options)
            return self._queues[name, paths]

    def calls(self, name: str) -> Calls:
        """Return the calls of a queue."""
        return Calls(Keys.of(self.prefix, name))

    def calls_at(self, name: str, id: str) -> Calls:
        """Return the calls of a queue, or of its partition to which an id belongs."""
        layout = self.executor.call(read_layout(self.prefix, name)).layout(name)
        return self.calls(name if layout is None else partition_name(name, layout.partitions, partition_key(id)))

    def snapshot(self, max_age: float = 0.0) -> Snapshot:
        """Read all queues, many in a round trip; or return what was read at most `max_age` seconds ago.

        Raises `UnavailableError` if Redis does not answer.
        """
        asked = monotonic()
        with self._lock:
            if self._snapshot is None or self._read_at < asked - max_age:
                self._snapshot, self._read_at = self._read(), asked
            return self._snapshot

    def _read(self) -> Snapshot:
        snapshot = self.read(self.executor.perform(queue_names(self.prefix)))
        self._readings = {name: one for name, one in snapshot.queues.items() if isinstance(one, Readings)}
        return snapshot

    def read(self, names: Sequence[str]) -> Snapshot:
        """Read some queues alone; those that are not in use are missing."""
        found = read_queues(self.executor, names, self.calls, also=lambda calls: [history_call(calls, limit=RECENT)])
        stats = {
            name: one if isinstance(one, ServerError) else stats_of(one[0], lateness_of(one[1].hours))
            for name, one in found.items()
        }
        queues = {
            name: one if isinstance(one, ServerError) else self.noted(name, one)
            for name, one in merged_stats(stats).items()
        }
        return Snapshot(datetime.now(UTC), queues)

    def noted(self, name: str, stats: Stats) -> Readings:
        """Return the readings of a queue with this one as the last."""
        before = self._readings.get(name) or Readings()
        reading = Readings(before.stats, before.earlier)
        reading.update(stats)
        if len(self._readings) < MAX_READINGS:
            self._readings[name] = reading
        return reading

    def close(self) -> None:
        """Close the connections."""
        self.executor.close()
