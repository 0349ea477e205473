"""Reading ahead: the next part is read in a thread while this one is worked on."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from typing import Final, TypeVar

from delayq.worker.own_threads import OwnThreads

T = TypeVar("T")
_NEXT: Final = True
_LAST: Final = False
"""What the thread is told: to read a part, or that no other is wanted."""


def read_ahead(parts: Iterator[T]) -> Iterator[T]:
    """Yield what an iterator yields, always one ahead; its errors are raised here.

    Whoever stops, or is interrupted, does not wait for what is being read: a server may take long to answer.
    """
    turns: SimpleQueue[bool] = SimpleQueue()
    found: SimpleQueue[T | BaseException] = SimpleQueue()

    def read() -> None:
        while turns.get() is not _LAST:
            try:
                found.put(next(parts))
            except BaseException as error:  # noqa: BLE001 - raised by who waits for it
                found.put(error)
                return

    if OwnThreads().start(read, "delayq read-ahead") is None:  # no room: read without it
        yield from parts
        return
    try:
        # Two turns, so that the thread asks for a part as soon as it has read the one before. If it was woken for that,
        # it would have to wait for the interpreter's lock until the work on the one before is done.
        turns.put(_NEXT)
        turns.put(_NEXT)
        while not isinstance(part := found.get(), BaseException):
            yield part
            turns.put(_NEXT)
        if not isinstance(part, StopIteration):
            raise part
    finally:
        turns.put(_LAST)
