"""Reads and writes tables as files: CSV, JSON Lines and Parquet."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet

from delayq.bulk.files.local_files import (
    NOT_UTF_8,
    TEXT_FORMATS,
    check_suffix,
    check_utf_8,
    is_file,
    is_folder,
    read_lines,
)
from delayq.errors import ConfigurationError

_INSTANT = pa.timestamp("us", tz="UTC")
_parquet: Any = pyarrow.parquet
"""Untyped: its stubs lack some parameters."""
_LAKE = "whose files have deleted rows too: see the recipe in `delayq docs spark-recipes`"
MAX_CELL = 1 << 30
"""Bytes of a cell of CSV or a line of JSON: more than a payload may have."""


def read_table(path: str | Path, *, repeated: Sequence[str] = ()) -> pa.Table:
    """Return the table in a file, or in a folder of Parquet files; the suffix tells the format.

    A `.csv` file starts with its column names; its columns are texts, and an empty cell is null. A
    `.json`, `.jsonl` or `.ndjson` file has an object a line; a field that an object lacks is null. `.parquet`, or no
    suffix, is Parquet, whose columns `repeated` stay dictionaries: a text that is stored once for many rows is in
    memory once. Raises `ConfigurationError` for a missing or unreadable file, another suffix, and tables of Delta and
    Iceberg.
    """
    file = Path(path)
    if not (is_file(file) or is_folder(file)):
        raise ConfigurationError(f"there is no file or folder {str(path)!r}")
    if is_delta(file):
        raise ConfigurationError(f"{path} is a Delta table, {_LAKE}")
    check_not_iceberg(path)
    suffix = "" if is_folder(file) else check_suffix(file, FORMATS)
    read = _READERS.get(suffix, partial(_read_parquet, repeated=repeated))
    try:
        return read(file)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"cannot read {path}: {NOT_UTF_8}") from error
    except (OSError, ValueError, pa.ArrowException, msgspec.DecodeError, csv.Error) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from error


def is_delta(path: str | Path) -> bool:
    """Return whether a folder is a Delta table: its log tells which of its Parquet files have the rows of today."""
    return is_folder(Path(path) / "_delta_log")


def check_not_iceberg(path: str | Path) -> None:
    """Raise `ConfigurationError` for the folder of an Iceberg table: its metadata tells which files are of today."""
    if any((Path(path) / "metadata").glob("*.metadata.json")):
        raise ConfigurationError(f"{path} is an Iceberg table, {_LAKE}")


def files_of(path: str | Path) -> list[str]:
    """Return the URIs of the files of a table, as Spark lists them."""
    file = Path(os.path.abspath(path))  # noqa: PTH100 - without "..", as Spark has it
    if not is_folder(file):
        return [file.as_uri()]
    inside = ((one, one.relative_to(file).parts) for one in file.rglob("*"))
    return sorted(one.as_uri() for one, parts in inside if one.is_file() and all(part[0] not in "._" for part in parts))


def write_table(table: pa.Table, path: str | Path) -> None:
    """Write a table as one Parquet file, which appears as a whole or not at all."""
    file = Path(path)
    check_suffix(file, FORMATS[-1:])
    if is_folder(file):
        raise ConfigurationError(f"{path} is a folder, perhaps a plan by Spark: write to another path")
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        _parquet.write_table(table, part)
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ConfigurationError(f"cannot write {path}: {error}") from error


def check_names(names: Sequence[str]) -> None:
    """Raise `ValueError` if a CSV file has no columns, or two of one name."""
    if not names:
        raise ValueError("the first line must have the column names")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"column {name} is there {names.count(name)} times: keep one")


def _read_csv(file: Path) -> pa.Table:
    # Not Arrow's reader: it takes a quote that is never closed, and loses line ends where its blocks end.
    csv.field_size_limit(max(MAX_CELL, csv.field_size_limit()))
    with file.open("rb") as found:
        check_utf_8(found.read(2))
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines, strict=True)
        names = next(reader, [])
        check_names(names)
        cells: list[list[str | None]] = [[] for _ in names]
        begin = reader.line_num + 1
        try:
            for row in reader:
                if row:
                    if len(row) != len(names):
                        raise ValueError(f"line {begin}: it has {len(row)} columns, not {len(names)}")
                    for column, cell in zip(cells, row, strict=True):
                        column.append(cell or None)
                begin = reader.line_num + 1
        except csv.Error as error:
            end = str(error) == "unexpected end of data"
            what = "a quote of the row that begins here is never closed" if end else str(error)
            raise ValueError(f"line {begin}: {what}") from error
    return pa.table([pa.array(column, pa.string()) for column in cells], names)


def _read_json_lines(file: Path) -> pa.Table:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    rows = []
    with file.open("rb") as lines:
        for number, line in enumerate(read_lines(lines, MAX_CELL), 1):
            if line.strip():
                with _in_line(number):
                    rows.append(decode(line))
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: pa.array([row.get(name) for row in rows]) for name in names}
    # A column of nulls has no type: it is a text, as on Spark.
    return pa.table(
        {name: one.cast(pa.string()) if pa.types.is_null(one.type) else one for name, one in columns.items()}
    )


@contextmanager
def _in_line(number: int) -> Iterator[None]:
    try:
        yield
    except msgspec.DecodeError as error:
        raise ValueError(f"line {number}: {error}") from error


def _read_parquet(path: Path, repeated: Sequence[str] = ()) -> pa.Table:
    data = _parquet.ParquetDataset(path, coerce_int96_timestamp_unit="us", read_dictionary=list(repeated))
    table: pa.Table = data.read()
    # Spark writes instants as INT96, which Arrow reads as times without a zone.
    physical = _parquet.ParquetFile(data.files[0]).schema if data.files else ()
    for column in physical:
        if column.physical_type == "INT96":
            at = table.column_names.index(column.path)
            table = table.set_column(at, column.path, table.column(at).cast(_INSTANT))
    return table


_READERS = dict.fromkeys(TEXT_FORMATS, _read_json_lines) | {".csv": _read_csv}
FORMATS = (*_READERS, ".parquet")
"""How the files of tables end; without a suffix they are Parquet."""
