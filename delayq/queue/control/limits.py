"""`queue.limits`: how many messages of the queue, or of a name, may start in a time or run at a time, or of each key.

Limits are stored in Redis and judged there when messages are claimed, so they are exact over all processes. What a
limit holds back waits as `throttled` and holds up no other message.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING, Any

from delayq._parity import awaited
from delayq.broker.calls import QUEUE, is_template
from delayq.broker.context import QueueContext
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError
from delayq.queue.control.limit_calls import (
    IN_ORDER,
    StoredLimit,
    check_scope,
    limit_call,
    limits_page_call,
)
from delayq.queue.control.pausing import Pause, pause_in_force
from delayq.values.checks import check_bool
from delayq.values.other_names import LIMIT_METHODS, Hinting
from delayq.values.rates import Pace, check_limits, rate_text
from delayq.values.times import LATEST, from_millis

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor, Executor

PAGE = 500
"""Limits that one call reads."""


@dataclass(frozen=True, slots=True)
class DeclaredLimit:
    """The limit that a program has declared last, by the options of the queue or of a task."""

    rate_limit: str | None
    burst: int
    running: int | None


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of the queue or of a name, as it is now."""

    name: str | None
    """The name, or the template of keys, such as `account:*`; None for the limit of the whole queue."""
    rate_limit: str | None
    """How many may start in a time, such as `200/s`; None for any number."""
    burst: int
    """How many may start at once, after a time without any."""
    running: int | None
    """How many may run at a time; None for any number."""
    paused: Pause | None
    """The pause of this name; None if it is not paused. That of the queue is in `counts`."""
    closed_until: datetime | None
    """Until when none starts because a callback raised `RateLimited`; None if none did, or this is over."""
    tripped_until: datetime | None
    """When one starts as a trial because its `Breaker` has tripped, past if the next one does; None if it has not."""
    spread_until: datetime | None
    """Until when a `resume` lets go what waited evenly; None if none does."""
    throttled: int
    """How many messages it holds back. What the limit of the whole queue holds back stays ready."""
    active: int
    """How many messages run, of a name only if `running` limits it. Of a template, how many take the places of keys."""
    declared: DeclaredLimit | None = None
    """What programs declare; None for nothing. What was set or removed since then counts until they declare another."""
    in_order: bool = False
    """Whether a message keeps the place of its key until it ends, also while it waits for a retry."""

    @property
    def prefix(self) -> str | None:
        """How the keys of a template begin; None for a limit of a name or of the queue."""
        return self.name[:-1] if self.name is not None and is_template(self.name) else None

    @property
    def is_declared(self) -> bool:
        """Whether what counts is what programs declare."""
        return self.declared == DeclaredLimit(self.rate_limit, self.burst, self.running)


class _LimitOperations(Hinting):
    """The operations on limits; blocking and asyncio queues share them."""

    _other_names = LIMIT_METHODS

    def __init__(self, context: QueueContext, executor: Any) -> None:
        self._context = context
        self._executor = executor

    def _list(self) -> Operation[list[Limit]]:
        limits: dict[str, Limit] = {}
        cursor = ""
        while cursor != "0":
            (page,) = yield [limits_page_call(self._context.calls, cursor or "0", limit=PAGE)]
            limits.update((stored.scope, limit_of(stored, page.now)) for stored in page.limits)
            cursor = page.cursor
        return sorted(limits.values(), key=lambda limit: (limit.name is not None, limit.name))

    def _set(
        self, name: str | None, rate: str | None, burst: int | None, running: int | None, *, in_order: bool
    ) -> Operation[None]:
        scope = check_scope(name)
        pace, places = check_limits(rate, burst, _places(scope, running, in_order=in_order))
        if scope is not None and is_template(scope) and (rate is not None or burst is not None):
            raise ConfigurationError(f"a template has no rate: limit {scope} by running=, or a name by rate_limit=")
        if pace is None and places is None:
            raise ConfigurationError("say what to limit: rate_limit='200/s', running=5, or both")
        call = limit_call(self._context.calls, scope, pace=pace, places=places, reason=IN_ORDER if in_order else "")
        yield [call, *self._context.confirming]

    def _remove(self, name: str | None) -> Operation[bool]:
        call = limit_call(self._context.calls, check_scope(name), pace=Pace(), places=0)
        change, *_ = yield [call, *self._context.confirming]
        return bool(change.changed == 1)


class Limits(_LimitOperations):
    """The limits of a `DelayQueue`, as `queue.limits`."""

    _executor: Executor

    def list(self) -> list[Limit]:
        """Read all limits, and the names that are paused: that of the queue first, then by name.

        With them, the names for which programs declare a limit that was removed.
        """
        return self._executor.perform(self._list())

    def set(
        self,
        name: str | None = None,
        *,
        rate_limit: str | None = None,
        burst: int | None = None,
        running: int | None = None,
        in_order: bool = False,
    ) -> None:
        """Limit the messages with a name, or without one all of the queue, for all processes at once.

        A name that ends in `*` is a template: `account:*` limits each `key` that begins so by itself, to `running` of
        its messages at a time. With `in_order` that is one, which keeps its place until it is done, dead or cancelled:
        also while it waits for a retry, so that none of its key overtakes it. Raises `ConfigurationError` for a
        template that overlaps another, and for one with a rate.

        `rate_limit` is how many may start in a time, such as `"200/s"`, `"5/m"` or `"3/10s"`: never more than this and
        `burst`. By default `burst` is what the rate allows in 100 ms, and one more. `running` is how many may run at a
        time. What is left out stays as it is. A message starts when a worker claims it.

        It counts until it is set or removed again, or a program declares another one than before.
        """
        return self._executor.perform(self._set(name, rate_limit, burst, running, in_order=in_order), writes=True)

    def remove(self, name: str | None = None) -> bool:
        """Remove the limit of a name or of the queue, so that all it holds back starts; returns whether it had one."""
        return self._executor.perform(self._remove(name), writes=True)


class AsyncLimits(_LimitOperations):
    """The limits of an `AsyncDelayQueue`; see `Limits`."""

    _executor: AsyncExecutor

    list = awaited(Limits.list)
    set = awaited(Limits.set)
    remove = awaited(Limits.remove)


def _places(scope: str | None, running: int | None, *, in_order: bool) -> int | None:
    """Return the places of a scope; raise `ConfigurationError` where messages cannot be in order."""
    if not check_bool(in_order, "in_order"):
        return running
    if scope is None or not is_template(scope):
        raise ConfigurationError("in_order is for the keys of a template: limits.set('account:*', in_order=True)")
    if running not in (None, 1):
        raise ConfigurationError(f"in_order runs one message of a key at a time: leave out running={running!r}")
    return 1


def limit_of(stored: StoredLimit, now: int) -> Limit:
    """Return a limit as its script stores it; see `broker/lua/limit/lib/limit.lua`."""
    name = None if stored.scope == QUEUE else stored.scope.partition(":")[2]
    is_key = stored.scope.startswith("key:")
    declared = DeclaredLimit(*_numbers(*stored.declared.split(" "))) if stored.declared else None
    if not stored.text:
        return Limit(name, None, 1, None, None, None, None, None, stored.throttled, stored.running, declared)
    _, interval, burst, places, closed, paused, _, _, spread_until, reason = f"{stored.text} ".split(" ", 9)
    closed_until, *breaker = closed.split("/")
    trial_at, _, trials = map(int, breaker or (0, 0, 0))
    pause = None if paused == "-" else pause_in_force(f"{paused} {reason.strip()}", now)
    rate_limit, at_once, running = _numbers(interval, burst, places)
    return Limit(
        name,
        rate_limit,
        at_once,
        running,
        paused=pause,
        closed_until=from_millis(int(closed_until)) if int(closed_until) > now else None,
        tripped_until=from_millis(trial_at) if trials or trial_at > now else None,
        spread_until=from_millis(int(spread_until)) if int(spread_until) > now else None,
        throttled=stored.throttled,
        active=stored.running,
        declared=declared,
        in_order=is_key and reason.strip() == IN_ORDER,
    )


def starts_of(stored: StoredLimit, now: int) -> tuple[int, datetime | None]:
    """Return the number of a limit, and when its rate or a spread lets the next start; None if that is now (ms)."""
    if not stored.text:
        return -1, None
    number, interval, burst, _, _, _, ahead, spread, spread_until, _ = f"{stored.text} ".split(" ", 9)
    distance, at_once = float(interval), int(burst)
    if float(spread) > distance and int(spread_until) > now:
        distance, at_once = float(spread), 1
    at = ceil((float(ahead.partition("/")[0]) - (at_once - 1) * distance) / 1000)
    return int(number), from_millis(min(at, LATEST)) if distance and at > now else None


def _numbers(interval: str, burst: str, places: str) -> tuple[str | None, int, int | None]:
    """Return the rate, the burst and the places of a limit as it is stored."""
    return rate_text(float(interval)) if float(interval) else None, int(burst), int(places) or None
