"""The report on an event log: its tables and its page in one folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from delayq.spark.page import page
from delayq.spark.reports import Reports, reports
from delayq.spark.tables import FORMATS, check_formats, replacing, write_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PAGE = "report.html"


def report(
    events: DataFrame,
    out: str | Path,
    *,
    queue: str = "",
    html: bool = True,
    formats: Sequence[str] = FORMATS,
    told: Callable[[str], object] | None = None,
) -> Reports:
    """Compute the reports on an event log, write them to a folder of this machine, and return them.

    Beside the tables (see `write_reports`) there is `report.html`, unless `html` is false; it names the `queue`.
    `told` is called with the name of each report that is done. Computed once: `summary` costs nothing more.
    """
    chosen = check_formats(formats)
    with replacing(out) as aside:
        made = reports(events)
        write_tables(made.tables(told), aside, chosen)
        if html:
            text = page(made, queue=queue, at=datetime.now(UTC))
            (aside / PAGE).write_text(text, encoding="utf-8")
    return made
