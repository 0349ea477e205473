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

from delayq.queue.bulk_runs import RunInfo
from delayq.spark.pipelines.log_order import check_order
from delayq.spark.pipelines.message_lives import histories

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STATUSES = ("scheduled", "delivered", "dead", "cancelled", "missing")
"""The statuses of a planned reminder."""

_CHECKS = (
    ("missing", "planned AND log_status IS NULL AND NOT (alive OR held > 0 OR withdrawn)", "'was never sent'"),
    ("early", "early > 0", "'was delivered before it was due'"),
    ("unplanned", "NOT planned AND wrong.what = 'sent again'", "concat('is not in the plan; status: ', status)"),
    ("wrong.what", "wrong IS NOT NULL", "wrong.text"),
    ("missing", "status = 'missing'", "concat('is not in the queue; last seen ', last)"),
    ("event lost", "log_status IS NULL AND (alive OR held > 0)", "'is in the queue, but not in the log'"),
    ("resurrected", "log_status != 'scheduled' AND alive AND NOT changed_later", "'is in the queue after its end'"),
    (
        "dead letter",
        "NOT dead_later AND deaths - taken != held",
        """format_string('is in the dead letter %d times; by the log it died %d times, and %d were redriven or deleted',
            held, deaths, taken)""",
    ),
    ("not cancelled", "action = 'cancel' AND status = 'scheduled'", "'should be cancelled, but is scheduled'"),
    ("unplanned", "NOT planned", "concat('is not in the plan; status: ', status)"),
    (
        "wrong time",
        # A due time is stored in milliseconds, rounded up.
        "rescheduled = 0 AND abs(unix_micros(sent_due) - unix_micros(planned_due)) >= 1000",
        "concat('was sent with due time ', sent_due)",
    ),
    (
        "wrong time",
        "alive AND NOT changed_later AND place_due != life_due",
        "concat('has the due time ', place_due, ' in the queue, and ', life_due, ' by the log')",
    ),
    (
        "wrong payload",
        "payload != first_payload OR payload != last_payload",
        "'has another payload in the queue than in the plan'",
    ),
    (
        "wrong retries",
        "alive AND NOT changed_later AND place_left != left",
        "format_string('has %d retries left in the queue, and %d by the log', place_left, left)",
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
    payload = _digest("payload") if "payload" in plan.columns else F.lit(None).cast("string")
    columns = ("id", F.col("due").alias("planned_due"), action.alias("action"), payload.alias("payload"))
    planned = plan.where(in_period).select(*columns)
    outside = plan.where(~in_period).select("id", F.expr("true").alias("outside"))
    purges = [row.offset for row in events.where("kind = 'purged'").select("offset").distinct().collect()]

    joined = (
        planned.join(histories(events, purges), "id", "full_outer")
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
    for finding in [*_log(events, at, examples), *_ledger(events, runs)]:
        found[finding.what] = found.get(finding.what, 0) + 1
        listed.append(finding)
    return Audit(reminders, statuses, found, listed[:examples])


def with_digests(snapshot: DataFrame) -> DataFrame:
    """Return a snapshot that was read with its payloads, with a digest of each payload instead: for a smaller copy."""
    return snapshot.withColumn("digest", _digest("payload")).drop("payload")


def _digest(column: str) -> Column:
    return F.sha2(F.col(column).cast("binary"), 256)


def _locations(snapshot: DataFrame) -> DataFrame:
    """Return where each id is in the queue, and how often in the dead letter."""
    if "digest" not in snapshot.columns:
        snapshot = with_digests(snapshot)
    columns = (
        "max(state != 'dead') AS alive",
        "count_if(state = 'dead') AS held",
        "max(due) FILTER (WHERE state != 'dead') AS place_due",
        "max(retries_left) FILTER (WHERE state != 'dead') AS place_left",
        "min(digest) AS first_payload",
        "max(digest) AS last_payload",
    )
    return snapshot.groupBy("id").agg(*map(F.expr, columns))


def _with_findings(joined: DataFrame, at: datetime) -> DataFrame:
    """Add to each message its status and its first finding."""
    located = joined.withColumns(
        {
            "planned": F.expr("planned_due IS NOT NULL"),
            "alive": F.expr("coalesce(alive, false)"),
            "held": F.expr("coalesce(held, 0)"),
            "deaths": F.expr("coalesce(deaths, 0)"),
            "taken": F.expr("coalesce(taken, 0)"),
            # Changed after the snapshot was taken, so only the log is current.
            "changed_later": F.coalesce(F.col("last_at") >= F.lit(at), F.expr("false")),
            "dead_later": F.coalesce(F.col("dead_at") >= F.lit(at), F.expr("false")),
        }
    )
    withdrawn = "coalesce(action = 'cancel', false) AND log_status IS NULL AND NOT alive"
    status = """CASE WHEN withdrawn THEN 'cancelled'
        WHEN log_status != 'scheduled' THEN log_status
        WHEN alive OR changed_later THEN 'scheduled'
        WHEN held > 0 THEN 'dead' ELSE 'missing' END"""
    judged = located.withColumn("withdrawn", F.expr(withdrawn)).withColumn("status", F.expr(status))
    finding = "".join(f" WHEN {wrong} THEN {_text(what)}" for what, wrong, _ in _CHECKS)
    detail = "".join(f" WHEN {wrong} THEN {text}" for _, wrong, text in _CHECKS)
    return judged.selectExpr(
        *("id", "status", "planned_due", "sent_due", "delivered_at", "coalesce(deliveries, 0) AS deliveries"),
        *(f"CASE {finding} END AS finding", f"CASE {detail} END AS detail"),
    )


def _text(what: str) -> str:
    return what if "." in what else f"'{what}'"


def _log(events: DataFrame, at: datetime, limit: int) -> list[Finding]:
    """Return what is wrong with the log as a whole."""
    order = check_order(events, at, limit)
    found = [Finding("wrong order", one.id or "", one.detail) for one in order.out_of_order]
    if order.missing:
        detail = f"{order.missing} of the {order.last} entries up to offset {order.last} are missing"
        found.append(Finding("event lost", "", detail))
    return found


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
