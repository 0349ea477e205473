"""What Ctrl-C and its like do to a long command: the first asks it to stop in order, the next ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Whether a stop was asked for, and by which signal."""

    def __init__(self) -> None:
        """No stop has been asked for."""
        self.event = threading.Event()
        self.number = 0

    def __call__(self, number: int, _: FrameType | None) -> None:
        """Take a signal."""
        if self.event.is_set():
            raise KeyboardInterrupt
        self.number = number
        self.event.set()


@contextmanager
def interruption() -> Iterator[Interruption]:
    """Take the signals while a command runs."""
    made = Interruption()
    before = {number: signal.signal(number, made) for number in _STOPPING}
    try:
        yield made
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
