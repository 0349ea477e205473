"""The breakers of a consumer: they count its outcomes, and trip or let all start again.

Workers count as soon as a callback has ended, so that nothing starts any more of what is here when a breaker trips.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from delayq.broker.context import EngineContext
from delayq.broker.replies import ClaimReply
from delayq.safe_log import SafeLog
from delayq.values.breaker import Breaker
from delayq.values.text import format_duration
from delayq.worker.delivery.disposition import DONE, Completion, Disposition
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.parts.closed_scopes import ClosedScopes
from delayq.worker.parts.part import Call, LoopPart, Stage, Turns

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


class Breakers(LoopPart):
    """Counts outcomes, and tells Redis which breakers change, before it settles what has changed them."""

    stage = Stage.SETTLE
    _turns: Turns

    def __init__(self, context: EngineContext, breakers: Mapping[str | None, Breaker], scopes: ClosedScopes) -> None:
        """Start empty, with the breakers of names; that of None is the queue's."""
        self._calls, self._queue, self._scopes = context.calls, context.queue, scopes
        self._lock = threading.Lock()
        self._windows = {name: OutcomeWindow(breaker) for name, breaker in breakers.items()}
        self._trials: dict[str, list[str | None]] = {}
        """The ids in flight that are trials, with the names whose breakers have tripped; None for the queue."""
        self._changes: dict[str | None, BreakerChange] = {}
        """The changes to send, by name."""
        scopes.closed_by.append(self._changes.keys)

    def connect(self, turns: Turns) -> None:
        """Learn to what loop they belong."""
        self._turns = turns

    def pending(self) -> bool:
        """Return whether Redis has yet to learn of a change."""
        return bool(self._changes)

    def on_claimed(self, claimed: ClaimReply, _: list[InFlightDelivery], __: float, ___: float) -> None:
        """Note which messages of a claim are trials."""
        for id, name in claimed.trials:
            self._trials.setdefault(id, []).append(name)

    def on_settling(self, completions: Sequence[Completion]) -> None:
        """Count the outcomes of those whose callbacks have not ended: they run for too long, or have not started."""
        self._count(completions, ended=False)

    def count(self, completions: Sequence[Completion]) -> None:
        """Count the outcomes of callbacks that have ended, in the thread of a worker."""
        self._count(completions, ended=True)

    def _count(self, completions: Sequence[Completion], *, ended: bool) -> None:
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
                self._scopes.close(one)

    def plan(self, _: float) -> Iterator[Call]:
        """Yield the calls that change breakers."""
        for name, change in [*self._changes.items()]:  # workers add to it
            yield self._calls.hold(name, 0, pause=change.pause), partial(self._on_changed, name, change)

    def _on_changed(self, name: str | None, change: BreakerChange, reply: str) -> None:
        with self._lock:
            if self._changes.get(name) is change:
                del self._changes[name]
        if change.pause:
            self._turns.recall()  # what has not started goes back: it is held back from its next claim on
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
