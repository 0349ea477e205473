"""The loop of a notifier: look, keep, deliver, keep."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from delayq.backoff import Backoff
from delayq.broker.calls import Calls
from delayq.broker.keys import check_name
from delayq.broker.notifier_calls import is_listed, keep_notifier, read_notifier
from delayq.broker.transport.operation import Operation
from delayq.errors import DelayqError, UnavailableError
from delayq.notify.notices import Notice, NotifierState, read_state
from delayq.notify.watch import Watched, begin, look
from delayq.outcomes import Reject, Retry, StopWorker
from delayq.text import pluralize
from delayq.times import monotonic, to_millis

if TYPE_CHECKING:
    from delayq.broker.transport.executor import Executor

log = logging.getLogger("delayq.notify")

BACKOFF = Backoff.exponential("5s", max="5m", jitter=0.2)
"""Waits after deliveries that have failed; what is to be delivered is kept as long as it takes."""

Sink = Callable[[Any], None]
"""Takes a notice; raises `Retry` or `Reject` if it does not, and `StopWorker` if it never will."""


class _Failure(NamedTuple):
    """Why a notice was not delivered, and for how many seconds to wait."""

    reason: str
    wait: float


class Notifier:
    """Tells the sinks what happens in a queue: each notice at least once, and one of each topic in `collapse`.

    What it knows is in Redis under its name, so it may be killed at any time. Only one of a name is to run at a time:
    two would tell the same.
    """

    def __init__(self, executor: Executor, calls: Calls, name: str, watched: Watched, sinks: Sequence[Sink]) -> None:
        """Nothing is read yet."""
        self._executor, self._calls, self._name = executor, calls, check_name(name, "the name of a notifier")
        self._watched, self._sinks = watched, sinks
        self._try_at = 0.0
        self._failures = self._reported = 0
        self._failure: _Failure | None = None
        self._left = 0
        self._away = self._removed = False

    def run(self, wait: Callable[[float], bool], every: float) -> None:
        """Look `every` so many seconds until `wait` returns True, also while Redis is away or a sink fails.

        Raises `DelayqError` if a sink never takes anything, and any error of Redis but that it is away.
        """
        self.turn(wait)  # at the start an error is one
        self._report()
        while not wait(every):
            try:
                self.turn(wait)
                self._report()
            except UnavailableError as error:
                if not self._away:
                    log.warning("%s; the notifier goes on once Redis is back", error)
                self._away = True
            else:
                self._away = False

    def _report(self) -> None:
        if self._failure is not None and self._failures != self._reported:
            text = "a notice could not be delivered, attempt %d: %s; trying again in %.0f s"
            log.warning(text, self._failures, self._failure.reason, self._failure.wait)
        self._reported = self._failures

    def turn(self, wait: Callable[[float], bool] = lambda _: False) -> None:
        """Look once, and deliver what is to be told now."""
        state = self._executor.perform(self._look())
        while state.outbox and monotonic() >= self._try_at and not wait(0):
            self._failure = self._deliver(state)
            if self._failure is None:
                self._failures = 0
            else:
                self._failures += 1
                self._try_at = monotonic() + self._failure.wait
            self._executor.call(keep_notifier(self._calls.keys, self._name, state.encode()))
        self._left = len(state.outbox)

    def raise_if_failed(self) -> None:
        """Raise `DelayqError` if notices could not be delivered."""
        if self._left and self._failure is not None:
            left = pluralize(self._left, "notice")
            raise DelayqError(f"{left} could not be delivered, and wait for the next run: {self._failure.reason}")

    def _look(self) -> Operation[NotifierState]:
        """Read what has happened, and keep it together with what is to be told."""
        keys, watched = self._calls.keys, self._watched
        listed, stored = yield [is_listed(watched.prefix, watched.queue), read_notifier(keys, self._name)]
        if not listed:  # it was removed, with what was kept: no key is to come back
            self._removed = True
            return NotifierState()
        if stored is None:
            state = NotifierState() if self._removed else (yield from begin(self._calls))
            yield [keep_notifier(keys, self._name, state.encode())]
        else:
            state = read_state(stored)
        more, before = True, state.encode()
        while more:
            now, more = yield from look(self._calls, state, watched)
            if not more:
                state.fill_outbox(watched.queue, now, watched.collapse)
            if (after := state.encode()) != before:
                yield [keep_notifier(keys, self._name, after)]
                before = after
        return state

    def _deliver(self, state: NotifierState) -> _Failure | None:
        """Give the first notice of the outbox to the next sink that does not have it; note in the state that it has."""
        pending = state.outbox[0]
        pending.attempts += 1
        try:
            self._sinks[pending.taken](Notice.of(self._watched.queue, pending))
        except StopWorker as error:
            raise DelayqError(str(error)) from error
        except (Retry, Reject) as error:
            delay = getattr(error, "delay", None)
            wait = BACKOFF.delay(self._failures + 1) if delay is None else to_millis(delay, "delay")
            return _Failure(str(error), wait / 1000)
        pending.taken += 1
        if pending.taken >= len(self._sinks):
            del state.outbox[0]
            log.info("delivered %s", pending.id, extra={"id": pending.id})
        return None
