"""Finds schedules left over in Redis: declared by a function that was renamed or removed since."""

from __future__ import annotations

from collections.abc import Collection

from delayq.broker.context import QueueContext
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError
from delayq.safe_log import SafeLog
from delayq.schedules.calls import schedules_page_call
from delayq.schedules.definition import declared_label, unpack
from delayq.schedules.selection import ScheduleSelection, find
from delayq.schedules.store import BATCH

log = SafeLog("delayq.schedules")

NAMED = 10
"""Names in a line of the log."""
LOOKED_AT = 1000
"""Names of declared schedules that a start reads."""


def find_orphans(
    context: QueueContext, declared: Collection[str], *, at_most: int | None = None
) -> Operation[list[str]]:
    """Return the names of schedules that this service has declared and that are not in `declared`, sorted.

    The queue's option `owner` names the service; all without one count as the same. With `at_most`, only so many names
    are looked at.
    """
    selection = ScheduleSelection(label=declared_label(context.settings.owner))
    orphans: list[str] = []
    cursor = ""
    while True:
        names, cursor = yield from find(context, selection, cursor, at_most or LOOKED_AT)
        remaining = [name for name in names if name not in declared]
        while remaining:  # one reply has a limited number of bytes
            (page,) = yield [schedules_page_call(context.calls, remaining, limit=BATCH)]
            orphans += [stored.name for stored in page.schedules if _is_declared(stored.spec, selection.label)]
            read = page.schedules[-1].name if page.schedules else remaining[-1]
            remaining = remaining[remaining.index(read) + 1 :]
        if at_most or not cursor:
            return sorted(orphans)


def log_orphans(context: QueueContext, declared: Collection[str]) -> Operation[None]:
    """Log in one line which schedules this service has declared but no longer declares."""
    orphans = yield from find_orphans(context, declared, at_most=LOOKED_AT)
    if orphans:
        shown = ", ".join(orphans[:NAMED]) + (", …" if len(orphans) > NAMED else "")
        text = "queue %s: schedules are left over that this program does not declare: %s; %s"
        owned = "remove them, or call schedules.apply(prune=True)"
        unowned = "remove them, or give each service that declares schedules here an owner"
        hint = owned if context.settings.owner else unowned
        log.warning(text, context.queue, shown, hint, extra={"queue": context.queue, "schedules": orphans})


def _is_declared(spec: bytes, label: str) -> bool:
    try:
        definition = unpack(spec).definition
    except ConfigurationError:  # it cannot be read
        return False
    return definition.declared and label in definition.labels
