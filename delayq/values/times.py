"""Converts durations and times of users to integer milliseconds; the clock, and how long a call takes.

A duration is a `timedelta`, a number of seconds or a text such as `"1h30m"`. A time is an aware `datetime`. Both are
rounded up to the next millisecond, so that nothing is due too early.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from time import CLOCK_MONOTONIC, clock_gettime

from delayq.errors import InvalidValueError, exact_duration, short_repr

Duration = timedelta | int | float | str

HORIZON = 100 * 366 * 86_400_000
"""How far ahead a message may be scheduled, in milliseconds: a hundred years. More is probably a wrong unit."""

_TEXT = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:w|d|h|m|s|ms|us))+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def reads_as_duration(value: object) -> bool:
    """Return whether a value that is to be a text was meant as a duration, such as `5m`; a number may be a code."""
    if isinstance(value, str):
        return _TEXT.fullmatch(value.replace(" ", "").lower()) is not None
    return isinstance(value, timedelta)


def to_millis(value: Duration, name: str = "duration", *, min: int = 0, max: int = HORIZON) -> int:
    """Return a duration as whole milliseconds, rounded up; `ConfigurationError` if it is out of bounds."""
    if type(value) is int:
        if min <= value * 1000 <= max:
            return value * 1000
        exact: float = value * 1000
    elif isinstance(value, timedelta):
        exact = value / _MILLISECOND
    elif isinstance(value, str):
        exact = _parse(value, name)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValueError(
            f"{name} must be a timedelta, a number of seconds or a text like '1h30m', not {short_repr(value)}"
        )
    else:
        exact = float(value) * 1000
    if not min <= exact <= max:
        lower, upper = (exact_duration(timedelta(milliseconds=bound)) for bound in (min, max))
        upper = "100 years" if max == HORIZON else upper
        raise InvalidValueError(f"{name} must be between {lower} and {upper}, not {short_repr(value)}")
    # Round to microseconds first: 0.1 s is 100.00000000000001 ms as a float, and must not become 101.
    return math.ceil(round(exact, 3))


def _parse(text: str, name: str) -> float:
    import durationpy  # slow to load, and most durations are numbers

    if not _TEXT.fullmatch(text):
        raise InvalidValueError(
            f"{name} must look like '1h30m', '45s' or '7d' (units: w d h m s ms), not {short_repr(text)}"
        )
    try:
        return float(durationpy.from_str(text) / _MILLISECOND)
    except (durationpy.DurationError, OverflowError) as error:
        raise InvalidValueError(f"{name} {short_repr(text)} is not a usable duration") from error


def timestamp(at: datetime, name: str = "at") -> int:
    """Return an aware time as milliseconds since 1970, rounded up; `ConfigurationError` for a naive or distant one."""
    if not isinstance(at, datetime):
        raise InvalidValueError(f"{name} must be a datetime, not {short_repr(at)}")
    if at.utcoffset() is None:
        raise InvalidValueError(f"{name} must carry a time zone; {at.isoformat()} is naive")
    since = -((_EPOCH - at) // _MILLISECOND)
    if not 0 <= since <= LATEST:
        raise InvalidValueError(f"{name} must lie between 1970 and {_LAST_YEAR}, not at {at.isoformat()}")
    return since


def from_millis(milliseconds_since_1970: int) -> datetime:
    """Return milliseconds since 1970 as an aware time in UTC."""
    return _EPOCH + timedelta(0, 0, 1000 * milliseconds_since_1970)  # by position: half the time


monotonic: Callable[[], float] = partial(clock_gettime, CLOCK_MONOTONIC)
"""Returns monotonic seconds, for waits and local deadlines.

Not `time.monotonic`: a test that freezes time freezes that too, and no wait would end.
"""

_LAST_YEAR = 2199
LATEST = (datetime(_LAST_YEAR + 1, 1, 1, tzinfo=UTC) - _EPOCH) // _MILLISECOND - 1
"""The latest due time of a message, in milliseconds since 1970."""


DRIFT = 0.002
"""The share by which a slower call moves the estimate: a way that has become longer is noticed."""


class Latency:
    """The latest latency: that of the fastest call, since a busy server takes long, too."""

    __slots__ = ("_connected", "_message_time", "_share", "seconds")

    def __init__(self, message_time: float) -> None:
        """Subtract `message_time` seconds for each message of a call: what it takes without any latency."""
        self.seconds = 0.0
        """A round trip; 0 where the server is near, and before the second call."""
        self._message_time = message_time
        self._connected = False
        self._share = 1.0
        """The share by which a slower call moves the estimate: the first one is the estimate."""

    def measure(self, took: float, messages: int) -> None:
        """Note that a call that carried so many messages took so many seconds. The first one connects."""
        if not self._connected:
            self._connected = True
            return
        more = max(0.0, took - messages * self._message_time) - self.seconds
        self.seconds += self._share * more if more > 0 else more
        self._share = DRIFT
