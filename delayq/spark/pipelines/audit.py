"""The audit: what was planned, against the run ledger, the archived events and the queue as it stands.

Each planned reminder must be somewhere: scheduled, delivered, dead or cancelled. What is missing, early, delivered
twice without a fault, in the queue without a plan, or does not agree between the four, is a finding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from delayq.answers import LEAST_TIME
from delayq.runs import RunInfo
from delayq.spark.lives import BIRTHS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STATUSES = ("scheduled", "delivered", "dead", "cancelled", "missing")
"""Where a planned reminder may be."""

_ENDS = {"acked": "delivered", "discarded": "delivered", "dead": "dead", "cancelled": "cancelled"}
_FAULTS = ("nacked", "expired", "released")
"""What explains another delivery within one life."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not add up; `id` is a message, a run, or empty for the log as a whole."""

    what: str
    id: str
    detail: str


@dataclass(frozen=True, slots=True)
class Audit:
    """The account of a plan."""

    reminders: DataFrame
    """Each planned or seen message: id, status, planned and sent due, deliveries, first delivery, and its finding."""
    statuses: dict[str, int]
    """How many planned reminders are in each of `STATUSES`."""
    findings: dict[str, int]
    """How many findings there are of each kind."""
    examples: list[Finding]
    """The first findings, at most as many as were asked for."""

    @property
    def adds_up(self) -> bool:
        """Whether every reminder is accounted for and nothing was found."""
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
    """Compare a plan with the ledger, the archive and a snapshot of the queue that was taken `at` this time.

    `plan` has the columns id and due, and may have action (`cancel` for what must not be delivered any more). Only what
    is due from `start` and before `until` is held to the plan. Take the snapshot before the archive is brought up to
    date: what moves meanwhile is then in the archive. Reads everything, changes nothing.
    """
    window = F.expr("true")
    if start is not None:
        window &= F.col("due") >= F.lit(start)
    if until is not None:
        window &= F.col("due") < F.lit(until)
    action = F.col("action") if "action" in plan.columns else F.lit("new")
    planned = plan.where(window).select("id", F.col("due").alias("planned_due"), action.alias("action"))
    outside = plan.where(~window).select("id", F.expr("true").alias("outside"))

    joined = (
        planned.join(_histories(events), "id", "full_outer")
        .join(_places(snapshot), "id", "full_outer")
        .join(outside, "id", "left_anti")
    )
    reminders = _judged(joined, at).persist()
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
    """Return what the log tells of each message, in one pass."""
    kind = F.col("kind")

    def times(*kinds: str) -> Column:
        return F.count_if(kind.isin(*kinds))

    purge = events.where(kind == "purged").agg(F.max("offset").alias("purge"))
    place = F.struct("offset", "index")
    histories = (
        events.where(F.col("id").isNotNull())
        .groupBy("id")
        .agg(
            F.max_by("kind", place).alias("last"),
            F.max_by("at", place).alias("last_at"),
            F.max("offset").alias("last_offset"),
            F.max_by("due", F.when(kind.isin(*BIRTHS, "rescheduled"), F.col("offset"))).alias("sent_due"),
            F.min(F.when(kind == "delivered", F.col("at"))).alias("delivered_at"),
            times("delivered").alias("deliveries"),
            times(*BIRTHS).alias("lives"),
            times(*_FAULTS).alias("faults"),
            times("acked", "discarded").alias("acks"),
            times("rescheduled").alias("rescheduled"),
            F.count_if((kind == "delivered") & (F.col("at") < F.col("due"))).alias("early"),
        )
    )
    ends = F.create_map(*(F.lit(part) for pair in _ENDS.items() for part in pair))
    purged = F.coalesce(F.col("purge") > F.col("last_offset"), F.expr("false"))
    return histories.crossJoin(F.broadcast(purge)).withColumn(
        "told", F.coalesce(ends[F.col("last")], F.when(purged, "cancelled").otherwise("scheduled"))
    )


def _places(snapshot: DataFrame) -> DataFrame:
    """Return for each id whether it lives in the queue and whether it is in the dead letter."""
    dead = F.col("state") == "dead"
    return snapshot.groupBy("id").agg(F.max(~dead).alias("alive"), F.max(dead).alias("buried"))


def _judged(joined: DataFrame, at: datetime) -> DataFrame:
    """Add to each message its status and the first thing that is wrong with it."""
    col = F.col
    alive, buried = (F.coalesce(col(name), F.expr("false")) for name in ("alive", "buried"))
    # What happened after the snapshot was taken, only the log can know.
    later = F.coalesce(col("last_at") >= F.lit(at), F.expr("false"))
    told = col("told")
    never = (col("action") == "cancel") & told.isNull() & ~alive
    status = (
        F.when(never, "cancelled")
        .when(told == "scheduled", F.when(alive | later, "scheduled").when(buried, "dead").otherwise("missing"))
        .when(told.isNotNull(), told)
        .when(alive, "scheduled")
        .when(buried, "dead")
        .otherwise("missing")
    )
    planned = col("planned_due").isNotNull()
    # A due time is stored in whole milliseconds, rounded up.
    off = F.abs(F.unix_micros("sent_due") - F.unix_micros("planned_due")) >= F.lit(1000)
    checks: list[tuple[str, Column, Column]] = [
        ("missing", planned & told.isNull() & ~alive & ~buried & ~never, F.lit("was never sent")),
        ("missing", (status == "missing"), F.concat(F.lit("is not in the queue; last seen "), col("last"))),
        ("early", col("early") > 0, F.lit("was delivered before it was due")),
        (
            "duplicate",
            (col("lives") > 0) & ((col("acks") > col("lives")) | (col("deliveries") > col("lives") + col("faults"))),
            F.format_string(
                "%d deliveries and %d acks in %d lives with %d faults", "deliveries", "acks", "lives", "faults"
            ),
        ),
        ("event lost", (col("acks") > 0) & (col("deliveries") == 0), F.lit("was acked without a delivery")),
        ("event lost", told.isNotNull() & (col("lives") == 0), F.lit("its sending is not in the log")),
        ("event lost", told.isNull() & (alive | buried), F.lit("is in the queue and not in the log")),
        ("resurrected", col("told").isin(*_ENDS.values()) & alive & ~later, F.lit("had ended and is in the queue")),
        (
            "not cancelled",
            (col("action") == "cancel") & (status == "scheduled"),
            F.lit("was to be cancelled and is scheduled"),
        ),
        ("unplanned", ~planned, F.concat(F.lit("is in no plan; "), status)),
        (
            "wrong time",
            (col("rescheduled") == 0) & F.coalesce(off, F.expr("false")),
            F.concat(F.lit("sent for "), col("sent_due").cast("string")),
        ),
    ]
    finding, detail = F.lit(None).cast("string"), F.lit(None).cast("string")
    for what, wrong, text in reversed(checks):
        is_wrong = F.coalesce(wrong, F.expr("false"))
        finding = F.when(is_wrong, F.lit(what)).otherwise(finding)
        detail = F.when(is_wrong, text).otherwise(detail)
    return joined.select(
        "id",
        status.alias("status"),
        "planned_due",
        "sent_due",
        "delivered_at",
        F.coalesce(col("deliveries"), F.lit(0)).alias("deliveries"),
        finding.alias("finding"),
        detail.alias("detail"),
    )


def _gaps(events: DataFrame) -> list[Finding]:
    """Return what is missing in a log whose entries are numbered without gaps."""
    row = events.agg(
        F.min("offset").alias("first"), F.max("offset").alias("last"), F.count_distinct("offset").alias("entries")
    ).first()
    if row is None or row.first is None or row.last >= LEAST_TIME:
        return []
    missing = row.last - row.entries
    if not missing:
        return []
    return [Finding("event lost", "", f"{missing} of the {row.last} entries up to offset {row.last} are missing")]


def _ledger(events: DataFrame, runs: Iterable[RunInfo]) -> list[Finding]:
    """Return the runs that were not ended well, and those of which the log tells otherwise than the ledger."""
    ledger = list(runs)
    if not ledger:
        return []
    sends = events.where(F.col("kind").isin("sent", "replaced") & F.col("run").isNotNull())
    seen = {row.run: row["count"] for row in sends.groupBy("run").count().collect()}
    found = []
    for info in ledger:
        if info.state != "committed":
            found.append(Finding("run", info.run, f"is {info.state}, not committed"))
        if seen.get(info.run, 0) != info.new + info.replaced:
            detail = f"the ledger has {info.new + info.replaced} messages stored, the log {seen.get(info.run, 0)}"
            found.append(Finding("run", info.run, detail))
    return found
