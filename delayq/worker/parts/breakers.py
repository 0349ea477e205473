"""Of what a consumer starts nothing for a time: names that `RateLimited` closes, and those whose breaker trips.

Runners count as soon as a callback has ended, so that nothing starts any more of what is here when a breaker trips.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from delayq.broker.context import EngineCalls, EngineContext
from delayq.broker.replies import ClaimReply
from delayq.safe_log import SafeLog
from delayq.values.breaker import Breaker
from delayq.values.text import format_duration
from delayq.worker.delivery.disposition import DONE, Completion, Disposition
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.parts.part import Call, LoopPart, Stage, Turns


class ClosedScopes(LoopPart):
    """The names of which this consumer starts nothing that it has claimed so far; None stands for the whole queue.

    A runner closes a scope at once, before the loop knows. Redis judges what is claimed after it has been told. Tokens
    rise, so the last one from before that says what goes back. If the queue is closed, it stays in the buffer until the
    loop returns it, in its order; if a name is, runners return it. Any thread may close and ask; only the loop updates.
    """

    stage = Stage.SETTLE
    _turns: Turns | None = None

    def __init__(self, calls: EngineCalls) -> None:
        """Start with nothing closed."""
        self._calls = calls
        self.closed: dict[str | None, float] = {}
        """The last token that is closed, by scope; infinite until Redis has been told."""
        self._untold: dict[str | None, int] = {}
        """The scopes that Redis is to close, and for how long (ms)."""
        self.closed_by: list[Callable[[], Collection[str | None]]] = []
        """What else tells Redis of scopes: each returns those that it has yet to tell of."""

    def connect(self, turns: Turns) -> None:
        """Learn to what loop they belong; a lease has none."""
        self._turns = turns

    def tell(self, name: str | None, wait: int) -> None:
        """Close a scope for so long (ms), here and in Redis."""
        self._untold[name] = max(wait, self._untold.get(name, 0))
        self.close(name)

    def pending(self) -> bool:
        """Return whether Redis has yet to close one."""
        return bool(self._untold)

    def plan(self, _: float) -> Iterator[Call]:
        """Yield the calls that close scopes."""
        if self.closed and self._turns is not None:
            untold = {*self._untold}
            for names in self.closed_by:
                untold.update(names())
            if self.update(untold, self._turns.deliveries):
                self._turns.recall()
        for name, wait in self._untold.items():
            yield self._calls.close(name, wait), partial(self._on_told, name)

    def _on_told(self, name: str | None, reply: str) -> None:
        wait = self._untold.pop(name, 0)
        if name is None and self._turns is not None:
            self._turns.recall()  # what has not started goes back, in its order
        if reply == "0":
            text = "%s is not closed for %d ms, as RateLimited asks: the queue has too many limits"
            log.warning(text, name or "the queue", wait, extra={"name_": name})

    def close(self, name: str | None) -> None:
        """Start nothing more of a name, or of the queue, until Redis has been told."""
        self.closed[name] = math.inf

    def update(self, untold: Collection[str | None], in_flight: Mapping[InFlightDelivery, None]) -> bool:
        """Before a claim, keep only what is in flight now of scopes that Redis has been told of; forget what is over.

        Returns whether the queue is closed and something of it has not started: it is to go back.
        """
        tokens = [delivery.claimed.token for delivery in in_flight]
        for name, token in [*self.closed.items()]:
            if token == math.inf and name in untold:
                continue
            last = tokens[-1] if tokens and token == math.inf else token
            if tokens and tokens[0] <= last:
                self.closed[name] = last
            else:
                del self.closed[name]
        last = self.closed.get(None, 0)
        return last < math.inf and any(one.batch is None and one.claimed.token <= last for one in in_flight)

    def closes_queue(self, delivery: InFlightDelivery) -> bool:
        """Return whether a delivery must not start, nor anything before it."""
        return delivery.claimed.token <= self.closed.get(None, 0)

    def closes(self, delivery: InFlightDelivery) -> bool:
        """Return whether a delivery must not start because of its name."""
        name = delivery.attributes.name
        return bool(name) and delivery.claimed.token <= self.closed.get(name, 0)


def scope_closed(delivery: InFlightDelivery, scope: str) -> str | None:
    """Return the name that `RateLimited` closes with a scope, None for the queue; '' if it closes neither."""
    if scope == "queue":
        return None
    return delivery.attributes.name if scope == "name" else ""


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
        """Count the outcomes of callbacks that have ended, in the thread of a runner."""
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
        for name, change in [*self._changes.items()]:  # runners add to it
            yield self._calls.close(name, 0, pause=change.pause), partial(self._on_changed, name, change)

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
