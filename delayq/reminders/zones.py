"""Time zones by name, and local times.

A local time that is skipped by a clock change uses the offset before the change, so 02:30 becomes 03:30. Of a local
time that occurs twice, the first is meant. RFC 5545 (3.3.5) defines both, and `zoneinfo` with `fold=0` does the same.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo


def find_zone(name: str) -> ZoneInfo | None:
    """Return the time zone of an IANA name, None if this machine's database does not have it."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):  # also for folders of the database and invalid paths
        return None


def wall_time(at: datetime) -> datetime:
    """Return an aware time as naive local time."""
    return at.replace(tzinfo=None, fold=0)
