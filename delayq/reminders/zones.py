"""Time zones: their names, and which moment a time on the wall is.

A time that the clocks skip is read with the offset from before the gap, so that 02:30 becomes 03:30 where an hour is
skipped; of a time that they show twice the first is meant. RFC 5545 (3.3.5) decides both so, and so does `zoneinfo`
with `fold=0`.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo


def find_zone(name: str) -> ZoneInfo | None:
    """Return the zone of an IANA name, None if the database of this machine has no such zone."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):  # also for a folder of the database, and for what is no path
        return None


def on_the_wall(at: datetime) -> datetime:
    """Return an aware time as the clocks show it, without its zone."""
    return at.replace(tzinfo=None, fold=0)
