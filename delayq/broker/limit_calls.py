"""The calls of a delay queue about its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from delayq.broker.replies import integers, statuses
from delayq.broker.requests import ScriptCall
from delayq.broker.script_calls import ScriptCalls
from delayq.errors import ConfigurationError
from delayq.rates import Pace

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
    """A limit as it is stored, how many messages it holds back, and how many run."""

    scope: str
    text: str
    throttled: int
    running: int


class LimitsPage(NamedTuple):
    """A page of limits, the server's time (ms), and the cursor of the next page ('0' at the end)."""

    now: int
    cursor: str
    limits: list[StoredLimit]


@dataclass(frozen=True, slots=True)
class LimitCalls(ScriptCalls):
    """One function per script, as `Calls`."""

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
    if change.changed < -1:
        raise ConfigurationError(f"a queue has limits for at most {MAX_LIMITS} names: remove some")
    return change


def _read_page(reply: list[Any]) -> LimitsPage:
    now, cursor, *cells = reply
    rows = zip(*(cells[at::4] for at in range(4)), strict=True)
    stored = [
        StoredLimit(scope.decode(), text.decode(), throttled, running) for scope, text, throttled, running in rows
    ]
    return LimitsPage(now, cursor.decode(), stored)
