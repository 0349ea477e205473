"""Settlements of a consumer with breakers: they count its outcomes, and trip a breaker or let all start again.

Workers count as soon as a callback has ended, so that nothing starts any more of what is here when a breaker trips.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from delayq.breaker import Breaker
from delayq.broker.context import EngineContext
from delayq.safe_log import SafeLog
from delayq.text import format_duration
from delayq.worker.disposition import DONE, Completion, Disposition
from delayq.worker.in_flight import InFlight
from delayq.worker.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.settlements import PendingSettlements

log = SafeLog("delayq.consumer")

_FAILED = (Disposition.NACK, Disposition.REJECT)


class OutcomeWindow:
    """The last outcomes of one name, or of the queue, in this process. Times are local and monotonic, in seconds.

    Where no callback has started for half a pause, another process may have tripped the breaker: only what starts later
    counts from then on. Otherwise old failures would trip it again as soon as a trial has succeeded.
    """

    def __init__(self, breaker: Breaker) -> None:
        """Start empty."""
        self.of = breaker.of
        self.pause = breaker.pause_millis
        self._share = breaker.share
        self._outcomes: deque[bool] = deque()
        self._failed = 0
        self._since = self._last_start = 0.0

    def add(self, started: float, *, failed: bool) -> int:
        """Count the outcome of a callback that started at a time.

        If the breaker trips by it, empty the window; returns how many in it failed, else 0.
        """
        if started - self._last_start >= self.pause / 2000:
            self._since = started
            self._clear()
        if started < self._since:
            return 0
        self._last_start = max(self._last_start, started)
        self._outcomes.append(failed)
        self._failed += failed
        if len(self._outcomes) > self.of:
            self._failed -= self._outcomes.popleft()
        if len(self._outcomes) < self.of or self._failed / self.of < self._share:
            return 0
        found = self._failed
        self._clear()
        return found

    def _clear(self) -> None:
        self._failed = 0
        self._outcomes.clear()


class BreakerChange(NamedTuple):
    """What is to become of a breaker: it trips for a pause (ms), or lets all start again if that is 0; and why."""

    pause: int
    reason: str


class BreakerSettlements(PendingSettlements):
    """Pending settlements of a consumer that has breakers. What changes these is sent before the settlements."""

    _in_flight: InFlight

    def __init__(self, context: EngineContext, breakers: Mapping[str | None, Breaker], in_flight: InFlight) -> None:
        """Start empty, with the breakers of names; that of None is the queue's."""
        super().__init__(context.calls, context.settings, in_flight)
        self.count = self._count_outcomes
        self._queue = context.queue
        self._lock = threading.Lock()
        self._windows = {name: OutcomeWindow(breaker) for name, breaker in breakers.items()}
        self._trials: dict[str, list[str | None]] = {}
        """The ids in flight that are trials, with the names whose breakers have tripped; None for the queue."""
        self._changes: dict[str | None, BreakerChange] = {}
        """The changes to send, by name."""

    def __bool__(self) -> bool:
        return bool(self._changes) or super().__bool__()

    def note_trials(self, trials: Iterable[tuple[str, str | None]]) -> None:
        """Note which messages of a claim are trials."""
        for id, name in trials:
            self._trials.setdefault(id, []).append(name)

    def add(self, completions: Iterable[Completion]) -> None:
        """Add settlements, and count the outcomes of those whose callbacks have not ended: they run for too long."""
        completions = list(completions)
        self._count_outcomes(completions, ended=False)
        super().add(completions)

    def _count_outcomes(self, completions: Sequence[Completion], *, ended: bool = True) -> None:
        """Count the outcomes of callbacks that have ended, or of the others."""
        with self._lock:
            for delivery, failed, has_ended in _outcomes(completions):
                if has_ended is not ended:
                    continue
                trial_of = self._trials.pop(delivery.claimed.id, ()) if self._trials else ()
                if failed is not None:
                    self._note(delivery, trial_of, failed=failed)

    def _note(self, delivery: InFlightDelivery, trial_of: Sequence[str | None], *, failed: bool) -> None:
        started = delivery.batch.started if delivery.batch else 0.0
        name = delivery.attributes.name
        for one in (None, name) if name else (None,):
            window = self._windows.get(one)
            if window is None:
                continue
            if one in trial_of:
                change = BreakerChange(window.pause, "a trial failed") if failed else BreakerChange(0, "")
            elif found := window.add(started, failed=failed):
                change = BreakerChange(window.pause, f"{found} of the last {window.of} failed")
            else:
                continue
            self._changes[one] = change
            if change.pause:
                self._in_flight.holds.close(one)

    def settle(self) -> Iterator[tuple[Any, Callable[[str], None]]]:
        """Yield the calls that change breakers, then those that settle what is pending, each with its function."""
        for name, change in [*self._changes.items()]:  # workers add to it
            yield self._hold(name, 0, pause=change.pause), partial(self._on_changed, name, change)
        yield from super().settle()

    @property
    def _untold(self) -> Collection[str | None]:
        return {*super()._untold, *self._changes}

    def _on_changed(self, name: str | None, change: BreakerChange, reply: str) -> None:
        with self._lock:
            if self._changes.get(name) is change:
                del self._changes[name]
        if change.pause:
            self._in_flight.recalled = True  # what has not started goes back: it is held back from its next claim on
        what, fields = name or self._queue, {"queue": self._queue, "name_": name}
        if reply == "0":
            text = "%s: %s, but its breaker cannot trip: the queue has limits of too many names"
            log.warning(text, what, change.reason, extra=fields)
            return
        if reply == "1" and change.pause:
            pause = format_duration(change.pause / 1000)
            log.warning("%s: nothing of %s starts for %s", change.reason, what, pause, extra=fields)
        elif reply == "1":
            log.info("a trial succeeded: all of %s starts again", what, extra=fields)


def _outcomes(completions: Iterable[Completion]) -> Iterator[tuple[InFlightDelivery, bool | None, bool]]:
    """Yield whether each delivery has failed, and whether its callback has ended.

    It has neither failed nor succeeded (None) if that says nothing about the callback, or if this has not run.
    """
    ran: Batch | None = None
    for deliveries, disposition, _, _, took in completions:
        for delivery in deliveries:
            if took is not None:
                ran = delivery.batch
            if ran is None or delivery.batch is not ran:
                yield delivery, True if delivery.timed_out and disposition is Disposition.NACK else None, False
            elif delivery.settled:
                yield delivery, delivery.failed_by_hand, True
            elif disposition in _FAILED:
                yield delivery, None if delivery.cancel_requested else True, True
            else:
                yield delivery, False if disposition in DONE else None, True
