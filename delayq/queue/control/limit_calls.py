"""The calls of limits, and how their replies are read."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from delayq.broker.calls import Calls, scope_of
from delayq.broker.message.attributes import check_message_name
from delayq.broker.replies import integers
from delayq.broker.requests import ScriptCall
from delayq.errors import ConfigurationError, short_repr
from delayq.values.rates import Pace

MAX_LIMITS = 8000
"""Names of a queue that may have a limit."""
MAX_TEMPLATES = 100
"""Templates of keys that a queue may have."""
IN_ORDER = "in_order"
"""What is stored of a template whose messages keep their places until they end."""
_TEMPLATE = re.compile(r"([A-Za-z0-9._:@/+=-]{0,128})\*")


def check_scope(name: str | None) -> str | None:
    """Return a valid name or template, or None for the queue; raise `ConfigurationError` for any other."""
    if isinstance(name, str) and "*" in name:
        if not _TEMPLATE.fullmatch(name):
            text = "a template must be the beginning of keys with a * at its end, as in account:*, not"
            raise ConfigurationError(f"{text} {short_repr(name)}")
        return name
    return None if name is None else check_message_name(name)


def key_number(key: str) -> int:
    """Return the number of a key, by which its places and its line are found; see `broker/lua/limit/lib/key.lua`."""
    high = low = 1
    for byte in key.encode():
        high, low = (high * 9124567 + byte) % 16777213, (low * 12389111 + byte) % 16777199
    return 16384 + 2 * (high * 16777216 + low)


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


def limit_call(
    calls: Calls,
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
    args = [calls.now, scope_of(name), *rate, "" if places is None else places, paused, reason, *others]
    return calls.script("limit", args, _read_change)


def declare_call(
    calls: Calls, name: str | None, *, pace: Pace | None, places: int | None, next_start: float | None = None
) -> ScriptCall[bool]:
    """Store the limit that a program declares; returns whether it differs from the last that was declared.

    With `next_start`, the next start falls at that time (µs) if all keep their distance.
    """
    rate, at_once = pace or Pace()
    args = [calls.now, scope_of(name), f"{rate:.3f}", at_once, places or 0]
    if next_start is not None:
        args.append(f"{next_start:.2f}")
    return calls.script("declare", args, _read_declared)


def limits_page_call(calls: Calls, cursor: str, *, limit: int) -> ScriptCall[LimitsPage]:
    """Read a page of the limits."""
    return calls.script("limits_page", [calls.now, cursor, limit], _read_page)


def _read_change(reply: bytes) -> LimitChange:
    if reply.startswith(b"-3 "):
        other = reply.decode()[3:]
        text = f"the template overlaps {other}, and a key has one limit: remove {other}, or choose a longer beginning"
        raise ConfigurationError(text)
    change = LimitChange(*integers(reply))
    _check_room(change.changed)
    return change


def _read_declared(reply: bytes) -> bool:
    (declared,) = integers(reply)
    _check_room(declared)
    return declared == 1


def _check_room(changed: int) -> None:
    if changed < -1:
        raise ConfigurationError(
            f"a queue has limits for at most {MAX_LIMITS} names and {MAX_TEMPLATES} templates: remove some"
        )


def _read_page(reply: list[Any]) -> LimitsPage:
    now, cursor, *cells = reply
    rows = zip(*(cells[at::5] for at in range(5)), strict=True)
    stored = [StoredLimit(*(text.decode() for text in row[:3]), *row[3:]) for row in rows]
    return LimitsPage(now, cursor.decode(), stored)
