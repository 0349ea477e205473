"""Audits a plan on Spark: see `delayq.audit`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from delayq.audit.audit import audit as audit_with
from delayq.audit.audit_result import Audit
from delayq.bulk.load_run import digest_of
from delayq.queue.sweeps.bulk_runs import RunInfo
from delayq.spark.spark_sql import SparkSql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def audit(
    plan: DataFrame | Sequence[DataFrame],
    events: DataFrame,
    snapshot: DataFrame,
    runs: Iterable[RunInfo] = (),
    **options: Any,
) -> Audit:
    """Compare plans with the ledger, the archive and a snapshot of the queue; the options are those of `delayq.audit`.

    The `reminders` of the result are a DataFrame.
    """
    plans: list[DataFrame] = list(plan) if isinstance(plan, Sequence) else [plan]
    sources = [source_of(one) for one in plans] if (runs := list(runs)) else None
    return audit_with(SparkSql(events.sparkSession), plans, events, snapshot, runs, sources=sources, **options)


def source_of(table: DataFrame) -> str:
    """Return a digest of the names of the files that a table is read from, by which its loads are recognized."""
    return digest_of(table.inputFiles())
