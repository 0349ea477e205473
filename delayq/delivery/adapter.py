"""Base class of all delivery adapters: a callback that passes a message on, and says what becomes of it if that fails.

What is not about the message is not charged to it. If its receiver takes nothing for now, that is closed for a time. If
this machine cannot hand on anything for now, callbacks wait. What no message can overcome stops the worker. The first
message that finds a receiver closed closes it for all that come later, so it is asked once.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from delayq.options import DEFAULT_BACKOFF
from delayq.safe_log import SafeLog
from delayq.values.backoff import Backoff
from delayq.values.outcomes import RateLimited, Retry, Snooze, StopWorker
from delayq.values.text import format_duration
from delayq.values.times import monotonic
from delayq.worker.delivery.message import Message

TELL_EVERY = 60.0
"""Seconds between two log lines about the same receiver at least: it may open and close again many times."""
MAX_CLOSED = 1000
"""Receivers to remember; beyond that, those that may be asked again are forgotten."""


class _Closure:
    def __init__(self) -> None:
        self.reason = ""
        self.since = self.until = 0.0
        self.times = 0
        """How often in a row; 0 since it has taken something."""
        self.told, self.told_at = False, -TELL_EVERY
        """Whether this outage was told, and when one was last told."""


class Closed(NamedTuple):
    """What became of a receiver by `Closures.close`."""

    left: float
    """Seconds for which it is closed."""
    lasts: float
    """Seconds since it was first found closed."""
    is_new: bool
    """Whether somebody should be told."""


class Closures:
    """The closed receivers of one adapter, by name; all threads share them. Times are monotonic, in seconds."""

    def __init__(self) -> None:
        """Start with none."""
        self._lock = threading.Lock()
        self._closed: dict[str, _Closure] = {}

    def find(self, name: str) -> tuple[float, str]:
        """Return for how many seconds a receiver is closed, and why; 0 if it may be asked."""
        closure = self._closed.get(name)
        return (0.0, "") if closure is None else (max(0.0, closure.until - monotonic()), closure.reason)

    def close(self, name: str, reason: str, wait: float | None, backoff: Callable[[int], float]) -> Closed:
        """Close a receiver for `wait` seconds, or without one for those that `backoff` gives for the times in a row.

        What was asked before it was closed, and is refused only now, counts as the same time.
        """
        now = monotonic()
        with self._lock:
            if len(self._closed) >= MAX_CLOSED:
                self._closed = {name: one for name, one in self._closed.items() if one.until > now}
            closure = self._closed.setdefault(name, _Closure())
            if closure.until <= now:
                closure.since = closure.since if closure.times else now
                closure.times += 1
                wait = wait or backoff(closure.times)
            closure.reason, closure.until = reason, max(closure.until, now + (wait or 0.0))
            is_new = not closure.told and now - closure.told_at >= TELL_EVERY
            if is_new:
                closure.told, closure.told_at = True, now
            return Closed(closure.until - now, now - closure.since, is_new)

    def open(self, name: str) -> bool:
        """Note that a receiver has taken something; return whether somebody should be told."""
        if name not in self._closed:
            return False
        with self._lock:
            closure = self._closed.get(name)
            if closure is None or closure.until > monotonic():  # it was asked before it was closed
                return False
            told, closure.told, closure.times = closure.told, False, 0
            return told


log = SafeLog("delayq.deliver")

HERE = "\0here"
"""Stands among the receivers for this machine."""
HERE_BACKOFF = Backoff.exponential("250ms", max="5s")
"""Waits of this machine's own troubles: most are over within a second, and nobody else is asked meanwhile."""
MAX_HELD = 3.0
"""Seconds that a callback waits for this machine; then its message goes back, as other machines may deliver it."""


class ReceiverClosedError(Exception):
    """A receiver takes nothing for now, whatever the message."""

    def __init__(self, reason: str, *, delay: float | None = None) -> None:
        """Close it for `delay` seconds, without one for the queue's `nack_delay`, longer each time in a row."""
        super().__init__(reason)
        self.delay = delay


class TroubleHereError(Exception):
    """This machine cannot hand on anything for now."""

    def __init__(self, reason: str, *, patience: float | None = None) -> None:
        """Stop the worker if that lasts for longer than `patience` seconds; None to go on for ever."""
        super().__init__(reason)
        self.patience = patience


class Adapter(ABC):
    """A callback that passes messages on. All threads of a worker share one instance."""

    closes_queue = False
    """Whether a receiver that takes nothing for now closes the whole queue, in all processes.

    Set it if all messages of the queue go to it, as `delayq worker --deliver` does. Otherwise each process asks once.
    """

    def __call__(self, message: Message[Any]) -> None:
        """Pass the message on; raises `Retry`, `Snooze`, `Reject` or `StopWorker` with the reason if that fails.

        For a `Retry` without a delay, the queue's `nack_delay` decides when the message is delivered again.
        """
        give_up_at = monotonic() + MAX_HELD
        while True:
            self._wait_for_this_machine(give_up_at)
            try:
                self.hand_on(message)
            except TroubleHereError as trouble:
                self._close_here(trouble)
                continue
            except Retry as retry:  # the consumer logs a rejection itself
                extra = {"id": message.id, "attempt": message.attempt}
                log.warning("message %s, attempt %d: retry: %s", message.id, message.attempt, retry, extra=extra)
                raise
            return

    @abstractmethod
    def hand_on(self, message: Message[Any]) -> None:
        """Pass the message on, or raise `Retry`, `Reject` or another outcome."""

    def close(self) -> None:
        """Close all connections and end all running programs."""
        return

    @property
    def _closures(self) -> Closures:
        found: Closures = vars(self).setdefault("_closed_receivers", Closures())
        return found

    @contextmanager
    def _asking(self, message: Message[Any], receiver: str = "") -> Iterator[None]:
        """Hand on to a receiver in the block, unless it is closed; '' for the only one of all messages."""
        left, reason = self._closures.find(receiver)
        if left > 0:
            raise Snooze(left, reason)
        try:
            yield
        except ReceiverClosedError as error:
            closed = self._closures.close(receiver, str(error), error.delay, partial(own_wait, message))
            if closed.is_new:
                wait = format_duration(closed.left)
                log.warning("%s: nothing is delivered there for %s", error, wait, extra={"id": message.id})
            scope = "queue" if self.closes_queue and not receiver else "message"
            raise RateLimited(closed.left, str(error), scope=scope) from error  # type: ignore[arg-type]
        if self._closures.open(receiver):
            log.info("%r takes messages again", self)

    def _works_here(self) -> None:
        """Note that this machine could do its part."""
        if self._closures.open(HERE):
            log.info("deliveries from this machine go on")

    def _wait_for_this_machine(self, give_up_at: float) -> None:
        left, reason = self._closures.find(HERE)
        if left <= 0:
            return
        time.sleep(max(0.0, min(left, give_up_at - monotonic())))
        left, reason = self._closures.find(HERE)
        if left > 0:
            raise Snooze(left, reason)

    def _close_here(self, trouble: TroubleHereError) -> None:
        closed = self._closures.close(HERE, str(trouble), None, lambda times: HERE_BACKOFF.delay(times) / 1000)
        if trouble.patience is not None and closed.lasts > trouble.patience:
            raise StopWorker(f"{trouble}, for {format_duration(closed.lasts)}") from trouble
        if closed.is_new:
            log.warning("%s; nothing is charged, trying again until it works", trouble)


def own_wait(message: Message[Any], times: int) -> float:
    """Return the seconds that the queue's `nack_delay` gives for the times in a row that something was in vain."""
    try:
        backoff = (message.delivery.policy or message.context.settings.policy).backoff
    except AttributeError:  # a notice, which no queue delivers
        backoff = DEFAULT_BACKOFF
    return max(backoff.delay(times), 1) / 1000
