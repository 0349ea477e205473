"""Reading ahead: the next part is read in a thread while this one is worked on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
_END: Final = object()


def read_ahead(parts: Iterator[T]) -> Iterator[T]:
    """Yield what an iterator yields, always one ahead; it runs in one thread, and its errors are raised here."""
    with ThreadPoolExecutor(1, "delayq read-ahead") as thread:
        following = thread.submit(next, parts, _END)
        while (part := following.result()) is not _END:
            following = thread.submit(next, parts, _END)
            yield part  # type: ignore[misc]  # it is not the end
