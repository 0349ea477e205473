"""What is cold of a queue: counts by day, which Redis knows, and where one message is, which the files know."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from delayq.bulk.cold.cold_calls import ColdChange, ColdRow, read_change
from delayq.bulk.cold.cold_folder import ColdFolder
from delayq.bulk.cold.cold_pass import cold_target
from delayq.bulk.connection import calls_of, connect
from delayq.queue.inspecting.cold_tier import read_cold
from delayq.values.times import Duration, from_millis


@dataclass(frozen=True, slots=True)
class ColdStatus:
    """What is cold of a queue, and whether it was brought back in time."""

    queue: str
    where: str
    """The path of the folder, where it was used last; '' if the queue has no cold tier."""
    cold: int
    days: Mapping[date, int]
    """How many messages are due on each day (UTC)."""
    late: int
    """Messages of days that should be back: half of `keep` or more ahead of them is over."""

    def facts(self) -> dict[str, Any]:
        """Return all fields by name, ready for JSON."""
        return asdict(self) | {"days": {day.isoformat(): count for day, count in self.days.items()}}


@dataclass(frozen=True, slots=True)
class ColdMessage:
    """A message in a file of the cold tier."""

    id: str
    file: str
    """The path of its file in the folder."""
    due: datetime
    """When it is due, after a `reschedule` the new time."""
    retries: int
    size: int
    """Bytes of its stored payload."""
    withdrawn: bool
    """Whether it was cancelled, so that it does not come back."""


def cold_status(
    queue: str, *, url: str | None = None, prefix: str = "delayq", deadline: Duration | None = None
) -> ColdStatus:
    """Return what is cold of a queue; reads Redis alone, and changes nothing. Raises as `move_cold`."""
    target = cold_target(queue, url, prefix, deadline)
    calls, executor = calls_of(target), connect(target)
    tier, now = executor.call(read_cold(calls)), executor.call(calls.time())
    return ColdStatus(queue, tier.where, sum(tier.days.values()), tier.days, sum(tier.late(now).values()))


def find_cold(
    queue: str,
    id: str,
    folder: str | Path = "",
    *,
    url: str | None = None,
    prefix: str = "delayq",
    deadline: Duration | None = None,
) -> ColdMessage | None:
    """Find a message in the files that count; None if they do not have it. Reads the ids of all of them.

    `folder` is by default where the tier was used last. Raises as `move_cold`.
    """
    target = cold_target(queue, url, prefix, deadline)
    calls, executor = calls_of(target), connect(target)
    tier = executor.call(read_cold(calls))
    if not tier.folder:
        return None
    files = ColdFolder.open(Path(folder or tier.where).absolute(), queue, prefix, tier.folder)
    for file in tier.files:
        with suppress(FileNotFoundError):  # brought back, or merged, meanwhile
            ids = files.read_ids(file.name)
            if id in ids[file.back :]:
                row = next(row for rows in files.read(file.name, ids.index(id, file.back)) for row in rows)
                return _found(row, file.name, executor.call(read_change(calls, id)))
    return None


def _found(row: ColdRow, file: str, change: ColdChange | None) -> ColdMessage | None:
    """Return a message of a file; None if it is back before the file."""
    if change is not None and change.is_done:
        return None
    due = row.due if change is None or change.due is None else change.due
    withdrawn = change is not None and change.due is None
    return ColdMessage(row.id, file, from_millis(due), row.retries, len(row.payload), withdrawn)
