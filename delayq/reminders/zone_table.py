"""The time zones of one file: maps the names that producers use to zones of the tz database.

Outlook writes Windows names or its own, others write a path that ends in an IANA name, and some define a zone only by
its VTIMEZONE. The database comes first, because it knows the rules of every year and is updated. The definition in the
file is used only for zones that the database does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone, tzinfo
from functools import cache
from typing import Any
from zoneinfo import available_timezones

from delayq.errors import short_repr
from delayq.reminders.ics_splitter import RawComponent
from delayq.reminders.offsets import find_zone

_FIXED = re.compile(r"(?:GMT|UTC)\s*([+-])\s*(\d{1,2}):?(\d{2})?", re.IGNORECASE)
_MAX_HOURS, _MAX_MINUTES = 14, 59


class UnknownZone(Exception):  # noqa: N818 - becomes the line of an event
    """A TZID that neither the database nor the file defines."""


class ZoneTable:
    """Finds the time zones of one file by TZID."""

    def __init__(self, definitions: Iterable[RawComponent] = ()) -> None:
        """Take the VTIMEZONEs of the file; they are parsed when needed."""
        self._definitions = {_clean(raw.value("TZID")): raw for raw in definitions}
        self._known: dict[str, tzinfo | None] = {}

    def find(self, tzid: str) -> tzinfo:
        """Return the zone of a TZID; `UnknownZone` if there is none."""
        if tzid not in self._known:
            self._known[tzid] = self._find(tzid)
        zone = self._known[tzid]
        if zone is None:
            raise UnknownZone(f"unknown time zone {short_repr(tzid)}")
        return zone

    def _find(self, tzid: str) -> tzinfo | None:
        from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON

        name = _clean(tzid)
        definition = self._definitions.get(name)
        names = [name, WINDOWS_TO_OLSON.get(name, "")]
        if definition is not None:
            names.append(definition.value("X-LIC-LOCATION"))
        if tzid.startswith("/"):  # a path by the producer: /example.com/20260101/Europe/Berlin
            parts = name.split("/")
            names += ["/".join(parts[first:]) for first in range(1, len(parts))]
        for candidate in names:
            if candidate and (zone := find_zone(candidate)):
                return zone
        if definition is not None:
            return _defined(definition)
        return find_zone(_names_in_any_case().get(name.casefold(), "?")) or _fixed(name)


def _clean(tzid: str) -> str:
    return tzid.strip().strip('"').strip("/")


@cache
def _names_in_any_case() -> dict[str, str]:
    """Return the zone names of the database by all names known for them, in lower case."""
    from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON

    windows = {name.casefold(): zone for name, zone in WINDOWS_TO_OLSON.items()}
    return windows | {name.casefold(): name for name in available_timezones()}


def _fixed(name: str) -> tzinfo | None:
    """Return the time zone of a name such as `GMT+0100`, which is an hour ahead of UTC."""
    found = _FIXED.fullmatch(name)
    if found is None:
        return None
    hours, minutes = int(found[2]), int(found[3] or 0)
    if hours > _MAX_HOURS or minutes > _MAX_MINUTES:
        return None
    if not minutes:  # of which the database has names, with the sign of POSIX
        return find_zone(f"Etc/GMT{'-' if found[1] == '+' else '+'}{hours}" if hours else "Etc/GMT")
    ahead = timedelta(hours=hours, minutes=minutes)
    return timezone(ahead if found[1] == "+" else -ahead)


def _defined(raw: RawComponent) -> tzinfo | None:
    """Return the time zone that a VTIMEZONE defines, None if it cannot be read."""
    from icalendar import Timezone
    from icalendar.timezone import TZP

    try:
        definition: Any = Timezone.from_ical(raw.text)
        zone: tzinfo = definition.to_tz(TZP(), lookup_tzid=False)
        zone.utcoffset(datetime(2027, 1, 1))  # noqa: DTZ001 - zones expect naive times
    except Exception:  # noqa: BLE001 - the library raises all kinds of errors
        return None
    return zone
