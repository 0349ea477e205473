"""Wakes threads that sleep."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress


class ThreadSignal:
    """A signal for one thread, which may be sent from a signal handler too.

    `SimpleQueue.get` is no substitute: once its timeout has passed while an earlier item left its lock free, it waits
    for an item without any timeout, for example after the process was stopped and continued.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._sent = False

    def send(self) -> None:
        """End the sleep of the thread, or its next one."""
        if not self._sent:
            self._sent = True
            with suppress(RuntimeError):  # another thread has sent it at the same time
                self._lock.release()

    def sleep(self, seconds: float) -> None:
        """Sleep until the signal is sent, at most `seconds`; 0 or less only takes a signal that was sent."""
        if self._lock.acquire(timeout=max(seconds, 0.0)):
            self._sent = False


class ThreadSignals:
    """The signals of several threads as one, such as that of a callback's end: its place is free for any loop."""

    def __init__(self, signals: Sequence[ThreadSignal]) -> None:
        """Send all of these."""
        self._signals = signals

    def send(self) -> None:
        """End the sleep of all threads."""
        for signal in self._signals:
            signal.send()
