"""The calendars of a queue as `delayq remind` reads them: without keys, and without what the queue redacts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from delayq.cli.exit_codes import NotFoundError
from delayq.cli.remind_text import reminder_json
from delayq.cli.session import Session
from delayq.privacy.redaction import HIDDEN, Redacted, RedactedPayload
from delayq.reminders import CalendarInfo, Reminder
from delayq.reminders.calendar import stored_calendars
from delayq.reminders.plan_store import encrypted_plan


def all_calendars(session: Session, queue: str) -> dict[str, CalendarInfo | None]:
    """Return the calendars of a queue by name, None for one whose plan is encrypted."""
    return stored_calendars(session.existing_queue(queue))


def existing_calendars(session: Session, queue: str, names: Sequence[str]) -> list[CalendarInfo]:
    """Return the named calendars, or all of a queue.

    Raises `NotFoundError` if one does not exist, and `ConfigurationError` if the plan of one of them is encrypted.
    """
    stored = all_calendars(session, queue)
    infos = []
    for name in names or stored:
        if name not in stored:
            raise NotFoundError("calendar", name, [*stored])
        info = stored[name]
        if info is None:
            raise encrypted_plan(name)
        infos.append(info)
    return infos


def shown_reminders(reminders: Sequence[Reminder], hidden: Sequence[str]) -> list[dict[str, Any]]:
    """Return reminders for JSON; what these paths of their payloads lead to is hidden."""
    if not hidden:
        return list(map(reminder_json, reminders))
    redacted = Redacted(hidden)
    return [_shown(reminder, redacted) for reminder in reminders]


def _shown(reminder: Reminder, redacted: Redacted) -> dict[str, Any]:
    row = reminder_json(reminder)
    payload = redacted.decode(msgspec.json.encode(reminder.payload))
    if not isinstance(payload, RedactedPayload):
        return row
    shown = msgspec.json.decode(payload)
    if not isinstance(shown, dict):  # it is hidden as a whole
        shown = dict.fromkeys(reminder.payload, HIDDEN)
    return {name: shown.get(name, value) for name, value in row.items()}
