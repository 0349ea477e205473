"""The folder of a cold tier: Parquet files by the day on which their messages are due, each there as a whole or not.

Names that begin with an underscore are delayq's own: other programs that read the folder as a table leave them out.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from delayq.broker.message.ids import new_id
from delayq.bulk.cold.cold_calls import ColdRow
from delayq.errors import ColdTierError
from delayq.queue.inspecting.cold_tier import DAY, day_of

_arrow: Any = pa
_parquet: Any = pyarrow.parquet
"""Untyped: its stubs are incomplete."""
VERSION = 1
"""The version of a folder: a newer delayq's is refused."""
SCHEMA = _arrow.schema(
    [
        pa.field("id", pa.string()),
        pa.field("due", pa.timestamp("ms", tz="UTC")),
        pa.field("retries", pa.int64()),
        pa.field("payload", pa.binary()),
        pa.field("headers", pa.binary()),
        pa.field("attributes", pa.binary()),
    ]
)
"""The columns of a file: messages as they are stored."""
ROW_GROUP = 1000
FACTS = "_delayq/facts.json"
_MOVED, _DONE = "_moved", "_done"


class ColdFolder:
    """The folder of one queue."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path = path
        self.id: str = facts["id"]

    @classmethod
    def open(cls, path: Path, queue: str, prefix: str, known: str) -> ColdFolder:
        """Open the folder of a queue whose id is `known`, or make it if that is ''.

        Raises `ColdTierError` if it cannot be written, is another queue's or of a newer delayq, or if the queue has
        another one.
        """
        try:
            return cls(path, _facts_of(path, queue, prefix, known))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ColdTierError(f"folder {str(path)!r} of the cold tier cannot be used: {error}") from error

    @staticmethod
    def is_at(path: Path) -> bool:
        """Return whether a path is the folder of a cold tier."""
        return (path / FACTS).is_file()

    def spilled(self) -> list[str]:
        """Return the names of files whose messages are being moved."""
        return sorted(one.stem for one in (self.path / _MOVED).glob("*.parquet"))

    def files(self) -> set[str]:
        """Return the files by day, also those that the queue does not know."""
        return {f"{one.parent.name}/{one.name}" for one in self.path.glob("day=*/*.parquet")}

    def has(self, file: str) -> bool:
        """Return whether a file by day is there."""
        return (self.path / file).exists()

    def size(self, file: str) -> int:
        """Return the bytes of a file by day; 0 if it is gone."""
        try:
            return (self.path / file).stat().st_size
        except FileNotFoundError:
            return 0

    def write_spilled(self, name: str, rows: Sequence[ColdRow]) -> None:
        """Write messages that are about to be moved."""
        self._write(f"{_MOVED}/{name}.parquet", rows)

    def write_day(self, file: str, rows: Sequence[ColdRow]) -> None:
        """Write the messages of a day."""
        self._write(file, rows)

    def clean(self) -> None:
        """Delete what passes that were killed a day ago or longer have left half written, and spilled files as old."""
        for one in (*self.path.glob("*/.*.parquet.*"), *(self.path / _DONE / _MOVED).glob("*.parquet")):
            with suppress(OSError):  # another pass has deleted it; else it stays until the next one
                if time.time() - one.stat().st_mtime > DAY / 1000:
                    one.unlink()

    def sync(self) -> None:
        """Make sure that the folders of the days outlast a power failure; their files do so by themselves."""
        _sync(self.path)

    def read_spilled(self, name: str) -> list[ColdRow]:
        """Read messages that were to be moved."""
        return [row for batch in self.read(f"{_MOVED}/{name}.parquet", 0) for row in batch]

    def read(self, file: str, first: int) -> Iterator[list[ColdRow]]:
        """Yield the messages of a file from one on, many at a time; raises `FileNotFoundError`."""
        with _reading(file), _parquet.ParquetFile(self.path / file) as source:
            _check_columns(source.schema_arrow)
            at = 0
            for batch in source.iter_batches(batch_size=ROW_GROUP):
                rows = _rows(batch.slice(max(0, first - at)))
                at += batch.num_rows
                if rows:
                    yield rows

    def read_ids(self, file: str) -> list[str]:
        """Read the ids of a file; raises `FileNotFoundError`."""
        with _reading(file), _parquet.ParquetFile(self.path / file) as source:
            _check_columns(source.schema_arrow)
            ids: list[str] = source.read(columns=["id"])["id"].to_pylist()
        return ids

    def read_spilled_ids(self, name: str) -> list[str]:
        """Read the ids of messages that are about to be moved; raises `FileNotFoundError`."""
        return self.read_ids(f"{_MOVED}/{name}.parquet")

    def read_done(self, file: str, first: int) -> Iterator[list[ColdRow]]:
        """Yield the messages of a file by day that was put away, from one on; raises `FileNotFoundError`."""
        return self.read(f"{_DONE}/{file}", first)

    def remove_spilled(self, name: str) -> None:
        """Put a file away whose messages stay, or are in those by day: it is deleted a day later."""
        self.put_away(f"{_MOVED}/{name}.parquet")

    def take_spilled_back(self, name: str) -> bool:
        """Take back such a file, since Redis knows nothing of that; returns whether there is one."""
        return self.take_back(f"{_MOVED}/{name}.parquet")

    def remove(self, file: str) -> None:
        """Delete a file by day that the queue does not know."""
        with _changing(file):
            (self.path / file).unlink(missing_ok=True)

    def put_away(self, file: str) -> None:
        """Move a file whose messages are back; raises `ColdTierError`."""
        done = self.path / _DONE / file
        with _changing(file), suppress(FileNotFoundError):  # it was put away before
            done.parent.mkdir(parents=True, exist_ok=True)
            (self.path / file).replace(done)
            os.utime(done)

    def take_back(self, file: str) -> bool:
        """Take back a file that was put away, since Redis knows nothing of that; returns whether there is one."""
        try:
            (self.path / file).parent.mkdir(exist_ok=True)
            (self.path / _DONE / file).replace(self.path / file)
        except OSError:
            return False
        return True

    def find(self, name: str) -> dict[str, int]:
        """Return the files by day of this name, also those that were put away, with how many messages each has."""
        for one in (self.path / _DONE).glob(f"day=*/{name}.parquet"):
            self.take_back(f"{one.parent.name}/{one.name}")
        files = (f"{one.parent.name}/{one.name}" for one in self.path.glob(f"day=*/{name}.parquet"))
        return {file: len(self.read_ids(file)) for file in files}

    def _write(self, file: str, rows: Sequence[ColdRow]) -> None:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, field.type) for field, column in zip(SCHEMA, columns, strict=True)]
        out = BytesIO()
        _parquet.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), out, row_group_size=ROW_GROUP)
        with _changing(file):
            _put(self.path / file, out.getvalue())


@contextmanager
def _changing(file: str) -> Iterator[None]:
    """Raise `ColdTierError` for a disk that is full, or a folder that cannot be written."""
    try:
        yield
    except OSError as error:
        raise ColdTierError(f"{file} of the cold tier cannot be written: {error}") from error


@contextmanager
def _reading(file: str) -> Iterator[None]:
    """Raise `ColdTierError` for a file that is not as it was written, but not for one that is gone."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        text = " ".join(str(error).split())
        raise ColdTierError(f"{file} of the cold tier cannot be read: {text}") from error


def _check_columns(schema: Any) -> None:
    """Raise `ValueError` for the columns of another program: a due time must not be guessed."""
    if odd := [field.name for field in SCHEMA if schema.field(field.name).type != field.type]:
        raise ValueError(f"its column {odd[0]} has another type")


def files_by_day(name: str, rows: Sequence[ColdRow]) -> dict[str, list[ColdRow]]:
    """Divide messages into files by day of this name."""
    days = defaultdict[int, list[ColdRow]](list)
    for row in rows:
        days[row.due // DAY].append(row)
    return {f"day={day_of(day * DAY).isoformat()}/{name}.parquet": part for day, part in days.items()}


def _rows(batch: Any) -> list[ColdRow]:
    """Return the messages of a batch: column by column, which is several times as fast as row by row."""
    columns = [batch[field.name] for field in SCHEMA]
    columns[1] = columns[1].cast(pa.int64())
    return list(map(ColdRow._make, zip(*(column.to_pylist() for column in columns), strict=True)))


def _facts_of(path: Path, queue: str, prefix: str, known: str) -> dict[str, Any]:
    """Return the description of a folder, which is made if there is none."""
    place = path / FACTS
    own = {"version": VERSION, "queue": queue, "prefix": prefix}
    try:
        facts: dict[str, Any] = json.loads(place.read_text())
    except FileNotFoundError:
        if known:
            raise ColdTierError(f"queue {queue} has a cold tier, and it is not in {str(path)!r}") from None
        others = path.exists() and any(one.name != place.parent.name for one in path.iterdir())
        if others and not place.exists():  # else another pass has made it meanwhile
            raise ColdTierError(f"{str(path)!r} is not empty: give the cold tier a folder of its own") from None
        _put(place, json.dumps(own | {"id": new_id()}).encode(), replacing=False)
        facts = json.loads(place.read_text())
    if facts["version"] > VERSION:
        text = f"{str(path)!r} has version {facts['version']}, but this delayq knows only {VERSION}: upgrade delayq"
        raise ColdTierError(text)
    if (facts["queue"], facts["prefix"]) != (queue, prefix):
        raise ColdTierError(f"{str(path)!r} is of queue {facts['queue']} under the prefix {facts['prefix']}")
    if known not in ("", facts["id"]):
        raise ColdTierError(f"queue {queue} has its cold tier in another folder than {str(path)!r}")
    for folder in (_MOVED, _DONE):
        (path / folder).mkdir(exist_ok=True)
    _sync(path)
    if not os.access(path, os.W_OK):
        raise PermissionError(f"{str(path)!r} is not writable")
    return facts


def _put(to: Path, data: bytes, *, replacing: bool = True) -> None:
    """Write a file, which is there at once and whole, also after a power failure, if its folder is.

    Without `replacing`, the first of several processes that write it at a time counts.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    hidden = to.with_name(f".{to.name}.{new_id()}")
    try:
        with hidden.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replacing or not _is_named(hidden, to):
            hidden.replace(to)
    finally:
        hidden.unlink(missing_ok=True)
    _sync(to.parent)


def _is_named(hidden: Path, to: Path) -> bool:
    """Give a file its name, unless another has it; returns whether one has it now: not every system can do that."""
    try:
        to.hardlink_to(hidden)
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


def _sync(folder: Path) -> None:
    with suppress(OSError):  # not every system can open a folder
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
