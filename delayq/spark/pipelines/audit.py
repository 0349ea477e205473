"""Audits a plan: compares it with the run ledger, the archived events and the current state of the queue.

Each planned reminder must be scheduled, delivered, dead or cancelled. Findings are reminders that are missing, early,
delivered twice without a failure or not planned, and any disagreement between the four sources.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from delayq.broker.log_entries import MIN_TIME_OFFSET
from delayq.queue.bulk_runs import RunInfo
from delayq.spark.datasource.schemas import LIFE_STARTS, OF_ENTRIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATUSES = ("scheduled", "delivered", "dead", "cancelled", "missing")
"""The statuses of a planned reminder."""

_CHECKS = (
    ("missing", "planned AND log_status IS NULL AND NOT (alive OR is_dead OR withdrawn)", "'was never sent'"),
    ("missing", "status = 'missing'", "concat('is not in the queue; last seen ', last)"),
    ("early", "early > 0", "'was delivered before it was due'"),
    (
        "duplicate",
        # A failure explains another delivery within one life of a message.
        "lives > 0 AND (acks > lives OR deliveries > lives + failures)",
        "format_string('%d deliveries and %d acks in %d lives with %d failures', deliveries, acks, lives, failures)",
    ),
    ("event lost", "acks > 0 AND deliveries = 0", "'was acked without a delivery'"),
    ("event lost", "log_status IS NOT NULL AND lives = 0", "'its send is not in the log'"),
    ("event lost", "log_status IS NULL AND (alive OR is_dead)", "'is in the queue, but not in the log'"),
    ("resurrected", "log_status != 'scheduled' AND alive AND NOT changed_later", "'is in the queue after its end'"),
    ("not cancelled", "action = 'cancel' AND status = 'scheduled'", "'should be cancelled, but is scheduled'"),
    ("unplanned", "NOT planned", "concat('is not in the plan; status: ', status)"),
    (
        "wrong time",
        # A due time is stored in milliseconds, rounded up.
        "rescheduled = 0 AND abs(unix_micros(sent_due) - unix_micros(planned_due)) >= 1000",
        "concat('was sent with due time ', CAST(sent_due AS string))",
    ),
)
"""Each finding, when it applies and its detail, in SQL; the first that applies to a message is its finding."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A discrepancy; `id` is a message, a run, or empty for the log as a whole."""

    what: str
    id: str
    detail: str


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit."""

    reminders: DataFrame
    """One row per planned or seen message: id, status, planned and sent due, deliveries, first delivery, finding."""
    statuses: dict[str, int]
    """Planned reminders by status, one of `STATUSES`."""
    findings: dict[str, int]
    """Findings by kind."""
    examples: list[Finding]
    """The first findings, up to the requested number."""

    @property
    def adds_up(self) -> bool:
        """Whether every reminder is accounted for and there are no findings."""
        return not self.findings and not self.statuses["missing"]


def audit(
    plan: DataFrame,
    events: DataFrame,
    snapshot: DataFrame,
    runs: Iterable[RunInfo] = (),
    *,
    at: datetime,
    start: datetime | None = None,
    until: datetime | None = None,
    examples: int = 1000,
) -> Audit:
    """Compare a plan with the ledger, the archive and a snapshot of the queue that was taken `at` a time.

    `plan` has the columns id and due, and optionally action (`cancel`: must no longer be delivered). Only reminders due
    from `start` (inclusive) to `until` (exclusive) are audited. Take the snapshot before updating the archive, so that
    messages that move meanwhile are in the archive. The audit only reads.
    """
    in_period = F.expr("true")
    if start is not None:
        in_period &= F.col("due") >= F.lit(start)
    if until is not None:
        in_period &= F.col("due") < F.lit(until)
    action = F.col("action") if "action" in plan.columns else F.lit("new")
    planned = plan.where(in_period).select("id", F.col("due").alias("planned_due"), action.alias("action"))
    outside = plan.where(~in_period).select("id", F.expr("true").alias("outside"))

    joined = (
        planned.join(_histories(events), "id", "full_outer")
        .join(_locations(snapshot), "id", "full_outer")
        .join(outside, "id", "left_anti")
    )
    reminders = _with_findings(joined, at).persist()
    try:
        statuses = dict.fromkeys(STATUSES, 0)
        found: dict[str, int] = {}
        counts = reminders.groupBy(F.col("planned_due").isNotNull().alias("planned"), "status", "finding").count()
        for row in counts.collect():
            if row.planned:
                statuses[row.status] = statuses.get(row.status, 0) + row["count"]
            if row.finding:
                found[row.finding] = found.get(row.finding, 0) + row["count"]
        listed = [
            Finding(row.finding, row.id, row.detail)
            for row in reminders.where("finding is not null").orderBy("finding", "id").limit(examples).collect()
        ]
    finally:
        reminders.unpersist()
    for finding in [*_gaps(events), *_ledger(events, runs)]:
        found[finding.what] = found.get(finding.what, 0) + 1
        listed.append(finding)
    return Audit(reminders, statuses, found, listed[:examples])


def _histories(events: DataFrame) -> DataFrame:
    """Return the history of each message according to the log, in one pass."""
    columns = (
        "max_by(kind, struct(offset, index)) AS last",
        "max_by(at, struct(offset, index)) AS last_at",
        "max(offset) AS last_offset",
        f"max_by(due, offset) FILTER (WHERE kind IN {(*LIFE_STARTS, 'rescheduled')}) AS sent_due",
        "min(at) FILTER (WHERE kind = 'delivered') AS delivered_at",
        "count_if(kind = 'delivered') AS deliveries",
        f"count_if(kind IN {LIFE_STARTS}) AS lives",
        "count_if(kind IN ('nacked', 'expired', 'released')) AS failures",
        "count_if(kind IN ('acked', 'discarded')) AS acks",
        "count_if(kind = 'rescheduled') AS rescheduled",
        "count_if(kind = 'delivered' AND at < due) AS early",
    )
    of_lives = F.col("id").isNotNull() & ~F.col("kind").isin(*OF_ENTRIES)
    histories = events.where(of_lives).groupBy("id").agg(*map(F.expr, columns))
    purge = events.where("kind = 'purged'").selectExpr("max(offset) AS purge")
    log_status = """CASE WHEN last IN ('acked', 'discarded') THEN 'delivered'
        WHEN last IN ('dead', 'cancelled') THEN last
        WHEN purge > last_offset THEN 'cancelled' ELSE 'scheduled' END"""
    return histories.crossJoin(F.broadcast(purge)).withColumn("log_status", F.expr(log_status))


def _locations(snapshot: DataFrame) -> DataFrame:
    """Return for each id whether it is alive in the queue, and whether it is in the dead letter."""
    locations = ("max(state != 'dead') AS alive", "max(state = 'dead') AS is_dead")
    return snapshot.groupBy("id").agg(*map(F.expr, locations))


def _with_findings(joined: DataFrame, at: datetime) -> DataFrame:
    """Add to each message its status and its first finding."""
    located = joined.withColumns(
        {
            "planned": F.expr("planned_due IS NOT NULL"),
            "alive": F.expr("coalesce(alive, false)"),
            "is_dead": F.expr("coalesce(is_dead, false)"),
            # Changed after the snapshot was taken, so only the log is current.
            "changed_later": F.coalesce(F.col("last_at") >= F.lit(at), F.expr("false")),
        }
    )
    withdrawn = "coalesce(action = 'cancel', false) AND log_status IS NULL AND NOT alive"
    status = """CASE WHEN withdrawn THEN 'cancelled'
        WHEN log_status != 'scheduled' THEN log_status
        WHEN alive OR changed_later THEN 'scheduled'
        WHEN is_dead THEN 'dead' ELSE 'missing' END"""
    judged = located.withColumn("withdrawn", F.expr(withdrawn)).withColumn("status", F.expr(status))
    finding = "".join(f" WHEN {wrong} THEN '{what}'" for what, wrong, _ in _CHECKS)
    detail = "".join(f" WHEN {wrong} THEN {text}" for _, wrong, text in _CHECKS)
    return judged.selectExpr(
        *("id", "status", "planned_due", "sent_due", "delivered_at", "coalesce(deliveries, 0) AS deliveries"),
        *(f"CASE {finding} END AS finding", f"CASE {detail} END AS detail"),
    )


def _gaps(events: DataFrame) -> list[Finding]:
    """Return a finding if entries are missing from a log that is numbered without gaps."""
    row = events.selectExpr("min(offset) AS first", "max(offset) AS last", "count(DISTINCT offset) AS entries").first()
    if row is None or row.first is None or row.last >= MIN_TIME_OFFSET:
        return []
    missing = row.last - row.entries
    if not missing:
        return []
    return [Finding("event lost", "", f"{missing} of the {row.last} entries up to offset {row.last} are missing")]


def _ledger(events: DataFrame, runs: Iterable[RunInfo]) -> list[Finding]:
    """Return the runs that are not committed, and those where log and ledger disagree."""
    runs = list(runs)
    if not runs:
        return []
    sends = events.where(F.col("kind").isin("sent", "replaced") & F.col("run").isNotNull())
    seen = {row.run: row["count"] for row in sends.groupBy("run").count().collect()}
    findings = []
    for info in runs:
        if info.state != "committed":
            findings.append(Finding("run", info.run, f"is {info.state}, not committed"))
        if seen.get(info.run, 0) != info.new + info.replaced:
            detail = f"stored {info.new + info.replaced} messages by the ledger, {seen.get(info.run, 0)} by the log"
            findings.append(Finding("run", info.run, detail))
    return findings
