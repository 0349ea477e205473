"""Limits in a world of the walk: what is stored of them as small values, with times relative to the time of the calls.

Times long past are all the same: the clock is not set back so far.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from delayq.broker.keys import Keys
from tests.model.limiting import Limit, Limits
from tests.model.scan import EPOCH, LINE


class KnownLimit(NamedTuple):
    """The limit of a scope, as `Limit`; times in ms from now, that of the next start in microseconds."""

    number: int
    interval: float = 0
    burst: int = 1
    places: int = 0
    held: int = 0
    paused: int | None = None
    """When its pause ends; 0 for one without an end, None for no pause."""
    next_start: float = 0
    spread: float = 0
    spread_until: int = 0


class Limited(NamedTuple):
    """All limits of a queue, what waits for them and what runs under them."""

    limits: dict[str, KnownLimit]
    lines: dict[str, int]
    gates: dict[int, float]
    running: dict[str, int]
    flag: str


UNLIMITED = Limited({}, {}, {}, {}, "")


def limits_of(known: Limited, ranks: dict[str, int], now: int) -> Limits:
    """Return the limits of a world; `ranks` are those of its messages."""
    limits = {}
    for scope, one in known.limits.items():
        paused = one.paused and one.paused + now
        times = (one.held + now, paused, one.next_start + now * 1000, one.spread, one.spread_until + now)
        limits[scope] = Limit(one.number, one.interval, one.burst, one.places, *times)
    lines = {id: (number, ranks[id]) for id, number in known.lines.items()}
    gates = {number: at + now for number, at in known.gates.items()}
    return Limits(limits, lines, gates, dict(known.running), known.flag)


def known_limits(limits: Limits, now: int, long_ago: int) -> Limited:
    """Return limits as a world holds them."""
    known = {}
    for scope, one in sorted(limits.of.items()):
        is_spread = one.spread_until - now > long_ago
        known[scope] = KnownLimit(
            *(one.number, one.interval, one.burst, one.places, max(one.held - now, long_ago)),
            one.paused and (max(one.paused - now, long_ago) or -1),
            max(one.next_start - now * 1000, long_ago * 1000),
            one.spread if is_spread else 0,
            one.spread_until - now if is_spread else long_ago,
        )
    lines = {id: number for id, (number, _) in sorted(limits.lines.items())}
    gates = {number: max(at - now, long_ago) for number, at in sorted(limits.gates.items())}
    return Limited(known, lines, gates, dict(sorted(limits.running.items())), limits.flag)


def coming(known: Limited) -> list[float]:
    """Return the times at which limits let something start by themselves, in ms from now."""
    times = [at for at in known.gates.values() if at < math.inf]
    return [*times, *(one.held for one in known.limits.values())]


def limit_commands(keys: Keys, limits: Limits) -> list[list[Any]]:
    """Return what plants limits."""
    zsets = {
        keys.gates: {str(number): str(at) for number, at in limits.gates.items()},
        keys.throttled: {id: str(number * LINE + rank - EPOCH) for id, (number, rank) in limits.lines.items()},
        keys.running: {id: str(number) for id, number in limits.running.items()},
    }
    made: list[list[Any]] = [
        ["ZADD", key, *(cell for member, score in held.items() for cell in (score, member))]
        for key, held in zsets.items()
        if held
    ]
    made += [["HSET", keys.limits, scope, one.text().decode()] for scope, one in limits.of.items()]
    return made + ([["HSET", keys.meta, "limited", limits.flag]] if limits.flag else [])
