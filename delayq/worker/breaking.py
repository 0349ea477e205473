"""Settlements of a consumer with breakers: they count its outcomes, and trip a breaker or let all start again."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from delayq.breaker import Breaker
from delayq.broker.attributes import Attributes
from delayq.broker.context import EngineContext
from delayq.text import format_duration
from delayq.worker.disposition import DONE, Completion, Disposition
from delayq.worker.in_flight import InFlight
from delayq.worker.message import Batch, InFlightDelivery
from delayq.worker.settlements import PendingSettlements

log = logging.getLogger("delayq.consumer")

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

    def __init__(self, context: EngineContext, breakers: Mapping[str | None, Breaker], in_flight: InFlight) -> None:
        """Start empty, with the breakers of names; that of None is the queue's."""
        super().__init__(context.calls, context.settings)
        self._queue = context.queue
        self._in_flight = in_flight
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
        """Add settlements, and count the outcomes of those whose callbacks have run."""
        completions = list(completions)
        for delivery, failed in _outcomes(completions):
            trial_of = self._trials.pop(delivery.claimed.id, ()) if self._trials else ()
            if failed is not None:
                self._note(delivery, trial_of, failed=failed)
        super().add(completions)

    def _note(self, delivery: InFlightDelivery, trial_of: Sequence[str | None], *, failed: bool) -> None:
        started = delivery.batch.started if delivery.batch else 0.0
        name = Attributes.of(delivery.claimed.attributes).name if delivery.claimed.attributes else ""
        for one in (None, name) if name else (None,):
            window = self._windows.get(one)
            if window is None:
                continue
            if one in trial_of:
                change = BreakerChange(window.pause, "a trial failed") if failed else BreakerChange(0, "")
                self._changes[one] = change
            elif found := window.add(started, failed=failed):
                self._changes[one] = BreakerChange(window.pause, f"{found} of the last {window.of} failed")

    def settle(self) -> Iterator[tuple[Any, Callable[[str], None]]]:
        """Yield the calls that change breakers, then those that settle what is pending, each with its function."""
        for name, change in self._changes.items():
            yield self._hold(name, 0, pause=change.pause), partial(self._on_changed, name, change)
        yield from super().settle()

    def _on_changed(self, name: str | None, change: BreakerChange, reply: str) -> None:
        if self._changes.get(name) is change:
            del self._changes[name]
        what, fields = name or self._queue, {"queue": self._queue, "name_": name}
        if reply == "0":
            text = "%s: %s, but its breaker cannot trip: the queue has limits of too many names"
            log.warning(text, what, change.reason, extra=fields)
            return
        if change.pause:
            self._in_flight.recalled = True  # what has not started goes back: it is held back from its next claim on
        if reply == "1" and change.pause:
            pause = format_duration(change.pause / 1000)
            log.warning("%s: nothing of %s starts for %s", change.reason, what, pause, extra=fields)
        elif reply == "1":
            log.info("a trial succeeded: all of %s starts again", what, extra=fields)


def _outcomes(completions: Iterable[Completion]) -> Iterator[tuple[InFlightDelivery, bool | None]]:
    """Yield whether each delivery has failed; None if that says nothing about the callback, or if it has not run."""
    ran: Batch | None = None
    for deliveries, disposition, _, _, took in completions:
        for delivery in deliveries:
            if took is not None:
                ran = delivery.batch
            if ran is None or delivery.batch is not ran:
                yield delivery, True if delivery.timed_out and disposition is Disposition.NACK else None
            elif delivery.settled:
                yield delivery, delivery.failed_by_hand
            elif disposition in _FAILED:
                yield delivery, None if delivery.cancel_requested else True
            else:
                yield delivery, False if disposition in DONE else None
