"""What the operations of one queue share: its calls, its settings and its payload decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from delayq.broker.calls import Calls
from delayq.broker.engine import EngineCalls
from delayq.broker.replies.results import ResultCodec
from delayq.options import Settings
from delayq.values.codec import JsonCodec


class EngineContext:
    """The calls, settings and payload decoder of one queue of any engine."""

    __slots__ = ("calls", "confirming", "decode", "hides", "queue", "results", "settings")

    calls: EngineCalls

    def __init__(
        self,
        calls: Any,
        settings: Settings,
        decode: Callable[[bytes], Any],
        queue: str,
        results: ResultCodec | None = None,
        *,
        hides: bool = False,
    ) -> None:
        self.queue = queue
        """The name of the queue."""
        self.calls = calls
        self.settings = settings
        self.decode = decode
        self.hides = hides
        """Whether `decode` hides what the queue redacts: then nothing is shown or searched without it."""
        self.results = results or ResultCodec(JsonCodec(), settings.max_result)
        """Encodes and decodes results and progress."""
        replicas, timeout = settings.replicas, settings.replication_timeout
        self.confirming = calls.confirm(replicas, timeout=timeout) if replicas else []
        """Requests that end a round trip which a failover must not lose; none by default."""

    def with_settings(self, settings: Settings) -> Self:
        """Return the same context with other settings."""
        return type(self)(self.calls, settings, self.decode, self.queue, self.results, hides=self.hides)


class QueueContext(EngineContext):
    """The calls, settings and payload decoder of a delay queue."""

    __slots__ = ()

    calls: Calls
