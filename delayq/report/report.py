"""Computes the report on an event log, and writes its tables and its page; they replace older files at the end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyarrow import compute, csv, parquet

from delayq.archive.sql_engine import SqlEngine
from delayq.errors import ConfigurationError, did_you_mean, short_repr
from delayq.report.audit_section import FACTS, read_audit, to_json, with_audit
from delayq.report.page import page
from delayq.report.report_tables import Reports, reports, width_of

if TYPE_CHECKING:
    from delayq.queue.inspecting.counts import Stats

T = TypeVar("T")

FORMATS = ("parquet", "csv")
PAGE = "report.html"

_WHOLE_SECONDS = ("begin",)


def report(
    engine: SqlEngine[T],
    events: T,
    out: str | Path,
    *,
    queue: str = "",
    now: Stats | None = None,
    html: bool = True,
    formats: Sequence[str] = FORMATS,
    told: Callable[[str], object] | None = None,
) -> Reports[T]:
    """Compute the reports on an event log, write them to a local folder, and return them.

    Each table becomes `lateness.parquet`, `lateness.csv` and so on; times are UTC, in CSV as ISO 8601. With `html`
    there is also a page, `report.html`, titled with `queue`; with `now=queue.stats()` it says what waits now. New files
    are written aside first and then replace the old ones one by one; other files in the folder stay. If there was an
    audit with `write_audit`, the page has its verdict.

    `told` is called with the name of each finished report. Results are kept, so `summary` needs no new computation.

    Raises `ConfigurationError` for an unknown format or a folder that is not writable.
    """
    chosen, folder = check_formats(formats), Path(out)
    read_audit(folder)  # refused now, not after the computation
    with replacing(out) as aside:
        made = reports(engine, events, width=width_of(engine, events))
        write_tables(made.tables(told), aside, chosen)
        if html:
            text = page(made.tables(), queue=queue, at=datetime.now(UTC), now=now, formats=chosen)
            (aside / PAGE).write_text(with_audit(text, read_audit(folder)), encoding="utf-8")
    return made


def write_audit(out: str | Path, facts: Mapping[str, Any], findings: pa.Table, *, at: datetime) -> None:
    """Write an audit that was made `at` a time to the folder of a report: its facts, and its findings as a table.

    The verdict is on the page of the report: on the one that is there, and on those made later.
    """
    page_there = Path(out) / PAGE
    with replacing(out) as aside:
        write_tables({"findings": findings}, aside, FORMATS)
        (aside / FACTS).write_text(to_json(facts, at), encoding="utf-8")
        if page_there.exists():
            text = with_audit(page_there.read_text(encoding="utf-8"), read_audit(aside))
            (aside / PAGE).write_text(text, encoding="utf-8")


def check_formats(formats: Sequence[str]) -> tuple[str, ...]:
    """Return the formats to write; raises `ConfigurationError` for an unknown one."""
    chosen = (formats,) if isinstance(formats, str) else tuple(formats)
    for one in chosen:
        if one not in FORMATS:
            hint = did_you_mean(str(one), FORMATS)
            raise ConfigurationError(f"formats must be parquet or csv, not {short_repr(one)}{hint}")
    return chosen


def write_tables(tables: Mapping[str, pa.Table], folder: Path, formats: Sequence[str]) -> None:
    """Write tables to a folder."""
    for name, table in tables.items():
        if "parquet" in formats:
            parquet.write_table(table, folder / f"{name}.parquet")
        if "csv" in formats:
            csv.write_csv(_with_text_times(table), folder / f"{name}.csv")


@contextmanager
def replacing(folder: str | Path) -> Iterator[Path]:
    """Yield a temporary folder whose files are moved to `folder` at the end; after an error none is."""
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        # A subfolder is on the same file system, so moving a file replaces another atomically.
        aside = Path(tempfile.mkdtemp(prefix=".new-", dir=target))
    except OSError as error:
        raise ConfigurationError(f"cannot write the report to {target}: {error.strerror}") from error
    try:
        yield aside
        for file in sorted(aside.iterdir()):
            file.replace(target / file.name)
    except OSError as error:
        raise ConfigurationError(f"cannot write the report to {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _with_text_times(table: pa.Table) -> pa.Table:
    """Return a table with its times as ISO 8601 texts."""
    for n, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            precision = pa.timestamp("s") if column.name in _WHOLE_SECONDS else pa.timestamp("ms")
            # Without a zone, so that no time zone database is needed.
            naive: Any = table.column(n).cast(pa.timestamp("us")).cast(precision, safe=False)
            table = table.set_column(n, column.name, compute.strftime(naive, format="%Y-%m-%dT%H:%M:%SZ"))
    return table
