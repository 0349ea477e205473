"""Time zones: their names, and which moment a time on the wall is.

A time that the clocks skip is read with the offset from before the gap, so that 02:30 becomes 03:30 where an hour is
skipped; of a time that they show twice the first is meant. RFC 5545 (3.3.5) decides both so, and so does `zoneinfo`
with `fold=0`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from difflib import get_close_matches
from zoneinfo import ZoneInfo, available_timezones

from delayq.errors import ConfigurationError, shown


def find_zone(name: str) -> ZoneInfo | None:
    """Return the zone of an IANA name, None if the database of this machine has no such zone."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):  # also for a folder of the database, and for what is no path
        return None


def check_zone(name: str, what: str = "tz") -> ZoneInfo:
    """Return the zone of an IANA name; `ConfigurationError` names the closest one if there is none."""
    zone = find_zone(name) if isinstance(name, str) and name else None
    if zone is None:
        close = get_close_matches(str(name), available_timezones(), n=1)
        hint = f", did you mean {close[0]!r}?" if close else "; it must be a name such as Europe/Berlin"
        raise ConfigurationError(f"{what}: there is no time zone {shown(name)}{hint}")
    return zone


def on_the_wall(at: datetime) -> datetime:
    """Return an aware time as the clocks show it, without its zone."""
    return at.replace(tzinfo=None, fold=0)


def milliseconds_of(at: datetime) -> int:
    """Return an aware time as milliseconds since 1970, rounded up."""
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + -(-since.microseconds // 1000)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
