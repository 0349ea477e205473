"""Reads and writes tables as files: CSV, JSON Lines and Parquet."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from delayq.bulk.local_files import is_file, is_folder
from delayq.errors import ConfigurationError

_INSTANT = pa.timestamp("us", tz="UTC")
_csv: Any = pyarrow.csv
_parquet: Any = pyarrow.parquet
"""Untyped: their stubs lack some parameters."""


def read_table(path: str | Path) -> pa.Table:
    """Return the table in a file, or in a folder of Parquet files; the suffix tells the format.

    A `.csv` file starts with its column names; its columns are texts, and an empty cell is null. A
    `.json` or `.jsonl` file has an object a line; a field that an object lacks is null. Anything else is Parquet.
    Raises `ConfigurationError` for a missing or unreadable file, and for a Delta table.
    """
    file = Path(path)
    if not (is_file(file) or is_folder(file)):
        raise ConfigurationError(f"there is no file or folder {str(path)!r}")
    if is_delta(file):
        raise ConfigurationError(
            f"{path} is a Delta table, whose files have deleted rows too: see the recipe in `delayq docs spark-recipes`"
        )
    read = _READERS.get(file.suffix.lower(), _read_parquet)
    try:
        return read(file)
    except (OSError, ValueError, pa.ArrowException, msgspec.DecodeError, csv.Error) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from error


def is_delta(path: str | Path) -> bool:
    """Return whether a folder is a Delta table: its log tells which of its Parquet files have the rows of today."""
    return is_folder(Path(path) / "_delta_log")


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
    if is_folder(file):
        raise ConfigurationError(f"{path} is a folder, perhaps a plan by Spark: write to another path")
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        _parquet.write_table(table, part)
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ConfigurationError(f"cannot write {path}: {error}") from error


def _read_csv(file: Path) -> pa.Table:
    with file.open(encoding="utf-8-sig", newline="") as lines:
        names = next(csv.reader(lines), [])
    if not names:
        raise ValueError("the first line must have the column names")
    convert = _csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
    )
    table: pa.Table = _csv.read_csv(
        file, convert_options=convert, parse_options=_csv.ParseOptions(newlines_in_values=True)
    )
    return table


def _read_json_lines(file: Path) -> pa.Table:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    rows = []
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                with _in_line(number):
                    rows.append(decode(line))
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})


@contextmanager
def _in_line(number: int) -> Iterator[None]:
    try:
        yield
    except msgspec.DecodeError as error:
        raise ValueError(f"line {number}: {error}") from error


def _read_parquet(path: Path) -> pa.Table:
    data = _parquet.ParquetDataset(path, coerce_int96_timestamp_unit="us")
    table: pa.Table = data.read()
    # Spark writes instants as INT96, which Arrow reads as times without a zone.
    physical = _parquet.ParquetFile(data.files[0]).schema if data.files else ()
    for column in physical:
        if column.physical_type == "INT96":
            at = table.column_names.index(column.path)
            table = table.set_column(at, column.path, table.column(at).cast(_INSTANT))
    return table


_READERS = {".csv": _read_csv, ".json": _read_json_lines, ".jsonl": _read_json_lines}
