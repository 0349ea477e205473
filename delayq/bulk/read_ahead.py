"""Reading ahead: the next part is read in a thread while this one is worked on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from threading import Thread
from typing import Any, Final, TypeVar

T = TypeVar("T")
_END: Final = object()


def read_ahead(parts: Iterator[T]) -> Iterator[T]:
    """Yield what an iterator yields, always one ahead; its errors are raised here.

    Whoever stops, or is interrupted, does not wait for what is being read: a server may take long to answer.
    """
    following = _begin(parts)
    while (part := following.result()) is not _END:
        following = _begin(parts)
        yield part


def _begin(parts: Iterator[Any]) -> Future[Any]:
    """Read the next part in a thread, which does not keep the program from ending."""
    future: Future[Any] = Future()

    def read() -> None:
        try:
            future.set_result(next(parts, _END))
        except BaseException as error:  # noqa: BLE001 - raised by who waits for it
            future.set_exception(error)

    Thread(target=read, name="delayq read-ahead", daemon=True).start()
    return future
