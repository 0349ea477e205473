"""The minutes, hours or days of a forecast, by the clock of a time zone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from datetime import time as time_of_day
from typing import Literal, get_args

from delayq.errors import ConfigurationError, short_repr
from delayq.values.text import iso
from delayq.values.times import Duration, from_millis, timestamp, to_millis

Unit = Literal["minute", "hour", "day"]
MILLIS: dict[str, int] = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
MAX_BUCKETS = 10_000
"""Buckets of a forecast: nearly a week by the minute, a year by the hour."""
WEEK = 7 * MILLIS["day"]
_UP_TO: dict[Unit, int] = {"minute": 3 * MILLIS["hour"], "hour": 3 * MILLIS["day"]}
"""How long a forecast may be (ms) for this unit to be chosen: each is some hundred lines at most."""


def check_unit(unit: str | None) -> Unit | None:
    """Return a unit; raise `ConfigurationError` for any other, None for the one that fits."""
    if unit is not None and unit not in get_args(Unit):
        raise ConfigurationError(f"buckets must be 'minute', 'hour' or 'day', not {short_repr(unit)}")
    return unit  # type: ignore[return-value]  # it is one of them


def check_until(until: Duration | datetime) -> int | datetime:
    """Return a duration in milliseconds, or a time as it is; raise `ConfigurationError` for anything else."""
    if isinstance(until, datetime):
        timestamp(until, "until")
        return until
    return to_millis(until, "until", min=1)


def edges_of(now: int, until: int | datetime, unit: Unit | None, zone: tzinfo | None) -> tuple[Unit, list[int]]:
    """Return the unit, and where its periods begin and end (ms), from the one with now to the one with the end.

    `until` is a time, or milliseconds from now; `zone` None for that of this machine. Raises `ConfigurationError` if
    that is in the past, or if there are too many.
    """
    end = timestamp(until, "until") if isinstance(until, datetime) else now + until
    if end <= now:
        raise ConfigurationError(
            f"until must be in the future, not {iso(from_millis(end))}: it is {iso(from_millis(now))}"
        )
    unit = unit or _fitting(end - now)
    number = (end - now) // MILLIS[unit]
    if number <= MAX_BUCKETS:
        edges = _days(now, end, zone) if unit == "day" else _equal(now, end, MILLIS[unit], zone)
        number = len(edges) - 1
    if number > MAX_BUCKETS:
        shorter = "" if unit == "day" else f", or buckets longer than {'an' if unit == 'hour' else 'a'} {unit}"
        text = f"a forecast has at most {MAX_BUCKETS:,} buckets, not {number:,}: take a nearer until{shorter}"
        raise ConfigurationError(text)
    return unit, edges


def local_times(edges: Sequence[int], zone: tzinfo | None) -> list[datetime]:
    """Return times (ms) in a zone, with fixed offsets: the length of a day on which the clocks change is right."""
    found: list[datetime] = []
    fixed, until = UTC, -1
    for edge in edges:
        if edge > until:  # the clocks of a zone change at most once in a week
            fixed, following = _offset(edge, zone), _offset(edge + WEEK, zone)
            until = edge + WEEK if fixed == following else edge
        found.append(from_millis(edge).astimezone(fixed))
    return found


def _offset(at: int, zone: tzinfo | None) -> timezone:
    local = from_millis(at).astimezone(zone)
    return timezone(local.utcoffset() or timedelta(), local.tzname() or "")


def _fitting(length: int) -> Unit:
    return next((unit for unit, longest in _UP_TO.items() if length <= longest), "day")


def _equal(now: int, end: int, length: int, zone: tzinfo | None) -> list[int]:
    offset = from_millis(now).astimezone(zone).utcoffset() or timedelta()
    start = now - (now + offset // timedelta(milliseconds=1)) % length
    return list(range(start, end + length, length))


def _days(now: int, end: int, zone: tzinfo | None) -> list[int]:
    day = from_millis(now).astimezone(zone).date()
    edges = [_midnight(day, zone)]
    while edges[-1] < end:
        day += timedelta(days=1)
        edges.append(_midnight(day, zone))
    return edges


def _midnight(day: date, zone: tzinfo | None) -> int:
    wall = datetime.combine(day, time_of_day(), zone)
    return timestamp(wall if zone else wall.astimezone())
