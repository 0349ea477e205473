"""The minutes, hours or days of a forecast, by the clock of a time zone."""

from __future__ import annotations

from datetime import date, datetime, timedelta, tzinfo
from datetime import time as time_of_day
from typing import Literal, get_args

from delayq.errors import ConfigurationError, short_repr
from delayq.text import iso
from delayq.times import Duration, from_millis, timestamp, to_millis

Unit = Literal["minute", "hour", "day"]
MILLIS: dict[str, int] = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
MAX_BUCKETS = 10_000
"""Buckets of a forecast: nearly a week by the minute, a year by the hour."""
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
        raise ConfigurationError(f"until must be in the future, not {iso(from_millis(end))}: it is {iso(from_millis(now))}")
    fitting = (one for one, longest in _UP_TO.items() if end - now <= longest)
    unit = unit or next(fitting, "day")
    if (end - now) // MILLIS[unit] > MAX_BUCKETS:
        _refuse((end - now) // MILLIS[unit], unit)
    edges = _days(now, end, zone) if unit == "day" else _equal(now, end, MILLIS[unit], zone)
    if len(edges) - 1 > MAX_BUCKETS:
        _refuse(len(edges) - 1, unit)
    return unit, edges


def _refuse(number: int, unit: Unit) -> None:
    text = f"a forecast has at most {MAX_BUCKETS:,} buckets, not {number:,}: take a nearer until"
    raise ConfigurationError(text if unit == "day" else f"{text}, or buckets longer than a{'n' * (unit == 'hour')} {unit}")


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
