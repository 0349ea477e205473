"""The calls of a delay queue about its limits."""

from __future__ import annotations

from typing import Any, NamedTuple

from delayq.broker.capabilities.script_calls import ScriptCalls
from delayq.broker.replies.replies import integers, statuses
from delayq.broker.requests import ScriptCall
from delayq.errors import ConfigurationError
from delayq.values.rates import Pace

QUEUE = "queue"
"""The scope of the limit of the whole queue."""
MAX_LIMITS = 8000
"""Names of a queue that may have a limit."""


def scope_of(name: str | None) -> str:
    """Return the scope of a name; of the queue for None."""
    return QUEUE if name is None else f"name:{name}"


class LimitChange(NamedTuple):
    """What became of a change: whether there was such a limit or pause, and when the pause in force ends (ms or -1)."""

    changed: int
    paused: int


class StoredLimit(NamedTuple):
    """A limit and what is declared for its scope, as stored ('' for none), what it holds back, and how many run."""

    scope: str
    text: str
    declared: str
    throttled: int
    running: int


class LimitsPage(NamedTuple):
    """A page of limits, the server's time (ms), and the cursor of the next page ('0' at the end)."""

    now: int
    cursor: str
    limits: list[StoredLimit]


class LimitCalls(ScriptCalls):
    """One function per script, as `Calls`."""

    __slots__ = ()

    def limit(
        self,
        name: str | None,
        *,
        pace: Pace | None = None,
        places: int | None = None,
        paused: str = "",
        reason: str = "",
        spread: int | None = None,
        waiting: int | None = None,
    ) -> ScriptCall[LimitChange]:
        """Change the limit of a name or of the queue; what is None or '' stays.

        `paused` is as in `pause`, and `-` ends a pause and a spread. `spread` lets go what waits over so many
        milliseconds; of the queue that is `waiting` messages.
        """
        rate = ("", "") if pace is None else (f"{pace.interval:.3f}", pace.burst)
        others = ("" if value is None else value for value in (spread, waiting))
        args = [self._now, scope_of(name), *rate, "" if places is None else places, paused, reason, *others]
        return self._call("limit", args, _read_change)

    def declare(self, name: str | None, *, pace: Pace | None, places: int | None) -> ScriptCall[bool]:
        """Store the limit that a program declares; returns whether it differs from the last that was declared."""
        rate, at_once = pace or Pace()
        return self._call("declare", [self._now, scope_of(name), f"{rate:.3f}", at_once, places or 0], _read_declared)

    def hold(self, name: str | None, delay: int, *, pause: int | None = None) -> ScriptCall[str]:
        """Close a name or the queue for so many milliseconds, as a callback asks.

        With a `pause` (ms), trip its breaker instead; with 0, let all start again. Status: 1 done, 2 nothing to do, 0
        too many limits.
        """
        return self._call("hold", [self._now, scope_of(name), delay, "" if pause is None else pause], statuses)

    def limits_page(self, cursor: str, *, limit: int) -> ScriptCall[LimitsPage]:
        """Read a page of the limits."""
        return self._call("limits_page", [self._now, cursor, limit], _read_page)


def _read_change(reply: bytes) -> LimitChange:
    change = LimitChange(*integers(reply))
    _check_room(change.changed)
    return change


def _read_declared(reply: bytes) -> bool:
    (declared,) = integers(reply)
    _check_room(declared)
    return declared == 1


def _check_room(changed: int) -> None:
    if changed < -1:
        raise ConfigurationError(f"a queue has limits for at most {MAX_LIMITS} names: remove some")


def _read_page(reply: list[Any]) -> LimitsPage:
    now, cursor, *cells = reply
    rows = zip(*(cells[at::5] for at in range(5)), strict=True)
    stored = [StoredLimit(*(text.decode() for text in row[:3]), *row[3:]) for row in rows]
    return LimitsPage(now, cursor.decode(), stored)
