"""The time zones of one file: whatever its producer calls them, the zone of the tz database where there is one.

Outlook writes the names of Windows or of its own making, others a path that ends in an IANA name, and some define a
zone by its VTIMEZONE alone. The database comes first, since it knows the rules of every year and is renewed; the
definition in the file is for what it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, tzinfo
from typing import Any

from delayq.errors import shown
from delayq.reminders.pieces import Piece
from delayq.reminders.zones import find_zone


class UnknownZone(Exception):  # noqa: N818 - becomes the line of an event
    """A TZID that neither the database nor the file knows."""


class ZoneTable:
    """Finds the zone of a TZID as one file means it."""

    def __init__(self, definitions: Iterable[Piece] = ()) -> None:
        """Take the VTIMEZONEs of the file; they are parsed when they are asked for."""
        self._definitions = {_clean(piece.value("TZID")): piece for piece in definitions}
        self._known: dict[str, tzinfo | None] = {}

    def find(self, tzid: str) -> tzinfo:
        """Return the zone of a TZID; `UnknownZone` if there is none."""
        if tzid not in self._known:
            self._known[tzid] = self._find(tzid)
        zone = self._known[tzid]
        if zone is None:
            raise UnknownZone(f"unknown time zone {shown(tzid)}")
        return zone

    def _find(self, tzid: str) -> tzinfo | None:
        from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON

        name = _clean(tzid)
        definition = self._definitions.get(name)
        names = [name, WINDOWS_TO_OLSON.get(name, "")]
        if definition is not None:
            names.append(definition.value("X-LIC-LOCATION"))
        if tzid.startswith("/"):  # unique by a path of the producer's: /example.com/20260101/Europe/Berlin
            parts = name.split("/")
            names += ["/".join(parts[first:]) for first in range(1, len(parts))]
        for candidate in names:
            if candidate and (zone := find_zone(candidate)):
                return zone
        return None if definition is None else _defined(definition)


def _clean(tzid: str) -> str:
    return tzid.strip().strip('"').strip("/")


def _defined(piece: Piece) -> tzinfo | None:
    """Return the zone that a VTIMEZONE defines, None if it defines none."""
    from icalendar import Timezone
    from icalendar.timezone import TZP

    try:
        definition: Any = Timezone.from_ical(piece.text)
        zone: tzinfo = definition.to_tz(TZP(), lookup_tzid=False)
        zone.utcoffset(datetime(2027, 1, 1))  # noqa: DTZ001 - as a zone is asked
    except Exception:  # noqa: BLE001 - the library raises what its parts happen to raise
        return None
    return zone
