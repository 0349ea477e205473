"""What a consumer tells of itself with each beat, as it is stored: one line of JSON.

Times are relative to the beat, in milliseconds: a reader counts them back from the server's time of it, so the clocks
of the workers do not matter. Ids of messages are told, never their payloads.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from delayq.values.times import LATEST

MAX_NAMED = 100
"""Messages that an entry names, those that have run for longest: it stays below 16 KiB."""
MAX_QUEUES = 10
"""Queues that an entry names."""
BEATS = 3
"""An entry counts for so many times the interval of its beats: a worker that has missed as many is silent."""


_Count = Annotated[int, msgspec.Meta(ge=0, le=LATEST)]
_Some = Annotated[int, msgspec.Meta(ge=1, le=LATEST)]


class WorkerEntry(msgspec.Struct):
    """What a consumer tells of itself."""

    host: str
    pid: _Count
    version: str
    queues: list[str]
    """The names of the queues that the worker serves, at most `MAX_QUEUES`."""
    served: _Count
    """How many queues the worker serves."""
    concurrency: _Count
    every: _Some
    """Milliseconds between two beats."""
    up: _Count
    """Milliseconds since the consumer has started."""
    held: _Count
    """Messages that it has claimed and not completed."""
    running: list[tuple[str, _Count]]
    """Ids of messages in its callbacks, with the milliseconds since these have started, at most `MAX_NAMED`."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerEntry).decode


def write_entry(entry: WorkerEntry) -> bytes:
    """Return an entry as it is stored."""
    return _encode(entry)


def read_entry(text: bytes) -> WorkerEntry | None:
    """Return a stored entry; None for one that another program has written."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return None
