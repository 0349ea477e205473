"""Merges the small files of an archive into files by day, beside its readers and while it grows; needs no Spark."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from pathlib import Path

import pyarrow as pa
from pyarrow import fs, parquet

from delayq.errors import ConfigurationError
from delayq.spark.datasource.schemas import EVENTS, arrow_schema
from delayq.spark.pipelines.archive_files import RECENT, ArchiveFile, batch_folder, divide, merged_name
from delayq.text import pluralize
from delayq.times import Duration, to_millis

DUE_AFTER = timedelta(minutes=50)
"""An archive is compacted by itself if it was not for so long: a job that runs every hour does it each time."""
KEPT_FOR = timedelta(hours=1)
"""How long the small files stay after they were merged, for readers that have begun with them."""
ROWS = 200_000
"""Rows of a row group: small enough for Parquet's statistics to skip most of a day."""
DAY = 86_400_000

SCHEMA = arrow_schema(EVENTS)
_DAYS = re.compile(r"day=(\d{4}-\d\d-\d\d)")


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
    files are deleted by a later call, an hour after they were merged. With `retain`, whole days (in UTC) that are older
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
        merged = [_changed(info) for info in folder.files() if f"{folder.root}/day=" in info.path]
        if not is_free or (merged and datetime.now(UTC) - max(merged) < DUE_AFTER):
            return Compacted()
        return _compact(folder, retain)


def check_retain(retain: Duration | None) -> timedelta | None:
    """Return how long events are kept; raises `ConfigurationError` for less than a day."""
    return None if retain is None else timedelta(milliseconds=to_millis(retain, "retain", min=DAY))


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of an archive, local or in an object store: the steps of a compaction."""

    system: fs.FileSystem
    root: str

    @classmethod
    def open(cls, path: str) -> Folder | None:
        """Return the folder of an archive; None if this process does not find it."""
        where = re.sub("^s3[an]:", "s3:", path) if ":/" in path else str(Path(path).absolute())
        try:
            system, root = fs.FileSystem.from_uri(where)
        except (pa.ArrowInvalid, NotImplementedError):
            return None
        found = system.get_file_info(root).type is fs.FileType.Directory
        return cls(system, root.rstrip("/")) if found else None

    @contextmanager
    def locked(self, *, wait: bool) -> Iterator[bool]:
        """Let one process at a time compact, as far as it is on this machine; yields whether it may."""
        if not isinstance(self.system, fs.LocalFileSystem):
            yield True
            return
        recent = Path(self.root, RECENT)
        recent.mkdir(exist_ok=True)
        with (recent / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def has(self, name: str) -> bool:
        """Return whether the folder has an entry of this name."""
        return self.system.get_file_info(f"{self.root}/{name}").type is not fs.FileType.NotFound

    def entries(self) -> list[fs.FileInfo]:
        """Return all that belongs to the events; the batches first, so that none is missed while it is merged."""
        top = self.system.get_file_info(fs.FileSelector(self.root))
        names = sorted(one.path for one in top if one.base_name.startswith((RECENT, "day=", "part=")))
        return [one for path in names for one in self.system.get_file_info(fs.FileSelector(path, recursive=True))]

    def files(self) -> list[fs.FileInfo]:
        """Return the files with events."""
        return [one for one in self.entries() if _has_events(one)]

    def merge(self, files: list[ArchiveFile], to: str) -> int:
        """Write the events of files into one, which is there at once and whole; returns their number."""
        folder, _, name = to.rpartition("/")
        self.system.create_dir(folder)
        hidden = f"{folder}/.{name}"
        rows, waiting, events = 0, list[pa.Table](), 0
        with parquet.ParquetWriter(hidden, SCHEMA, filesystem=self.system) as writer:
            for file in files:
                with parquet.ParquetFile(file.path, filesystem=self.system) as source:
                    for group in range(source.num_row_groups):
                        table = source.read_row_group(group, columns=SCHEMA.names).cast(SCHEMA)
                        waiting.append(table)
                        rows += table.num_rows
                        events += table.num_rows
                        if rows >= ROWS:
                            writer.write_table(pa.concat_tables(waiting), row_group_size=ROWS)
                            rows, waiting = 0, []
            if waiting:
                writer.write_table(pa.concat_tables(waiting), row_group_size=ROWS)
        self.system.move(hidden, to)
        return events

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        self.system.delete_file(path)

    def delete_folder(self, path: str) -> None:
        """Delete a folder and all in it."""
        self.system.delete_dir(path)


def _compact(folder: Folder, retain: timedelta | None) -> Compacted:
    days = 0 if retain is None else _forget(folder, datetime.now(UTC) - retain)
    counting, _ = divide(info.path for info in folder.files())
    small = [file for file in counting if not file.is_merged]
    files = merged = events = 0
    for (day, query), batches in groupby(small, key=lambda file: (file.day, file.query)):
        group = list(batches)
        name = merged_name(query, group[0].first, group[-1].last)
        events += folder.merge(group, f"{folder.root}/day={day}/{name}")
        merged += len(group)
        files += 1
    _clean(folder, datetime.now(UTC) - KEPT_FOR)
    return Compacted(merged, files, events, days)


def _forget(folder: Folder, before: datetime) -> int:
    """Delete the days that ended before a time; returns how many there were."""
    days, paths = set[date](), list[str]()
    for info in folder.entries():
        if (found := _DAYS.search(info.path)) and (day := date.fromisoformat(found[1])) < before.date():
            days.add(day)
            paths.append(info.path[: found.end()])
    # The merged files last: else batches that they have replaced would count again after a kill.
    for path in sorted(set(paths), key=lambda path: (f"/{RECENT}/" not in path, path)):
        folder.delete_folder(path)
    return len(days)


def _clean(folder: Folder, before: datetime) -> None:
    """Delete what was replaced before a time, and what a kill left behind then."""
    infos = {info.path: info for info in folder.entries()}
    counting, replaced = divide(path for path, info in infos.items() if _has_events(info))
    needed = {batch_folder(file.path) for file in counting}
    for file, by in replaced:
        if file.is_merged:
            folder.delete_file(file.path)
        elif _changed(infos[by.path]) >= before:
            needed.add(batch_folder(file.path))
    for path, info in infos.items():
        inside = path.removeprefix(f"{folder.root}/")
        if _changed(info) >= before:
            continue
        if inside.startswith(f"{RECENT}/part=") and inside.count("/") == 1 and path not in needed:
            folder.delete_folder(path)
        elif inside.startswith("day=") and info.extension == "parquet" and not _has_events(info):
            folder.delete_file(path)


def _changed(info: fs.FileInfo) -> datetime:
    """Return when an entry was changed; a folder of an object store has no time."""
    return info.mtime or datetime.max.replace(tzinfo=UTC)


def _has_events(info: fs.FileInfo) -> bool:
    return info.extension == "parquet" and info.base_name[0] not in "._"
