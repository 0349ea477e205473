"""The files of an archive, by their names: which events a file has, and which files count.

    _delayq/                                          the facts: its schema version, the oldest in it, and its queue
    _recent/part=<query>-<batch>/day=<day>/….parquet  a micro-batch, hidden from readers of the whole folder
    day=<day>/<query>-<batch>.batch.parquet           a copy of it for other programs, until it is merged
    day=<day>/<query>-<first>-<last>.parquet          the events that these batches have of a day, merged
    _recent/day=<day>/….parquet                       the same of a day that is over, merged from several such files
    part=<query>-<batch>/….parquet                    a micro-batch of an older delayq
    day=<day>/former-<query>-<first>-<last>.parquet   the events of such batches; the facts tell up to which they count

A merged file replaces the batches in its name from the moment it is there, for its day. So no list of files is kept,
a kill between two steps is harmless, and the small files can stay for a while, for readers that have begun with them.
Other programs read the `day=` folders, which have all events at any time. While a file replaces others there, they may
see both, for a moment.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from delayq.errors import ConfigurationError
from delayq.values.text import pluralize
from delayq.values.times import timestamp

RECENT = "_recent"
FORMAT = "_delayq"
UNDONE = "_undone"
"""The folder in an archive with the events of lost entries, by the number of the roll-back."""
UNFINISHED = "_temporary"
"""Where Spark's tasks write: a killed one leaves files there, whole or in part."""
SCHEMA_VERSION = 4
"""1: only `part=` folders. 2: columns named `offset`, `index`, `at`. 3: progress in a checkpoint of Spark.

A reader refuses a later version than its own.
"""
RENAMED = 3
"""The first version with the column names of today."""
FORMER_NAMES: Mapping[str, str] = MappingProxyType({"log_offset": "offset", "entry_index": "index", "event_at": "at"})
"""Columns whose names before version 3 were reserved words of SQL."""

FORMER = "former-"
"""Begins the query's name in files that have the events of batches of an older delayq."""

_DAY = r"day=(?P<day>\d{4}-\d\d-\d\d)"
_BATCH = re.compile(rf"/part=(?P<query>[^/]+)-(?P<first>\d+)/{_DAY}/[^/]+\.parquet$")
_COPY = re.compile(rf"/{_DAY}/(?P<query>[^/]+)-(?P<first>\d+)\.batch\.parquet$")
_OLD_BATCH = re.compile(r"/part=(?P<query>[^/]+)-(?P<first>\d+)/[^/]+\.parquet$")
_MERGED = re.compile(rf"/{_DAY}/(?P<query>[^/]+)-(?P<first>\d+)-(?P<last>\d+)\.parquet$")


class ArchiveFile(NamedTuple):
    """A Parquet file of an archive, and the events it has; no day if an older delayq wrote it."""

    path: str
    day: date | None = None
    query: str = ""
    first: int = 0
    """Its first batch."""
    last: int = 0
    is_merged: bool = True
    is_hidden: bool = False
    """Whether other programs do not see it."""
    is_copy: bool = False
    """Whether it is a copy of a batch, for other programs only."""

    @classmethod
    def at(cls, path: str) -> Self:
        """Return the file at a path."""
        if found := _BATCH.search(path):
            batch = int(found["first"])
            day = date.fromisoformat(found["day"])
            return cls(path, day, found["query"], batch, batch, is_merged=False, is_hidden=True)
        if found := _COPY.search(path):
            batch = int(found["first"])
            return cls(path, date.fromisoformat(found["day"]), found["query"], batch, batch, is_copy=True)
        if found := _MERGED.search(path):
            batches, is_hidden = (int(found["first"]), int(found["last"])), f"/{RECENT}/" in path
            return cls(path, date.fromisoformat(found["day"]), found["query"], *batches, is_hidden=is_hidden)
        if found := _OLD_BATCH.search(path):
            batch = int(found["first"])
            return cls(path, None, found["query"], batch, batch, is_merged=False)
        return cls(path)


def check_version(facts: Mapping[str, Any], path: str) -> None:
    """Raise `ConfigurationError` if a later delayq wrote an archive."""
    if facts.get("schema", 1) > SCHEMA_VERSION:
        raise ConfigurationError(
            f"a later delayq wrote the archive at {path}: its schema is {facts['schema']}, and this one reads up to"
            f" {SCHEMA_VERSION}; upgrade delayq"
        )


def oldest_version(facts: Mapping[str, Any]) -> int:
    """Return the oldest schema version that a file of an archive may have."""
    return int(facts.get("oldest", facts.get("schema", 1)))


def start_of(facts: Mapping[str, Any]) -> datetime | None:
    """Return the time before which `retain` has deleted the events of an archive; None if it has deleted none."""
    day = facts.get("start")
    return None if day is None else datetime.fromisoformat(day).replace(tzinfo=UTC)


def of_period(files: Iterable[ArchiveFile], start: datetime | None, until: datetime | None) -> list[ArchiveFile]:
    """Return the files that may have events of a period; raises `ConfigurationError` for a time without a zone."""
    for name, at in (("start", start), ("until", until)):
        if at is not None:
            timestamp(at, name)
    first = date.min if start is None else start.astimezone(UTC).date()
    last = date.max if until is None else until.astimezone(UTC).date()
    return [file for file in files if file.day is None or first <= file.day <= last]


def former_batches(facts: Mapping[str, Any]) -> Mapping[str, int]:
    """Return up to which batch the events of an older delayq are in merged files, by query."""
    return dict(facts.get("former", {}))


def merged_name(query: str, first: int, last: int) -> str:
    """Return the name of the file with the events of some batches."""
    return f"{query}-{first}-{last}.parquet"


def copy_of(root: str, file: ArchiveFile) -> str:
    """Return the path of the copy of a batch, in an archive's folder."""
    return f"{root}/day={file.day}/{file.query}-{file.first}.batch.parquet"


def batch_folder(path: str) -> str:
    """Return the folder of a batch from the path of one of its files."""
    return path.partition("/day=")[0]


class Replaced(NamedTuple):
    """A file whose events a merged file has as well."""

    file: ArchiveFile
    by: ArchiveFile | None
    """None for a batch of an older delayq."""


def divide(
    paths: Iterable[str], former: Mapping[str, int] = MappingProxyType({})
) -> tuple[list[ArchiveFile], list[Replaced]]:
    """Divide files into those that count, by day and batch, and those that are replaced.

    Copies and what a task of Spark has not finished are neither, nor what was merged from batches of an older delayq,
    before the facts tell that it counts: see `former_batches`.
    """
    groups = defaultdict[tuple[date | None, str], list[ArchiveFile]](list)
    for file in map(ArchiveFile.at, (path for path in paths if f"/{UNFINISHED}/" not in path)):
        if file.is_copy:
            continue
        if not file.query.startswith(FORMER) or file.last <= former.get(file.query.removeprefix(FORMER), -1):
            groups[file.day, file.query].append(file)
    counting, replaced = list[ArchiveFile](), list[Replaced]()
    for (day, query), files in groups.items():
        if day is None:
            new = [file for (day, name), files in groups.items() if day and name == query for file in files]
            for file in files:
                # The first batch after an upgrade may be one that the older delayq had begun.
                is_again = any(one.first <= file.first <= one.last for one in new)
                if file.query and (is_again or file.first <= former.get(query, -1)):
                    replaced.append(Replaced(file, None))
                else:
                    counting.append(file)
            continue
        # A merged file comes before those inside it: of two made at a time, one has all batches of the other and more.
        merged = list[ArchiveFile]()
        for file in sorted(files, key=lambda one: (not one.is_merged, one.first, -one.last, one.is_hidden)):
            before = bisect_right(merged, file.first, key=lambda one: one.first) - 1
            if before >= 0 and file.last <= merged[before].last:
                replaced.append(Replaced(file, merged[before]))
            else:
                (merged if file.is_merged else counting).append(file)
        counting += merged
    return sorted(counting, key=lambda one: (one.day or date.min, one.query, one.first, one.path)), replaced


class Undone(NamedTuple):
    """What the server lost after it was archived, in one roll-back."""

    first: int
    """The first offset; the log goes on here with other entries."""
    last: int
    events: int
    """Archived events that were moved to `_undone`."""

    def told(self) -> str:
        """Return it as a sentence."""
        events = pluralize(self.events, "archived event")
        return f"the log was rolled back: {events}, offsets {self.first} to {self.last}, moved to {UNDONE}"


def undone_of(facts: Mapping[str, Any]) -> list[Undone]:
    """Return the roll-backs of an archive, the first one first, by its facts."""
    return [Undone(*one) for one in facts.get("undone", ())]
