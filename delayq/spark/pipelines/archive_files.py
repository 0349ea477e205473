"""The files of an archive, by their names: which events a file has, and which files count.

    _delayq/                                          the schema version of the archive, and its queue
    _recent/part=<query>-<batch>/day=<day>/….parquet  a micro-batch, hidden from readers of the whole folder
    day=<day>/<query>-<first>-<last>.parquet          the events that these batches have of a day, merged
    part=<query>-<batch>/….parquet                    a micro-batch of an older delayq

A merged file replaces the batches in its name from the moment it is there, for its day. So no list of files is kept,
a kill between two steps is harmless, and the small files can stay for a while, for readers that have begun with them.
Other programs read the `day=` folders: nothing there is ever replaced, and each event is there once.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from datetime import date
from typing import NamedTuple, Self

RECENT = "_recent"
FORMAT = "_delayq"
UNFINISHED = "_temporary"
"""Where Spark's tasks write: a killed one leaves files there, whole or in part."""
SCHEMA_VERSION = 2
"""1: only `part=` folders, by an older delayq. A reader refuses a later version than its own."""

_DAY = r"day=(?P<day>\d{4}-\d\d-\d\d)"
_BATCH = re.compile(rf"/part=(?P<query>[^/]+)-(?P<first>\d+)/{_DAY}/[^/]+\.parquet$")
_MERGED = re.compile(rf"/{_DAY}/(?P<query>[^/]+)-(?P<first>\d+)-(?P<last>\d+)\.parquet$")


class ArchiveFile(NamedTuple):
    """A Parquet file of an archive, and the events it has; no day and no batches if an older delayq wrote it."""

    path: str
    day: date | None = None
    query: str = ""
    first: int = 0
    """Its first batch."""
    last: int = 0
    is_merged: bool = True

    @classmethod
    def at(cls, path: str) -> Self:
        """Return the file at a path."""
        if found := _BATCH.search(path):
            batch = int(found["first"])
            return cls(path, date.fromisoformat(found["day"]), found["query"], batch, batch, is_merged=False)
        if found := _MERGED.search(path):
            batches = int(found["first"]), int(found["last"])
            return cls(path, date.fromisoformat(found["day"]), found["query"], *batches)
        return cls(path)


def merged_name(query: str, first: int, last: int) -> str:
    """Return the name of the file with the events of some batches."""
    return f"{query}-{first}-{last}.parquet"


def batch_folder(path: str) -> str:
    """Return the folder of a batch from the path of one of its files."""
    return path.partition("/day=")[0]


class Replaced(NamedTuple):
    """A file whose events a merged file has as well."""

    file: ArchiveFile
    by: ArchiveFile


def divide(paths: Iterable[str]) -> tuple[list[ArchiveFile], list[Replaced]]:
    """Divide files into those that count, by day and batch, and those that are replaced.

    What a task of Spark has not finished is neither.
    """
    groups = defaultdict[tuple[date | None, str], list[ArchiveFile]](list)
    for file in map(ArchiveFile.at, (path for path in paths if f"/{UNFINISHED}/" not in path)):
        groups[file.day, file.query].append(file)
    counting, replaced = list[ArchiveFile](), list[Replaced]()
    for (day, _), files in groups.items():
        if day is None:
            counting += files
            continue
        # A merged file comes before those inside it: of two made at a time, one has all batches of the other and more.
        merged = list[ArchiveFile]()
        for file in sorted(files, key=lambda one: (not one.is_merged, one.first, -one.last)):
            before = bisect_right(merged, file.first, key=_first) - 1
            if before >= 0 and file.last <= merged[before].last:
                replaced.append(Replaced(file, merged[before]))
            else:
                (merged if file.is_merged else counting).append(file)
        counting += merged
    return sorted(counting, key=_order), replaced


def _first(file: ArchiveFile) -> int:
    return file.first


def _order(file: ArchiveFile) -> tuple[date, str, int, str]:
    return file.day or date.min, file.query, file.first, file.path
