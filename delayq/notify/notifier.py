"""The loop of a notifier: look, keep, deliver, keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from delayq.broker.calls import Calls
from delayq.broker.keys import Keys, check_name
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.operation import Operation
from delayq.errors import DelayqError, UnavailableError
from delayq.notify.notices import Notice, NotifierState, Pending, read_state
from delayq.notify.watch import Watched, begin, look
from delayq.queue.consuming.loaded import load_all
from delayq.queue.control.registered import is_in_use
from delayq.queue.placing.layout import read_layout
from delayq.safe_log import SafeLog
from delayq.values.backoff import Backoff
from delayq.values.outcomes import Outcome, Reject, StopWorker
from delayq.values.text import pluralize
from delayq.values.times import monotonic, to_millis

if TYPE_CHECKING:
    from delayq.broker.transport.executor import Executor

log = SafeLog("delayq.notify")

BACKOFF = Backoff.exponential("5s", max="5m", jitter=0.2)
"""Waits after deliveries that have failed; what is to be delivered is kept as long as it takes."""


class Sink:
    """Where notices go: a name, which stays the same over restarts, and what takes a notice.

    `take` raises `Reject` if it refuses this notice for good, `StopWorker` if it never takes any, and `Retry` or any
    other exception if it may take it later.
    """

    def __init__(self, name: str, take: Callable[[Any], None]) -> None:
        """It has not failed yet."""
        self.name, self.take = name, take
        self.failures = 0
        """Failures since it last took a notice."""
        self.reason = ""
        """Why it failed last, '' once it takes notices again."""
        self.try_at = 0.0
        """When to try again, in monotonic seconds."""

    def failed(self, reason: str, delay: int | None, now: float) -> None:
        """Note a failure, and wait for `delay` ms or for the next step of the backoff."""
        self.failures += 1
        wait = (BACKOFF.delay(self.failures) if delay is None else delay) / 1000
        self.reason, self.try_at = reason, now + wait
        text = "%s did not take a notice, attempt %d: %s; trying again in %.0f s"
        log.warning(text, self.name, self.failures, reason, wait)


class Notifier:
    """Tells the sinks what happens in a queue: each notice at least once, and one of each topic in `collapse`.

    What it knows is in Redis under its name, so it may be killed at any time. Only one of a name is to run at a time:
    two would tell the same. Of a queue over partitions it reads the log of each, also as their number changes.
    """

    def __init__(self, executor: Executor, calls: Calls, name: str, watched: Watched, sinks: Sequence[Sink]) -> None:
        """Nothing is read yet."""
        self._executor, self._calls, self._name = executor, calls, check_name(name, "the name of a notifier")
        self._watched, self._sinks = watched, sinks
        self._left = 0
        self._stopped: list[str] = []
        self._away = self._removed = False
        self.began = False
        """Whether it has found nothing that was kept, and so begins where the queue is."""
        self.delivered = 0
        """How many deliveries were taken."""
        self.given_up: list[str] = []
        """What was given up last: who does not get which notice, and why."""

    def run(self, wait: Callable[[float], bool], every: float) -> None:
        """Look `every` so many seconds until `wait` returns True, also while Redis is away or a sink fails.

        Raises `DelayqError` if a sink never takes anything, and any error of Redis but that it is away.
        """
        load_all()
        self.turn(wait)  # at the start an error is one
        while not wait(every):
            try:
                self.turn(wait)
            except UnavailableError as error:
                if not self._away:
                    log.warning("%s; the notifier goes on once Redis is back", error)
                self._away = True
            else:
                self._away = False

    def turn(self, wait: Callable[[float], bool] = lambda _: False) -> None:
        """Look once, and deliver what is to be told now: to each sink in order, whatever becomes of the others.

        Raises `DelayqError` at its end if a sink never takes anything.
        """
        self._stopped, self.given_up = [], []
        state = self._executor.perform(self._look())
        for sink in self._sinks:
            for pending in [one for one in state.outbox if sink.name not in one.taken]:
                if monotonic() < sink.try_at or wait(0):
                    break
                is_settled = self._deliver(sink, pending)
                self._forget(state)
                self._executor.call(keep_notifier(self._calls.keys, self._name, state.encode()))
                if not is_settled:
                    break
        self._left = len(state.outbox)
        if self._stopped:
            raise DelayqError("; ".join(dict.fromkeys(self._stopped)))

    def _forget(self, state: NotifierState) -> None:
        """Forget what all sinks have taken."""
        sinks = [sink.name for sink in self._sinks]
        for one in state.forget(sinks):
            self._give_up(one, ", ".join(name for name in sinks if name not in one.taken), "too many wait")

    def _give_up(self, pending: Pending, who: str, reason: str) -> None:
        self.given_up.append(f"{who} does not get {pending.id}: {reason}")
        log.error("gave up notice %s for %s: %s; %s", pending.id, who, reason, pending.text, extra={"id": pending.id})

    def raise_if_failed(self) -> None:
        """Raise `DelayqError` if notices could not be delivered."""
        reasons = [sink.reason for sink in self._sinks if sink.reason]
        failures = []
        if self._left and reasons:
            left = pluralize(self._left, "notice")
            failures.append(f"{left} could not be delivered, and wait for the next run: {'; '.join(reasons)}")
        if self.given_up:
            failures.append(f"{pluralize(len(self.given_up), 'notice')} given up: {'; '.join(self.given_up)}")
        if failures:
            raise DelayqError("; ".join(failures))

    def _look(self) -> Operation[NotifierState]:
        """Read what has happened, and keep it together with what is to be told."""
        keys, watched = self._calls.keys, self._watched
        listed, stored, layout = yield [
            is_in_use(watched.prefix, watched.queue),
            read_notifier(keys, self._name),
            read_layout(watched.prefix, watched.queue),  # each time: it may grow meanwhile
        ]
        if not listed:  # it was removed, with what was kept: no key is to come back
            self._removed = True
            return NotifierState()
        parts = {name: self._calls_of(name) for name in layout.names(watched.queue)}
        if stored is None:
            self.began = True
            state = NotifierState() if self._removed else (yield from begin(watched, parts))
            yield [keep_notifier(keys, self._name, state.encode())]
        else:
            state = read_state(stored)
            self._forget(state)  # sinks may be gone
        more, before = True, state.encode()
        while more:
            now, more = yield from look(state, watched, parts)
            if not more:
                state.fill_outbox(watched.queue, now, watched.collapse)
            if (after := state.encode()) != before:
                yield [keep_notifier(keys, self._name, after)]
                before = after
        return state

    def _calls_of(self, name: str) -> Calls:
        """Return the calls of a partition, or of the queue itself."""
        if name == self._watched.queue:
            return self._calls
        return Calls(Keys.of(self._watched.prefix, name), clock=self._calls.clock)

    def _deliver(self, sink: Sink, pending: Pending) -> bool:
        """Give a notice to a sink; returns whether it has taken or refused it, which is noted."""
        pending.tries[sink.name] = pending.tries.get(sink.name, 0) + 1
        try:
            sink.take(Notice.of(self._watched.queue, pending, sink.name))
        except StopWorker as error:
            self._stopped.append(str(error))
            return False
        except Reject as error:
            self._give_up(pending, sink.name, str(error))
        except Outcome as error:
            delay = getattr(error, "delay", None)
            sink.failed(str(error), None if delay is None else to_millis(delay, "delay"), monotonic())
            return False
        except Exception as error:  # each sink is on its own
            log.debug("the error of %s", sink.name, exc_info=True)
            sink.failed(f"{type(error).__name__}: {error}", None, monotonic())
            return False
        else:
            self.delivered += 1
            log.info("delivered %s", pending.id, extra={"id": pending.id})
        pending.taken.append(sink.name)
        sink.failures, sink.reason = 0, ""
        return True


def read_notifier(keys: Keys, name: str) -> RedisCommand[bytes | None]:
    """Read what a notifier has kept; None for a new one."""
    return RedisCommand(("HGET", keys.notifiers, name), lambda reply: reply)


def keep_notifier(keys: Keys, name: str, state: bytes) -> RedisCommand[int]:
    """Keep all that a notifier knows, in one step."""
    return RedisCommand(("HSET", keys.notifiers, name, state), int)
