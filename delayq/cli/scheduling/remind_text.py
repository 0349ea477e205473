"""Output of `delayq remind`: sentences, tables and JSON of calendars, changes and reminders."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from delayq.cli.support.output import print_rich, table
from delayq.cli.support.zones import own_iso, zoned_text
from delayq.reminders import CalendarInfo, Changes, Reading, Reminder
from delayq.values.text import iso, pluralize, relative_time
from delayq.values.times import from_millis

_VERBS = {"new": "sent", "moved": "moved", "changed": "changed", "cancelled": "cancelled"}
_TITLES = ("change", "due", "start", "offset", "summary")


def change_counts(changes: Changes) -> dict[str, int]:
    """Return the number of reminders of each kind of change."""
    lists = {name: len(getattr(changes, name)) for name in (*_VERBS, "refused", "late")}
    return lists | {name: getattr(changes, name) for name in ("unchanged", "past", "spared")}


Account = dict[str, list[str]]


def import_json(queue: str, name: str, reading: Reading, changes: Changes, account: Account) -> dict[str, Any]:
    """Return the result of an import for JSON."""
    problems = [
        {"file": one.file, "line": one.line, "event": one.event, "uid": one.uid, "problem": one.what}
        for one in reading.problems
    ]
    counts = change_counts(changes) | {"account": {kind: len(uids) for kind, uids in account.items()}}
    return {"queue": queue, "calendar": name, "events": reading.found, **counts, "problems": problems}


def left_out_json(account: Account) -> list[dict[str, str]]:
    """Return the events that are not planned."""
    return [{"uid": uid, "why": _words(kind)} for kind, uids in account.items() if kind != "planned" for uid in uids]


def _words(kind: str) -> str:
    return kind.replace("_", " ")


def summary(changes: Changes, account: Account | None = None, *, would: bool = False) -> str:
    """Return what an import did, or would do, in one sentence."""
    numbers = change_counts(changes)
    done = [f"{numbers[name]:,} {'to be ' if would else ''}{verb}" for name, verb in _VERBS.items() if numbers[name]]
    rest = [f"{numbers[name]:,} {name}" for name in ("unchanged", "past") if numbers[name]]
    if changes.at:
        rest.append(f"{len(changes.at):,} late, sent now" if not would else f"{len(changes.at):,} late, to be sent now")
    events = "" if account is None else f"{_events(account)}; "
    return f"{events}reminders: {', '.join([*done, *rest]) or 'none'}"


def _events(account: Account) -> str:
    """Return how many events were read, and what became of them unless all are planned."""
    counts = {kind: len(uids) for kind, uids in account.items() if uids}
    events = pluralize(sum(counts.values()), "event")
    if not counts.keys() - {"planned"}:
        return events
    return f"{events}: {', '.join(f'{count:,} {_words(kind)}' for kind, count in counts.items())}"


def changes_json(changes: Changes) -> list[dict[str, Any]]:
    """Return every change ordered by due time; cancelled reminders, whose due time is unknown, come last."""
    changed = [
        (one.due, {"change": verb} | reminder_json(one))
        for verb, ones in (("send", changes.new), ("move", changes.moved), ("change", changes.changed))
        for one in ones
    ]
    rows = [row for _, row in sorted(changed, key=lambda pair: pair[0])]
    return [*rows, *({"change": "cancel", "id": id} for id in changes.cancelled)]


def reminder_json(reminder: Reminder) -> dict[str, Any]:
    """Return a reminder for JSON."""
    start = {"id": reminder.id, "due": iso(from_millis(reminder.due)), "start": reminder.start}
    event = {name: getattr(reminder.event, name) for name in ("summary", "location", "uid", "recurrence")}
    return {**start, "offset": reminder.offset, **event}


def print_reminders(rows: list[dict[str, Any]]) -> None:
    """Print reminders, or changes to them, as a table, with times in the zone of the command."""
    rows = [
        row | {"due": zoned_text(row["due"]), "start": start_text(row["start"])} if "due" in row else row
        for row in rows
    ]
    titles = [title for title in _TITLES if title == "summary" or any(title in row for row in rows)]
    cells = [[str(row.get(title, row["id"] if title == "summary" else "")) for title in titles] for row in rows]
    print_rich(table(titles, cells, fill=True))


def start_text(text: str) -> str:
    """Return the start of an event: as its calendar has it, or in the zone of `--tz`."""
    at = datetime.fromisoformat(text)
    return text if at.tzinfo is None else own_iso(at)  # that of a whole day is a date


def print_calendars(infos: Mapping[str, CalendarInfo | None], now: datetime) -> None:
    """Print calendars as a table; None is one that is encrypted."""
    rows: list[list[str | int]] = []
    for name, info in infos.items():
        if info is None:
            rows.append([name, "encrypted", *[""] * 5])
            continue
        ahead = upcoming(info, now)
        changed = relative_time(info.changed, now) if info.finished else "interrupted: import again"
        following = relative_time(from_millis(ahead[0].due), now) if ahead else ""
        rows.append([name, len(ahead), following, changed, ", ".join(info.before), info.quiet, info.tz])
    print_rich(table(["calendar", "reminders", "next", "changed", "before", "quiet", "tz"], rows))


def calendar_json(name: str, info: CalendarInfo | None, now: datetime) -> dict[str, Any]:
    """Return a calendar for JSON; None is one that is encrypted."""
    if info is None:
        unknown = ("changed", "reminders", "next", "finished", "before", "quiet", "tz")
        return {"calendar": name, **dict.fromkeys(unknown), "encrypted": True}
    ahead = upcoming(info, now)
    following = {"reminders": len(ahead), "next": iso(from_millis(ahead[0].due)) if ahead else None}
    facts = {fact: getattr(info, fact) for fact in ("finished", "before", "quiet", "tz")}
    return {"calendar": name, "changed": iso(info.changed), **following, **facts, "encrypted": False}


def upcoming(info: CalendarInfo, now: datetime) -> list[Reminder]:
    """Return the reminders of a calendar that are due in the future, the next first."""
    return [one for one in info.reminders if from_millis(one.due) > now]
