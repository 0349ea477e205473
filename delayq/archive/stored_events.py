"""Reads an archive without Spark: the files that count, of a period or of all times, as a table for queries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyarrow import dataset

from delayq.archive.archive_files import (
    FORMER_NAMES,
    RENAMED,
    ArchiveFile,
    Undone,
    check_version,
    of_period,
    oldest_version,
    start_of,
    undone_of,
)
from delayq.archive.archive_folder import SCHEMA, Folder
from delayq.archive.sql_engine import DuckDB, micros_of
from delayq.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class StoredEvents:
    """The events of an archive: the files that it had when it was opened, which stay for an hour."""

    folder: Folder
    facts: dict[str, Any]
    files: list[ArchiveFile]
    start: datetime | None
    until: datetime | None

    @property
    def begin(self) -> datetime | None:
        """The time before which `retain` has deleted events; None if it has deleted none."""
        return start_of(self.facts)

    @property
    def undone(self) -> list[Undone]:
        """The roll-backs that the archive has seen, the first one first."""
        return undone_of(self.facts)

    def table(self, engine: DuckDB) -> str:
        """Return the events as a table of an engine, with the columns of EVENTS."""
        if not self.files:
            return engine.table(SCHEMA.empty_table())
        schema, columns = SCHEMA, ", ".join(SCHEMA.names)
        if oldest_version(self.facts) < RENAMED:
            former = [pa.field(old, SCHEMA.field(name).type) for name, old in FORMER_NAMES.items()]
            schema = pa.schema([*SCHEMA, *former])
            named = {name: f"coalesce({name}, `{old}`) AS {name}" for name, old in FORMER_NAMES.items()}
            columns = ", ".join(named.get(name, name) for name in SCHEMA.names)
        paths = [file.path for file in self.files]
        source: Any = dataset.dataset(paths, schema=schema, format="parquet", filesystem=self.folder.system)
        ends = ((">=", self.start), ("<", self.until))
        within = [f"event_at {sign} timestamp_micros({micros_of(at)})" for sign, at in ends if at is not None]
        events = engine.query(f"SELECT {columns} FROM {{files}}", files=engine.table(source))
        return engine.query(f"SELECT * FROM {{events}} WHERE {' AND '.join(within) or 'true'}", events=events)


def open_archive(path: str, *, start: datetime | None = None, until: datetime | None = None) -> StoredEvents:
    """Return the events of an archive; of a period, if `start` (inclusive) or `until` (exclusive) is given.

    Files of other days are not opened, and Parquet's statistics skip most of the rest. Each event is read once, also
    while the archive grows or is compacted.

    Raises `ConfigurationError` if there is no archive, if this process does not reach it, or if a later delayq wrote
    it.
    """
    folder = Folder.open(path)
    facts = {} if folder is None else folder.facts()
    files = [] if folder is None else folder.divided()[0]
    if folder is None or not (files or facts):
        raise ConfigurationError(f"there is no archive at {path}")
    check_version(facts, path)
    return StoredEvents(folder, facts, of_period(files, start, until), start, until)
