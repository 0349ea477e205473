"""The time zone in which commands print times for people, and read times that name none: `--tz`, or the local zone."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any

import click

from delayq.errors import ConfigurationError
from delayq.text import relative_time


def read_zone(value: Any, name: str) -> tzinfo:
    """Return the zone of a name such as Europe/Berlin; raise `ConfigurationError` for an unknown one."""
    from zoneinfo import ZoneInfo

    if isinstance(value, tzinfo):
        return value
    try:
        return ZoneInfo(value)
    except (ValueError, OSError, LookupError) as error:  # a name, a folder, or no such zone
        raise ConfigurationError(f"{name} must be a time zone such as Europe/Berlin, not {value!r:.60}") from error


def chosen_zone() -> tzinfo | None:
    """Return the zone of `--tz`; None for the local one."""
    context = click.get_current_context(silent=True)
    return context.find_root().params.get("tz") if context else None


def exact_time(at: datetime | None, now: datetime) -> str:
    """Return a time relative to now, followed by the date and time in the zone of the command."""
    if at is None:
        return ""
    return f"{relative_time(at, now)}  ({at.astimezone(chosen_zone()):%Y-%m-%d %H:%M:%S %Z})"


def zoned_iso(at: datetime) -> str:
    """Return a time in ISO 8601 with milliseconds, in the zone of the command."""
    return at.astimezone(chosen_zone()).isoformat(timespec="milliseconds").replace("+00:00", "Z")
