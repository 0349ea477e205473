"""Durations and times as users write them, as integer milliseconds inside.

A duration is a `timedelta`, a number of seconds or a text such as `"1h30m"`. A time is an aware `datetime`. Both are
rounded up to the next millisecond, so that nothing becomes due before its time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from time import CLOCK_MONOTONIC, clock_gettime

from delayq.errors import ConfigurationError, shown

Duration = timedelta | int | float | str

HORIZON = 100 * 366 * 86_400_000
"""The furthest a message may be scheduled ahead, in milliseconds: a hundred years. Beyond it lies a wrong unit."""

_TEXT = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:w|d|h|m|s|ms|us))+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(value: Duration, name: str = "duration", *, least: int = 0, most: int = HORIZON) -> int:
    """Return a duration as whole milliseconds, rounded up; `ConfigurationError` if it is not within bounds."""
    if type(value) is int:
        exact: float = value * 1000
    elif isinstance(value, timedelta):
        exact = value / timedelta(milliseconds=1)
    elif isinstance(value, str):
        exact = _parse(value, name)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(
            f"{name} must be a timedelta, a number of seconds or a text like '1h30m', not {shown(value)}"
        )
    else:
        exact = float(value) * 1000
    if not least <= exact <= most:
        raise ConfigurationError(f"{name} must be between {least / 1000:g} s and {most / 1000:g} s, not {shown(value)}")
    # The nearest microsecond first: 0.1 s is 100.00000000000001 ms in floats and must not become 101.
    return math.ceil(round(exact, 3))


def _parse(text: str, name: str) -> float:
    import durationpy  # which takes its time to load, and most durations are numbers

    if not _TEXT.fullmatch(text):
        raise ConfigurationError(f"{name} must look like '1h30m', '45s' or '7d', not {shown(text)}")
    try:
        return float(durationpy.from_str(text) / timedelta(milliseconds=1))
    except (durationpy.DurationError, OverflowError) as error:
        raise ConfigurationError(f"{name} {shown(text)} is no duration that can be waited for") from error


def timestamp(at: datetime, name: str = "at") -> int:
    """Return an aware time as milliseconds since 1970, rounded up; `ConfigurationError` for a naive or distant one."""
    if not isinstance(at, datetime):
        raise ConfigurationError(f"{name} must be a datetime, not {shown(at)}")
    if at.utcoffset() is None:
        raise ConfigurationError(f"{name} must carry a time zone; {at.isoformat()} is naive")
    exact = (at - _EPOCH) // timedelta(microseconds=1)
    since = -(-exact // 1000)
    if not 0 <= since <= LATEST:
        raise ConfigurationError(f"{name} must lie between 1970 and {_LAST_YEAR}, not at {at.isoformat()}")
    return since


def moment(milliseconds_since_1970: int) -> datetime:
    """Return milliseconds since 1970 as an aware time in UTC."""
    return _EPOCH + timedelta(milliseconds=milliseconds_since_1970)


monotonic: Callable[[], float] = partial(clock_gettime, CLOCK_MONOTONIC)
"""Returns the seconds by which waits and local deadlines are measured.

Not `time.monotonic`: a test that freezes the clock stops that too, and no wait would end.
"""

_LAST_YEAR = 2199
LATEST = (datetime(_LAST_YEAR + 1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1) - 1
"""The last time that a message can be due at, in milliseconds since 1970."""
