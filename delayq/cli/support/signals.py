"""Signal handling of long commands: the first Ctrl-C asks for an orderly stop, the second ends the command at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from delayq.cli.support.exit_codes import Exit
from delayq.queue.consuming.stop_signals import STOP_SIGNALS, handle_signals


class StopRequest:
    """Whether a stop was requested, and by which signal."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.number = 0

    def __call__(self, number: int, _: FrameType | None) -> None:
        """Handle a signal."""
        if self.event.is_set():
            raise KeyboardInterrupt
        self.number = number
        self.event.set()

    def exit_code(self, *, right: bool) -> int:
        """Return the exit code of a command: what shells use for the signal, else whether its result is right."""
        return 128 + self.number if self.number else Exit.OK if right else Exit.FAILURE


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """Yield the stop request that SIGINT, SIGTERM or SIGHUP sets during the block."""
    request = StopRequest()
    with handle_signals(request, (*STOP_SIGNALS, signal.SIGHUP)):
        yield request
