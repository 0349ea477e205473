"""A task queue on Redis Streams, and the relay that puts the delays of a delay queue before any stream.

`StreamQueue` is one stream and one consumer group, shared with consumers in any language; `Relay` moves the due
messages of a `DelayQueue` into a stream. See `delayq docs streams`.
"""

from delayq.streams.dead_letter import AsyncStreamDeadLetter, DeadMessage, DeadPage, StreamDeadLetter
from delayq.streams.queue import AsyncStreamQueue, StreamQueue
from delayq.streams.relay import AsyncRelay, Relay

__all__ = [
    "AsyncRelay",
    "AsyncStreamDeadLetter",
    "AsyncStreamQueue",
    "DeadMessage",
    "DeadPage",
    "Relay",
    "StreamDeadLetter",
    "StreamQueue",
]
