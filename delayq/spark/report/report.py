"""A report as files: each table as Parquet and CSV, and the page; they replace older ones once all are written."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import compute, csv, parquet

from delayq.errors import ConfigurationError, shown
from delayq.spark.given import did_you_mean

if TYPE_CHECKING:
    from delayq.spark.reports import Reports

FORMATS = ("parquet", "csv")

_WHOLE_SECONDS = ("hour", "minute")


def in_utc(table: pa.Table) -> pa.Table:
    """Return a table with its times in UTC, whatever zone they are labelled with; the instants stay."""
    zoned = [
        pa.field(column.name, pa.timestamp("us", tz="UTC")) if pa.types.is_timestamp(column.type) else column
        for column in table.schema
    ]
    return table.cast(pa.schema(zoned))


def write_reports(reports: Reports, folder: str | Path, *, formats: Sequence[str] = FORMATS) -> None:
    """Write every report to a folder of this machine, as `lateness.parquet`, `lateness.csv` and so on.

    Times in CSV are ISO 8601 in UTC. All are written aside first and then take the place of older ones, each at once;
    other files of the folder stay. `ConfigurationError` for an unknown format, or a folder that cannot be written to.
    """
    chosen = check_formats(formats)
    with replacing(folder) as aside:
        write_tables(reports.tables(), aside, chosen)


def check_formats(formats: Sequence[str]) -> tuple[str, ...]:
    """Return the formats to write tables in; `ConfigurationError` for one that is not known."""
    chosen = (formats,) if isinstance(formats, str) else tuple(formats)
    for one in chosen:
        if one not in FORMATS:
            hint = did_you_mean(str(one), FORMATS)
            raise ConfigurationError(f"formats must be of parquet and csv, not {shown(one)}{hint}")
    return chosen


def write_tables(tables: Mapping[str, pa.Table], folder: Path, formats: Sequence[str]) -> None:
    """Write tables to a folder in some formats."""
    for name, table in tables.items():
        if "parquet" in formats:
            parquet.write_table(table, folder / f"{name}.parquet")
        if "csv" in formats:
            csv.write_csv(_spelled(table), folder / f"{name}.csv")


@contextmanager
def replacing(folder: str | Path) -> Iterator[Path]:
    """Give a folder for new files, which take their places in `folder` at the end; after an error none does."""
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        # Inside of it, so that it is of the same file system and moving a file replaces another at once.
        aside = Path(tempfile.mkdtemp(prefix=".new-", dir=target))
    except OSError as error:
        raise ConfigurationError(f"reports cannot be written to {target}: {error.strerror}") from error
    try:
        yield aside
        for file in sorted(aside.iterdir()):
            file.replace(target / file.name)
    except OSError as error:
        raise ConfigurationError(f"reports cannot be written to {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _spelled(table: pa.Table) -> pa.Table:
    """Return a table with its times as text."""
    for n, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            digits = pa.timestamp("s") if column.name in _WHOLE_SECONDS else pa.timestamp("ms")
            # Without a zone, so that no zone database is asked for.
            naive: Any = table.column(n).cast(pa.timestamp("us")).cast(digits, safe=False)
            table = table.set_column(n, column.name, compute.strftime(naive, format="%Y-%m-%dT%H:%M:%SZ"))
    return table
