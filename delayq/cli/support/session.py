"""The connection to Redis of one command: opened on first use, shared by everything the command does."""

from __future__ import annotations

import gc
import re
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from delayq.broker.batches import batched
from delayq.broker.calls import Calls
from delayq.broker.keys import Keys, check_name, whole_name
from delayq.broker.requests import RedisCommand
from delayq.broker.stored_presence import RECENT, HoursReply, history_call
from delayq.broker.transport.operation import together
from delayq.cli.support.exit_codes import NotFoundError
from delayq.errors import ServerError
from delayq.options import QueueOptions, read_settings
from delayq.privacy.redaction import codec_for_inspectors
from delayq.queue.control.registered import is_in_use, queue_names
from delayq.queue.inspecting.counts import Stats, stats_of
from delayq.queue.inspecting.readings import MeanRates, mean_rates, read_queues, run_each
from delayq.queue.placing.layout import read_layout
from delayq.queue.placing.merged_stats import merged_stats

if TYPE_CHECKING:
    from delayq.broker.transport.executor import Executor
    from delayq.queue.delay_queue import DelayQueue


TIMEOUT = timedelta(seconds=3)
FAILOVER_TIMEOUT = timedelta(seconds=30)
MAX_SOCKET_TIMEOUT = timedelta(seconds=5)
"""After that time without a reply a command asks again: another server may be the master by then."""
_FAILS_OVER = re.compile(r"rediss?\+(sentinel|cluster)://")


class Session:
    """The Redis server and the key prefix of a command."""

    def __init__(self, url: str | None, prefix: str, timeout: timedelta | None) -> None:
        """Take the global options; nothing is connected yet.

        `timeout` limits how long to wait for Redis. By default that is short, but long enough for a failover where the
        URL names Sentinels or a cluster.
        """
        self.url = url
        self.prefix = check_name(prefix, "prefix")
        self.timeout = timeout or (FAILOVER_TIMEOUT if _FAILS_OVER.match(url or "") else TIMEOUT)
        self._partitions: dict[str, list[str]] = {}
        self.now = datetime.now(UTC)
        """The server's time once `exists` has read it, before that the local time."""

    @cached_property
    def options(self) -> QueueOptions:
        """The options of every queue that the command opens."""
        socket_timeout = min(self.timeout, MAX_SOCKET_TIMEOUT)
        options = QueueOptions(prefix=self.prefix, deadline=self.timeout, socket_timeout=socket_timeout)
        if self.url:
            options["url"] = self.url
        return options

    @property
    def shared_options(self) -> dict[str, Any]:
        """The options of queues that share the connections of the command."""
        return {**self.options, "url": None, "redis": self.executor.client}

    @cached_property
    def executor(self) -> Executor:
        """The connections, opened on first use."""
        gc.disable()  # loading redis-py creates much and leaves no garbage: without searching for it, 10 ms less
        try:
            from delayq.broker.transport.executor import open_executor
        finally:
            gc.enable()
        return open_executor(self.options, read_settings(self.options))

    def queue(self, name: str, **options: Any) -> DelayQueue[Any]:
        """Return the queue, whether or not it exists."""
        from delayq.queue.delay_queue import DelayQueue

        if len(self.partitions(name)) > 1:
            options["partitions"] = "stored"
        return DelayQueue(name, **{**self.shared_options, **options})

    def partitions(self, name: str) -> list[str]:
        """Return the names of the partitions of a queue, or its own name if it has none."""
        if name not in self._partitions:
            (layout,) = self.read(read_layout(self.prefix, name))
            self._partitions[name] = layout.names(name)
        return self._partitions[name]

    def existing_queue(self, name: str, *, reveal: bool = False) -> DelayQueue[Any]:
        """Return an existing queue, with payloads as bytes; raise `NotFoundError` if it was never used.

        What the queue redacts is hidden, unless `reveal`.
        """
        paths = self.check_queue_exists(name)
        return self.queue(name, codec="bytes" if reveal else codec_for_inspectors(paths))

    def check_queue_exists(self, name: str) -> list[str]:
        """Return which values of payloads a queue hides; raise `NotFoundError` if it was never used."""
        asked = is_in_use(self.prefix, name), self._redacted(name), read_layout(self.prefix, name)
        exists, paths, layout = self.read(*asked)
        if not exists:
            raise NotFoundError("queue", name, self.queue_names())
        first, *_ = self._partitions[name] = layout.names(name)
        if first != name:
            (paths,) = self.read(self._redacted(first))
        return list(paths)

    def _redacted(self, name: str) -> RedisCommand[Any]:
        return Calls(Keys.of(self.prefix, name)).redact_paths()

    def exists(self, request: RedisCommand[bool]) -> bool:
        """Return the reply to an existence check; also read the server's time into `now`."""
        (exists,) = self.read(request)
        return bool(exists)

    def read(self, *requests: RedisCommand[Any]) -> list[Any]:
        """Return the replies of a round trip; also read the server's time into `now`."""
        time = RedisCommand(("TIME",), lambda reply: datetime.fromtimestamp(int(reply[0]) + int(reply[1]) / 1e6, UTC))
        *replies, self.now = self.executor.perform(together([*requests, time]))
        return replies

    def queue_names(self, pattern: str = "*") -> list[str]:
        """Return the sorted names of the queues in use that match a pattern."""
        names = self.executor.perform(queue_names(self.prefix, pattern))
        used: list[str] = []
        for batch in batched(names, 500):
            replies = self.executor.run([is_in_use(self.prefix, name) for name in batch])
            # One that Redis refuses to look at is shown with the error.
            used += [name for name, reply in zip(batch, replies, strict=True) if reply is not False]
        return self._whole(used)

    def registered_names(self, pattern: str = "*") -> list[str]:
        """Return the sorted names in the registry that match a pattern: there may be no queue of some of them."""
        return self._whole(self.executor.perform(queue_names(self.prefix, pattern)))

    def _whole(self, names: list[str]) -> list[str]:
        """Return the names of queues in place of those of their partitions."""
        whole: dict[str, list[str]] = {}
        for name in names:
            whole.setdefault(whole_name(name), []).append(name)
        self._partitions |= whole
        return sorted(whole)

    def stats(self, names: list[str]) -> dict[str, Stats | ServerError]:
        """Read the stats of several queues, many in a round trip; those that are not in use are missing.

        For a queue that Redis refuses to read, such as one with a key of another type, why.
        """
        parts = [part for name in names for part in self._partitions.get(name, [name])]
        found = read_queues(self.executor, parts, lambda name: Calls(Keys.of(self.prefix, name)))
        read = {name: one if isinstance(one, ServerError) else stats_of(one[0]) for name, one in found.items()}
        return merged_stats(read)

    def mean_rates(self, names: list[str]) -> dict[str, MeanRates]:
        """Read what consumers did lately, in a round trip; queues that Redis refuses to read are missing."""
        parts = [part for name in names for part in self._partitions.get(name, [name])]
        calls = [history_call(Calls(Keys.of(self.prefix, part)), limit=RECENT) for part in parts]
        rates: dict[str, MeanRates] = {}
        for part, one in zip(parts, run_each(self.executor, calls), strict=True):
            if isinstance(one, HoursReply):
                name, found = whole_name(part), mean_rates(one)
                before = rates.get(name, MeanRates(0.0, 0.0))
                rates[name] = MeanRates(before.acked + found.acked, before.failed + found.failed)
        return rates

    def close(self) -> None:
        """Close the connections if they were opened."""
        if "executor" in self.__dict__:
            self.executor.close()
