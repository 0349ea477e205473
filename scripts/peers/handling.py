"""What adapters and `measuring` share: the handler and what has arrived, texts and due times, the event loop."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NoReturn, Protocol

TEXT = "x" * 62
TIMEOUT = 60.0
"""Seconds in which a worker must finish."""


class Peer(Protocol):
    """The interface of an adapter. It uses no clock except to convert a due time into a delay."""

    def __init__(self, url: str) -> None:
        """Prepare for a Redis at an address like `redis://127.0.0.1:7000/0`."""

    def send(self, texts: list[str]) -> None:
        """Send messages that are due now, one after the other."""

    def send_bulk(self, texts: list[str]) -> None:
        """Send messages that are due now, with the peer's call for many messages."""

    def send_later(self, dues: Iterable[float]) -> None:
        """Send a message with the text `text_of(due)` for each due time (seconds since 1970), one after the other."""

    def work(self) -> None:
        """Call `handled` with each message's text, or await `handled_async`; ten at a time if the peer can.

        It need not return.
        """


arrivals: list[tuple[float, str]] = []
_expected = 0
_all_handled = threading.Event()
handler_takes = 0.0
"""Seconds that the handler takes."""


def handled(text: str) -> None:
    """Record a message; this is the whole handler."""
    if handler_takes:
        time.sleep(handler_takes)
    _record(text)


async def handled_async(text: str) -> None:
    """Do the same in a task."""
    if handler_takes:
        await asyncio.sleep(handler_takes)
    _record(text)


def _record(text: str) -> None:
    arrivals.append((time.time(), text))  # atomic for all threads
    if len(arrivals) >= _expected:
        _all_handled.set()


def text_of(due: float) -> str:
    """Return a text, as long as the others, with the due time of its message."""
    return f"{due:<62.6f}"


def delay_to(due: float) -> float:
    """Return the seconds from now until a due time, 0 if it has passed."""
    return max(0.0, due - time.time())


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # faster, if it is installed
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


LOOP = _new_loop()


def on_loop(method: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a coroutine function of an adapter callable as a normal function; all share one event loop."""

    @functools.wraps(method)
    def call(*arguments: Any) -> None:
        LOOP.run_until_complete(method(*arguments))

    return call


def expect(n: int) -> None:
    """Expect so many messages in all."""
    global _expected  # noqa: PLW0603 - what is handled comes from wherever the peer calls
    _expected = n
    _all_handled.clear()


def wait_until_handled() -> None:
    """Wait until the expected messages were handled."""
    if not _all_handled.wait(TIMEOUT):
        give_up(f"{len(arrivals)} of {_expected} messages handled in {TIMEOUT:g} s")


def give_up(why: str) -> NoReturn:
    """End the process with a reason, from any thread."""
    os.write(2, f"{why}\n".encode())
    os._exit(1)
