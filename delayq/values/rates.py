"""Rates such as `"200/s"`: how many messages may start in a time."""

from __future__ import annotations

import re
from typing import NamedTuple

from delayq.errors import ConfigurationError, InvalidValueError, short_repr
from delayq.values.checks import check_int
from delayq.values.times import to_millis

MAX_RATE = 100_000
"""Starts in a second: more than one Redis delivers."""
MAX_BURST = 1_000_000
MAX_RUNNING = 1_000_000
LATENESS = 100_000
"""Microseconds by which a worker may be late without any loss of rate: so much may start at once by default."""
_PERIODS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
MAX_PERIOD = 30 * _PERIODS["d"]
_RATE = re.compile(r"([0-9]{1,9})/(.{1,20})")


class Pace(NamedTuple):
    """A rate as it is stored: the microseconds between two starts (0 for no limit), and how many may start at once."""

    interval: float = 0.0
    burst: int = 1


def read_rate(rate: str, burst: int | None = None) -> Pace:
    """Return the pace of a rate, `N/UNIT` with the unit s, m, h, d or a duration such as `10s`.

    Without a `burst`, as many may start at once as the rate allows in 100 ms, and one more. Raises
    `ConfigurationError`.
    """
    count, period = parse_rate(rate, "rate_limit")
    interval = round(1000 * period / count, 3)
    return Pace(interval, 1 + int(LATENESS / interval) if burst is None else check_int(burst, "burst", 1, MAX_BURST))


def parse_rate(rate: str, what: str) -> tuple[int, int]:
    """Return the number of a rate and its time (ms), 5000 and 60,000 of `5000/m`; raises `ConfigurationError`."""
    found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if found is None:
        raise InvalidValueError(f"{what} must look like '200/s', '5/m' or '3/10s', not {short_repr(rate)}")
    count, unit = int(found[1]), found[2]
    try:
        period = _PERIODS.get(unit) or to_millis(unit, what)
    except ConfigurationError:
        text = f"{what} must be per s, m, h or d, or per a duration such as '10s', not {short_repr(rate)}"
        raise InvalidValueError(text) from None
    if not 1 <= period <= MAX_PERIOD:
        raise InvalidValueError(f"{what} must be per 1ms to 30d, not {short_repr(rate)}")
    if not 0 < count * 1000 <= MAX_RATE * period:
        raise InvalidValueError(f"{what} must be from 1 to {MAX_RATE} a second, not {short_repr(rate)}")
    return count, period


def rate_text(interval: float) -> str:
    """Return the rate with this distance of starts (microseconds), in the largest unit that keeps it readable."""
    for unit, period in _PERIODS.items():
        if period * 1000 >= interval:
            return f"{period * 1000 / interval:.6g}/{unit}"
    return f"1/{interval / 1_000_000:.6g}s"


def check_limits(rate_limit: str | None, burst: int | None, running: int | None) -> tuple[Pace | None, int | None]:
    """Return the pace and the places that are asked for, None for each that is not; raises `ConfigurationError`."""
    if burst is not None and rate_limit is None:
        raise ConfigurationError("burst goes with rate_limit: say how many may start in a time, such as '200/s'")
    pace = None if rate_limit is None else read_rate(rate_limit, burst)
    return pace, None if running is None else check_int(running, "running", 1, MAX_RUNNING)
