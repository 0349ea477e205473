"""Signals that stop `run`: the first lets running callbacks finish, a further one cuts them off."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from delayq.safe_log import SafeLog
from delayq.values.text import format_duration
from delayq.values.times import Duration

log = SafeLog("delayq.consumer")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
CUT_OFF = 2
"""Signals after which running callbacks are cut off."""


@contextmanager
def handle_signals(
    handler: Callable[[int, FrameType | None], object], numbers: Iterable[signal.Signals] = STOP_SIGNALS
) -> Iterator[None]:
    """Install a handler for some signals during the block, then put the previous handlers back."""
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def first_signal_text(number: int, grace: float) -> str:
    """Return what the log says at the first signal; `grace` is in seconds."""
    name, time = signal.Signals(number).name, format_duration(grace)
    return f"{name}: finishing running callbacks for up to {time}; another signal cuts them off"


class StopSignals:
    """Stops a consumer; only in the main thread, and only at signals that Python handles in its default way.

    Handlers that the program has set stay, and so does an ignored signal.
    """

    def __init__(self, stop: Callable[[Duration | None], object], grace: float) -> None:
        """Pass the grace to `stop`: None for that of the queue, which is `grace` seconds, or 0."""
        self._stop = stop
        self._grace = grace
        self._received: list[int] = []

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals during the block; raise if callbacks were cut off."""
        with handle_signals(self._receive, _unhandled()):
            yield
        self._raise_if_cut_off()

    @contextmanager
    def handled_by_loop(self) -> Iterator[None]:
        """Handle the signals in the running event loop during the block."""
        loop, previous = asyncio.get_running_loop(), {}
        with suppress(NotImplementedError):  # some loops have no signal handlers
            for number in _unhandled():
                before = signal.getsignal(number)
                loop.add_signal_handler(number, self._receive, number)
                previous[number] = before
        try:
            yield
        finally:
            for number, before in previous.items():
                loop.remove_signal_handler(number)
                signal.signal(number, before)
        self._raise_if_cut_off()

    def _receive(self, number: int, _: object = None) -> None:
        self._received.append(number)
        self._stop(None if len(self._received) < CUT_OFF else 0)
        if len(self._received) == 1:  # a warning, which programs without logging show
            log.warning("%s", first_signal_text(number, self._grace))

    def _raise_if_cut_off(self) -> None:
        if len(self._received) >= CUT_OFF:
            raise KeyboardInterrupt if self._received[-1] == signal.SIGINT else SystemExit(1)


def _unhandled() -> list[signal.Signals]:
    """Return the signals that have their default handlers; none in another thread, which cannot handle any."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in STOP_SIGNALS if _is_default(signal.getsignal(number))]


def _is_default(handler: object) -> bool:
    """Return whether a handler is Python's, or the one for Ctrl-C that `asyncio.run` installs."""
    owner = getattr(getattr(handler, "func", None), "__self__", None)
    return handler in (signal.SIG_DFL, signal.default_int_handler) or isinstance(owner, asyncio.Runner)
