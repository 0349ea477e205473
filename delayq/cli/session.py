"""How one run of the command line reaches Redis: opened when it is first needed, shared by what the run does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from delayq.calls import Calls
from delayq.cli.failure import NotFound
from delayq.codec import BytesCodec
from delayq.config import QueueOptions, read_settings
from delayq.inspector import Inspector, Stats, queue_names
from delayq.keys import Keys, check_name, registry
from delayq.message import Tools
from delayq.operation import Operation, together
from delayq.values import Command

if TYPE_CHECKING:
    from delayq.executor import Executor
    from delayq.queue import DelayQueue

T = TypeVar("T")

AT_ONCE = 100
"""Queues whose counts are read in one round trip."""


class Session:
    """The Redis and the prefix that a command works with."""

    def __init__(self, url: str | None, prefix: str, timeout: timedelta) -> None:
        """Take the options before the command; nothing is connected yet. `timeout` is how long Redis is waited for."""
        self.url = url
        self.prefix = check_name(prefix, "prefix")
        self.timeout = timeout
        self.now = datetime.now(UTC)
        """The server's time, once it has been asked for."""

    @cached_property
    def options(self) -> QueueOptions:
        """The options of every queue that this run opens."""
        options = QueueOptions(prefix=self.prefix, deadline=self.timeout, socket_timeout=self.timeout)
        if self.url:
            options["url"] = self.url
        return options

    @cached_property
    def executor(self) -> Executor:
        """The connections of this run."""
        from delayq.executor import open_executor

        return open_executor(self.options, read_settings(self.options))

    def queue(self, name: str, **options: Any) -> DelayQueue[Any]:
        """Return a queue, be it used before or not."""
        from delayq.queue import DelayQueue

        merged = {**self.options, "redis": self.executor.client, **options}
        return DelayQueue(name, **merged)

    def known(self, name: str) -> DelayQueue[Any]:
        """Return a queue that has been used before, its payloads left as bytes; `NotFound` for any other."""
        if not self.there(Command(("SISMEMBER", registry(self.prefix), name), bool)):
            raise NotFound("queue", name, self.names())
        return self.queue(name, codec="bytes")

    def there(self, request: Command[bool]) -> bool:
        """Ask whether something is there, and what time it is."""
        time = Command(("TIME",), lambda answer: datetime.fromtimestamp(int(answer[0]) + int(answer[1]) / 1e6, UTC))
        asked: list[Command[Any]] = [request, time]
        is_there, self.now = self.executor.perform(together(asked))
        return bool(is_there)

    def names(self) -> list[str]:
        """Return the names of the queues in use, in order."""
        return self.executor.perform(queue_names(self.prefix))

    def stats(self, names: list[str]) -> list[Stats]:
        """Read the stats of several queues, many in one round trip."""
        settings = read_settings(self.options)
        found: list[Stats] = []
        for first in range(0, len(names), AT_ONCE):
            tools = [
                Tools(Calls(Keys.of(self.prefix, name)), settings, BytesCodec().decode)
                for name in names[first : first + AT_ONCE]
            ]
            found += self.executor.perform(_together([Inspector(one).stats() for one in tools]))
        return found

    def close(self) -> None:
        """Close the connections, if there are any."""
        if "executor" in self.__dict__:
            self.executor.close()


def _together(operations: list[Operation[T]]) -> Operation[list[T]]:
    """Return one operation out of several of a single call each."""
    calls = [next(operation) for operation in operations]
    answers = yield [call for one in calls if isinstance(one, list) for call in one]
    results = []
    for operation, answer in zip(operations, answers, strict=True):
        try:
            operation.send([answer])
        except StopIteration as end:
            results.append(end.value)
    return results
