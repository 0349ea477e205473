"""Merges the small files of an archive into files by day, beside its readers and while it grows; needs no Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import groupby

from delayq.archive.archive_files import FORMER, RECENT, ArchiveFile, batch_folder, merged_name
from delayq.archive.archive_folder import Folder, changed
from delayq.errors import ConfigurationError
from delayq.values.text import pluralize
from delayq.values.times import Duration, to_millis

DUE_AFTER = timedelta(minutes=50)
"""An archive is compacted by itself if it was not for so long: a job that runs every hour does it each time."""
KEPT_FOR = timedelta(hours=1)
"""How long the small files stay after they were merged, for readers that have begun with them."""
SMALL = 1 << 27
"""Bytes; files of a day that are larger are not merged again."""
DAY = 86_400_000

_DAYS = re.compile(r"day=(\d{4}-\d\d-\d\d)")
_LEFT = re.compile(rf"({RECENT}/)?day=[^/]+/\.[^/]+\.parquet(\.new)?$")
"""A merged file that was never finished; without the last suffix, one of an older delayq."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did."""

    merged: int = 0
    """Small files whose events are now in larger ones."""
    files: int = 0
    """Larger files written."""
    events: int = 0
    days: int = 0
    """Days deleted because they were older than `retain`."""

    def facts(self) -> dict[str, int]:
        """Return the result for programs, ready for JSON."""
        return asdict(self)

    def told(self) -> str:
        """Return the result as a sentence."""
        text = f"merged {pluralize(self.merged, 'file')} into {self.files:,}, {self.events:,} events"
        parts = [text if self.merged else "nothing to merge"]
        if self.days:
            parts.append(f"deleted {pluralize(self.days, 'day')}")
        return "; ".join(parts)


def compact_archive(path: str, *, retain: Duration | None = None) -> Compacted:
    """Merge the small files of an archive into one for each day, and return what was done.

    Safe beside readers and while the archive grows, and after a kill at any moment: each event is read once. The small
    files are deleted by a later call, an hour after they were merged. Once a day (in UTC) is over, its files are merged
    again into one; and so are those of an older delayq. With `retain`, whole days (in UTC) that are older
    are deleted; at least a day.

    This process must reach the folder; Spark is not needed. Raises `ConfigurationError` if there is no archive.
    """
    keep = check_retain(retain)
    folder = Folder.open(path)
    if folder is None:
        raise ConfigurationError(f"there is no archive at {path}, or this process does not reach it")
    with folder.locked(wait=True):
        return _compact(folder, keep)


def compact_if_due(path: str, retain: timedelta | None) -> Compacted | None:
    """Compact an archive if that was not done for an hour, and nobody else does it now; None if there is no folder."""
    folder = Folder.open(path)
    if folder is None:
        return None
    with folder.locked(wait=False) as is_free:
        there = [info for info in folder.files() if f"{folder.root}/day=" in info.path]
        merged = [changed(info) for info in there if not ArchiveFile.at(info.path).is_copy]
        if not is_free or (merged and datetime.now(UTC) - max(merged) < DUE_AFTER):
            return Compacted()
        return _compact(folder, retain)


def check_retain(retain: Duration | None) -> timedelta | None:
    """Return how long events are kept; raises `ConfigurationError` for less than a day."""
    return None if retain is None else timedelta(milliseconds=to_millis(retain, "retain", min=DAY))


def _compact(folder: Folder, retain: timedelta | None) -> Compacted:
    now = datetime.now(UTC)
    days = 0 if retain is None else _forget(folder, now - retain)
    done = [
        *_merge_former(folder),
        *_merge_recent(folder),
        *_merge_days(folder, now.date(), now - KEPT_FOR),
    ]
    _publish(folder, now - KEPT_FOR)
    _clean(folder, datetime.now(UTC) - KEPT_FOR)
    return Compacted(
        sum(one.merged for one in done), sum(one.files for one in done), sum(one.events for one in done), days
    )


def _merge_former(folder: Folder) -> Iterator[Compacted]:
    """Merge the batches of an older delayq; what they became counts from the moment that the facts tell so."""
    counting, _ = folder.divided()
    former = [file for file in counting if file.day is None and file.query]
    for query, batches in groupby(former, key=lambda file: file.query):
        group = list(batches)
        folder.raise_version()
        name = merged_name(FORMER + query, group[0].first, group[-1].last)
        written = folder.write_by_day(folder.tables(group), folder.root, name)
        folder.set_former(query, group[-1].last)
        yield Compacted(len(group), len(written), sum(written))


def _merge_recent(folder: Folder) -> Iterator[Compacted]:
    """Merge the batches."""
    counting, _ = folder.divided()
    small = [file for file in counting if not file.is_merged and file.day]
    if small:
        folder.raise_version()
    for (day, query), batches in groupby(small, key=lambda file: (file.day, file.query)):
        group = list(batches)
        name = merged_name(query, group[0].first, group[-1].last)
        events = folder.merge(group, f"{folder.root}/day={day}/{name}")
        folder.delete_copies(group)  # now, because other programs see both
        yield Compacted(len(group), 1, events)


def _merge_days(folder: Folder, today: date, before: datetime) -> Iterator[Compacted]:
    """Merge the files of each day that is over, if no more came for a while: first where other programs do not look."""
    infos = {info.path: info for info in folder.files()}

    def is_ready(file: ArchiveFile) -> bool:
        info = infos.get(file.path)
        is_small = info is not None and info.size < SMALL and changed(info) < before
        return is_small and file.is_merged and not file.is_hidden and file.day is not None and file.day < today

    counting, _ = folder.divided()
    for (day, query, ready), files in groupby(counting, key=lambda file: (file.day, file.query, is_ready(file))):
        group = list(files)
        if ready and len(group) > 1:
            name = merged_name(query, group[0].first, group[-1].last)
            yield Compacted(len(group), 1, folder.merge(group, f"{folder.root}/{RECENT}/day={day}/{name}"))


def _publish(folder: Folder, before: datetime) -> None:
    """Let other programs see the merged files of days, which delayq's readers have begun with long ago."""
    infos = {info.path: info for info in folder.files()}
    counting, _ = folder.divided()
    for file in counting:
        if file.is_merged and file.is_hidden and file.path in infos and changed(infos[file.path]) < before:
            name = merged_name(file.query, file.first, file.last)
            folder.copy(file.path, f"{folder.root}/day={file.day}/{name}")


def _forget(folder: Folder, before: datetime) -> int:
    """Delete the days that ended before a time; returns how many there were."""
    days, paths = set[date](), list[str]()
    for info in folder.entries():
        if (found := _DAYS.search(info.path)) and (day := date.fromisoformat(found[1])) < before.date():
            days.add(day)
            paths.append(info.path[: found.end()])
    if days:
        folder.set_start(before.date())
    # The merged files last: else batches that they have replaced would count again after a kill.
    for path in sorted(set(paths), key=lambda path: (f"/{RECENT}/" not in path, path)):
        folder.delete_folder(path)
    return len(days)


def _clean(folder: Folder, before: datetime) -> None:
    """Delete what was replaced before a time, and what a kill left behind then."""
    infos = {info.path: info for info in folder.entries()}
    counting, replaced = folder.divided(infos.values())
    needed = {batch_folder(file.path) for file in counting}
    used = {path.rpartition("/")[0] for path in infos}
    noted = folder.facts_changed()
    copies = [one for one in map(ArchiveFile.at, infos) if one.is_copy]
    batches = {(file.day, file.query, file.first) for file in counting if not file.is_merged}
    folder.delete_copies(one for one in copies if (one.day, one.query, one.first) not in batches)
    for file, by in replaced:
        # What merged files of a day replace was replaced long before they were made.
        since = noted if by is None else None if by.is_hidden else changed(infos[by.path])
        if file.is_merged and not file.is_hidden:
            is_needed = by is not None and by.is_hidden  # else at once: other programs see both
        else:
            is_needed = since is not None and since >= before
        if is_needed:
            needed.add(batch_folder(file.path))
        elif file.is_merged or file.day is None:
            folder.delete_file(file.path)
    for path, info in infos.items():
        inside = path.removeprefix(f"{folder.root}/")
        if changed(info) >= before:
            continue
        is_unused = path not in (needed if inside.startswith(f"{RECENT}/part=") else used)
        if is_unused and re.fullmatch(rf"{RECENT}/(part|day)=[^/]+", inside):
            folder.delete_folder(path)
        elif _LEFT.match(inside):
            folder.delete_file(path)
