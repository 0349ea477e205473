"""The time zone in which commands print times, and read those without an offset: that of `--tz`, or the local one."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import click

from delayq.errors import ConfigurationError
from delayq.values.text import format_duration, relative_time
from delayq.values.times import timestamp

_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{3,6})?)?(Z|[+-]\d\d:\d\d)(?!\d)")

_DATE = re.compile(r"\d{4}-\d\d-\d\d")


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


def read_time(value: Any, name: str, examples: str = "2027-01-31T09:00", *, zone: tzinfo | None = None) -> datetime:
    """Return a time in ISO 8601: in `zone`, else in that of the command, unless it has an offset.

    Raises `ConfigurationError` for what is no time, and for one that a change of the clock leaves out or repeats.
    """
    try:
        at = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        what = f": {error}" if _DATE.match(str(value)) and "isoformat" not in str(error) else ""
        raise ConfigurationError(f"{name} must look like {examples}, not {value!r:.60}{what}") from error
    if at.utcoffset() is None:
        timestamp(at.replace(tzinfo=UTC), name)  # Python cannot convert the years 1 and 9999
        at = _in_zone(at, name, zone or _zone_of_times())
    timestamp(at, name)
    return at


def _in_zone(at: datetime, name: str, zone: tzinfo | None) -> datetime:
    """Return a time on the clock of a zone, None for the local one; raise `ConfigurationError` unless there is one."""
    first, second = (at.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    earlier, later = (datetime.fromtimestamp(one, UTC).astimezone(zone) for one in sorted((first, second)))
    if first == second:
        return earlier
    where = "your time zone" if zone is None else str(zone)
    both = f"{earlier.isoformat()} or {later.isoformat()}"
    if earlier.replace(tzinfo=None) != at:
        raise ConfigurationError(
            f"{name} {at.isoformat()} does not exist in {where}, where clocks go forward then: give {both}"
        )
    raise ConfigurationError(f"{name} {at.isoformat()} occurs twice in {where}, where clocks go back then: give {both}")


def _zone_of_times() -> tzinfo | None:
    """Return the zone of a command that has a `--tz` of its own and was given it, else that of all commands."""
    context = click.get_current_context(silent=True)
    own = context.params.get("tz") if context else None
    return read_zone(own, "--tz") if isinstance(own, str) else chosen_zone()


def due_text(delay: timedelta | None, at: datetime | None) -> str:
    """Return a due time as it was understood: "in 2h" of a delay, the time with its offset of a time, or "now"."""
    if at is not None:
        return f"{relative_time(at, datetime.now(UTC))}  ({at.astimezone(chosen_zone()).isoformat(' ', 'seconds')})"
    return f"in {format_duration(delay.total_seconds())}" if delay else "now"


def exact_time(at: datetime | None, now: datetime) -> str:
    """Return a time relative to now, followed by the date and time in the zone of the command."""
    if at is None:
        return ""
    return f"{relative_time(at, now)}  ({_to_the_second(at)})"


def until_text(at: datetime, now: datetime) -> str:
    """Return until when something lasts, in the zone of the command, followed by the time relative to now."""
    return f"until {_to_the_second(at)} ({relative_time(at, now)})"


def _to_the_second(at: datetime) -> str:
    return f"{at.astimezone(chosen_zone()):%Y-%m-%d %H:%M:%S %Z}"


def own_iso(at: datetime) -> str:
    """Return a time in ISO 8601 to the second: in the zone of `--tz` if that is given, else in its own."""
    zone = chosen_zone()
    return (at.astimezone(zone) if zone else at).isoformat(timespec="seconds")


def zoned_text(text: str) -> str:
    """Return a text with its times, in ISO 8601 with an offset, in the zone of the command."""
    return _TIME.sub(lambda found: zoned_iso(datetime.fromisoformat(found[0]), digits=bool(found[2])), text)


def zoned_iso(at: datetime, *, digits: bool = True) -> str:
    """Return a time in ISO 8601, in the zone of the command, with milliseconds or without."""
    timespec = "milliseconds" if digits else "seconds"
    return at.astimezone(chosen_zone()).isoformat(timespec=timespec).replace("+00:00", "Z")
