"""The folder of an archive, local or in an object store: the steps of a compaction; needs no Spark."""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import fs, parquet

from delayq.archive.archive_files import (
    FORMAT,
    FORMER_NAMES,
    RECENT,
    RENAMED,
    ArchiveFile,
    Replaced,
    copy_of,
    divide,
    former_batches,
    oldest_version,
)
from delayq.bulk.files.schemas import EVENTS, arrow_schema
from delayq.errors import ConfigurationError

ROWS = 200_000
"""Rows of a row group: small enough for Parquet's statistics to skip most of a day."""

SCHEMA = arrow_schema(EVENTS)


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of an archive, local or in an object store: the steps of a compaction."""

    system: fs.FileSystem
    root: str

    @classmethod
    def open(cls, path: str) -> Folder | None:
        """Return the folder of an archive; None if this process does not find it."""
        try:
            system, root = fs.FileSystem.from_uri(_uri(path))
        except (pa.ArrowInvalid, NotImplementedError):
            return None
        found = system.get_file_info(root).type is fs.FileType.Directory
        return cls(system, root.rstrip("/")) if found else None

    @classmethod
    def made(cls, path: str) -> Folder:
        """Return the folder of an archive to write to, made if needed; raises `ConfigurationError` without success."""
        try:
            system, root = fs.FileSystem.from_uri(_uri(path))
            system.create_dir(root)
        except (pa.ArrowInvalid, NotImplementedError) as error:
            raise ConfigurationError(f"cannot write to {path}: {error}") from error
        except OSError as error:
            told = str(error.strerror or error).partition(". Detail: ")[0]
            raise ConfigurationError(f"cannot write to {path}: {told}") from error
        return cls(system, root.rstrip("/"))

    @contextmanager
    def writing(self) -> Iterator[bool]:
        """Let one process at a time archive to the folder, as far as it is on this machine; yields whether it may."""
        with self._lock(".archiving", wait=False) as is_free:
            yield is_free

    @contextmanager
    def locked(self, *, wait: bool) -> Iterator[bool]:
        """Let one process at a time compact, as far as it is on this machine; yields whether it may."""
        with self._lock(".lock", wait=wait) as is_free:
            yield is_free

    @contextmanager
    def _lock(self, name: str, *, wait: bool) -> Iterator[bool]:
        if not isinstance(self.system, fs.LocalFileSystem):
            yield True
            return
        recent = Path(self.root, RECENT)
        recent.mkdir(exist_ok=True)
        with (recent / name).open("w") as file:
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
        return [one for one in self.entries() if has_events(one)]

    def divided(self, infos: Iterable[fs.FileInfo] | None = None) -> tuple[list[ArchiveFile], list[Replaced]]:
        """Divide the files into those that count and those that are replaced."""
        # The facts first: what they make count is there already.
        former = former_batches(self.facts())
        listed = self.files() if infos is None else [one for one in infos if has_events(one)]
        return divide((info.path for info in listed), former)

    def merge(self, files: Iterable[ArchiveFile], to: str) -> int:
        """Write the events of files into one, which is there at once and whole; returns their number."""
        with MergedFile(self.system, to) as merged:
            for table in self.tables(files):
                merged.add(table)
        return merged.events

    def delete_copies(self, batches: Iterable[ArchiveFile]) -> None:
        """Delete the copies of batches, as far as there are any."""
        for file in batches:
            path = copy_of(self.root, file)
            if self.has(path.removeprefix(f"{self.root}/")):
                self.system.delete_file(path)

    def write_by_day(self, tables: Iterable[pa.Table], root: str, name: str) -> list[int]:
        """Write events into a file for each day, each there at once and whole; returns their numbers."""
        days = dict[date, MergedFile]()
        try:
            for table in tables:
                found = pc.cast(table["event_at"], pa.date32())
                for day in filter(None, found.unique().to_pylist()):
                    if day not in days:
                        for other in days.values():
                            other.flush()
                        days[day] = MergedFile(self.system, f"{root}/day={day}/{name}")
                    days[day].add(table.filter(pc.equal(found, pa.scalar(day))))
            for merged in days.values():
                merged.finish()
        finally:
            for merged in days.values():
                merged.close()
        return [merged.events for merged in days.values()]

    def copy(self, path: str, to: str) -> None:
        """Copy a file, which is there at once and whole."""
        folder, _, name = to.rpartition("/")
        self.system.create_dir(folder)
        self.system.copy_file(path, f"{folder}/.{name}.new")
        self.system.move(f"{folder}/.{name}.new", to)

    def tables(self, files: Iterable[ArchiveFile]) -> Iterator[pa.Table]:
        """Read files, with the columns of today."""
        for file in files:
            with parquet.ParquetFile(file.path, filesystem=self.system) as source:
                for group in range(source.num_row_groups):
                    yield _as_today(source.read_row_group(group))

    def facts(self) -> dict[str, Any]:
        """Return the description of the archive; {} if an older delayq wrote it."""
        path = self._facts_file()
        if path is None:
            return {}
        with self.system.open_input_file(path) as file:
            return dict(json.loads(file.read()))

    def facts_changed(self) -> datetime | None:
        """Return when the facts were changed."""
        path = self._facts_file()
        return None if path is None else changed(self.system.get_file_info(path))

    def _facts_file(self) -> str | None:
        selector = fs.FileSelector(f"{self.root}/{FORMAT}", allow_not_found=True)
        paths = [info.path for info in self.system.get_file_info(selector) if info.base_name[0] not in "._"]
        return paths[0] if paths else None

    def set_former(self, query: str, batch: int) -> None:
        """Note that the events of an older delayq's batches, up to this one, are in merged files."""
        self.change_facts(lambda facts: {"former": {**former_batches(facts), query: batch}})

    def raise_version(self) -> None:
        """Let an older delayq refuse the archive from now on: it would not find the columns of merged files."""

        def raised(facts: dict[str, Any]) -> dict[str, Any]:
            is_older = facts.get("schema", 1) < RENAMED
            return {"schema": RENAMED, "oldest": oldest_version(facts)} if is_older else {}

        self.change_facts(raised)

    def set_start(self, day: date) -> None:
        """Note that events before a day are deleted on purpose."""

        def later(facts: dict[str, Any]) -> dict[str, Any]:
            return {"start": day.isoformat()} if facts.get("start", "") < day.isoformat() else {}

        self.change_facts(later)

    def change_facts(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Replace the description of the archive at once, if `change` returns something that is to be different."""
        facts = self.facts()
        if not (changes := change(facts)):
            return
        folder, _, name = (self._facts_file() or f"{self.root}/{FORMAT}/part-00000.txt").rpartition("/")
        self.system.create_dir(folder)
        with self.system.open_output_stream(f"{folder}/.{name}.new") as file:
            file.write(json.dumps(facts | changes).encode())
        self.delete_checksum(f"{folder}/{name}")
        self.system.move(f"{folder}/.{name}.new", f"{folder}/{name}")

    def note_position(self, known: dict[str, Any] | None, position: dict[str, Any]) -> None:
        """Note how far the archive is; raises `ConfigurationError` if another process has noted something else."""

        def noted(facts: dict[str, Any]) -> dict[str, Any]:
            if facts.get("position") != known:
                raise in_use(self.root)
            return {"position": position} if position != known else {}

        self.change_facts(noted)

    def text(self, name: str) -> str:
        """Return the text of a file."""
        with self.system.open_input_file(f"{self.root}/{name}") as file:
            return str(file.read().decode())

    def numbers(self, name: str) -> list[int]:
        """Return the names of a subfolder's entries that are numbers."""
        selector = fs.FileSelector(f"{self.root}/{name}", allow_not_found=True)
        names = (info.base_name for info in self.system.get_file_info(selector))
        return sorted(int(name) for name in names if name.isdecimal())

    def note_undone(self, done: Sequence[int], queries: Sequence[str]) -> None:
        """Note a roll-back of the log, and that these queries have ended with it: another goes on."""

        def added(facts: dict[str, Any]) -> dict[str, Any]:
            return {"undone": [*facts.get("undone", ()), list(done)], "ended": list(queries)}

        self.change_facts(added)

    def delete_checksum(self, path: str) -> None:
        """Delete Hadoop's checksum of a file that is to be replaced."""
        folder, _, name = path.rpartition("/")
        if self.has(f"{folder}/.{name}.crc".removeprefix(f"{self.root}/")):
            self.system.delete_file(f"{folder}/.{name}.crc")

    def listed(self, path: str) -> list[fs.FileInfo]:
        """Return the Parquet files in a folder, at any depth."""
        selector = fs.FileSelector(path, allow_not_found=True, recursive=True)
        return [info for info in self.system.get_file_info(selector) if has_events(info)]

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        self.system.delete_file(path)

    def delete_folder(self, path: str) -> None:
        """Delete a folder and all in it."""
        self.system.delete_dir(path)


class MergedFile:
    """A file being written under a hidden name."""

    def __init__(self, system: fs.FileSystem, to: str) -> None:
        self._system, self._to = system, to
        folder, _, name = to.rpartition("/")
        system.create_dir(folder)
        self._hidden = f"{folder}/.{name}.new"  # other programs may read hidden Parquet files, too
        self._waiting = list[pa.Table]()
        self._rows = self.events = 0
        self._writer = parquet.ParquetWriter(self._hidden, SCHEMA, filesystem=system)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
        self.close()

    def add(self, table: pa.Table) -> None:
        """Add events."""
        self._waiting.append(table)
        self._rows += table.num_rows
        self.events += table.num_rows
        if self._rows >= ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what was added, as row groups of their own."""
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=ROWS)
            self._rows, self._waiting = 0, []

    def finish(self) -> None:
        """Give the file its name."""
        self.flush()
        self._writer.close()
        self._system.move(self._hidden, self._to)

    def close(self) -> None:
        """Close the file; without `finish` it stays hidden."""
        self._writer.close()


def _as_today(table: pa.Table) -> pa.Table:
    """Give the columns of an older delayq's file their names of today; what it lacks is null."""
    today = {old: name for name, old in FORMER_NAMES.items()}
    table = table.rename_columns([today.get(name, name) for name in table.column_names])
    for field in SCHEMA:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table.select(SCHEMA.names).cast(SCHEMA)


def in_use(path: str) -> ConfigurationError:
    """Return the error for a folder that another process archives to."""
    return ConfigurationError(f"another process archives to {path}: stop it, or use another folder")


def changed(info: fs.FileInfo) -> datetime:
    """Return when an entry was changed; a folder of an object store has no time."""
    return info.mtime or datetime.max.replace(tzinfo=UTC)


def has_events(info: fs.FileInfo) -> bool:
    """Return whether an entry is a file with events."""
    return info.extension == "parquet" and info.base_name[0] not in "._"


def _uri(path: str) -> str:
    return re.sub("^s3[an]:", "s3:", path) if ":/" in path else str(Path(path).absolute())
