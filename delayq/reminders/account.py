"""The account of an import: what became of each event of its files."""

from __future__ import annotations

from delayq.reminders.ics.ics_reader import Reading
from delayq.reminders.plan_diff import Changes
from delayq.reminders.planner import Rules, id_prefix

KINDS = ("planned", "past", "without_alarm", "refused", "later", "cancelled")
"""What can become of an event: `later` is after the range that was read, `refused` cannot be read or not be sent."""


def account_of(reading: Reading, changes: Changes, rules: Rules) -> dict[str, list[str]]:
    """Return the uids of all events in the files of a reading, by what became of them in an update or preview.

    `rules` are those of its `Calendar`. A series counts as one event, each changed occurrence as another.
    """
    account: dict[str, list[str]] = {kind: list(reading.left_out.get(kind, ())) for kind in KINDS}
    planned = {one.event.uid for one in changes.kept.values()}
    reminded = {event.uid for event in reading.events if rules.offsets or event.alarms}
    refused = {id.rpartition("/")[0] + "/" for id in changes.refused}
    refused_uids = {event.uid for event in reading.events if refused and id_prefix(rules.calendar, event) in refused}
    for uid, size in reading.sizes.items():
        if uid not in reminded:
            kind = "without_alarm"
        elif uid in refused_uids:
            kind = "refused"
        else:
            kind = "planned" if uid in planned else "past"
        account[kind] += [uid] * size
    return account
