"""Audits a plan: compares it with the run ledger, the archived events and the current state of the queue.

Each planned reminder must be scheduled, delivered, dead or cancelled. Findings are reminders that are missing, early,
delivered twice without a failure or not planned, and any disagreement between the four sources.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from delayq.queue.sweeps.bulk_runs import RunInfo
from delayq.spark.datasource.log_gaps import missing, told
from delayq.spark.datasource.schemas import IMPORTED
from delayq.spark.pipelines.archiving.rollback import Undone
from delayq.spark.pipelines.audit_result import NOT_LOADED, STATUSES, Audit, Finding, RunAudit
from delayq.spark.pipelines.log_order import check_order
from delayq.spark.pipelines.message_lives import histories
from delayq.spark.pipelines.planned_reminders import digest, planned
from delayq.values.times import Duration, to_millis

MAX_LATE = "5m"
"""How long a reminder may wait after its time, if nobody says otherwise."""

_CHECKS = (
    ("planned twice", "planned AND rows > 1", "format_string('is in the plan %d times', rows)"),
    (
        "planned twice",
        "planned AND first_id IS NOT NULL",
        "concat('is the same reminder of the same source as ', first_id)",
    ),
    ("missing", "planned AND status = 'missing' AND log_status IS NULL", "'was never sent'"),
    ("early", "early > 0", "'was delivered before it was due'"),
    ("unplanned", "NOT planned AND wrong.what = 'sent again'", "concat('is not in the plan; status: ', status)"),
    ("wrong.what", "wrong IS NOT NULL", "wrong.text"),
    ("missing", "status = 'missing'", "concat('is not in the queue; last seen ', last)"),
    (
        "event lost",
        "NOT is_cut AND log_status IS NULL AND (alive OR held > 0)",
        "'is in the queue, but not in the log'",
    ),
    ("resurrected", "log_status != 'scheduled' AND alive AND NOT changed_later", "'is in the queue after its end'"),
    (
        "dead letter",
        "NOT dead_later AND if(is_cut, deaths - taken > held, deaths - taken != held)",
        """format_string('is in the dead letter %d times; by the log it died %d times, and %d were redriven or deleted',
            held, deaths, taken)""",
    ),
    (
        "not cancelled",
        "action = 'cancel' AND status IN ('scheduled', 'overdue')",
        "'should be cancelled, but is scheduled'",
    ),
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
    ("overdue", "status = 'overdue'", "concat('waits since ', since, ': nobody has started it')"),
    ("late", "is_late AND late_counts", "format_string('was delivered %d s late', lateness div 1000000)"),
)
"""Each finding, when it applies and its detail, in SQL; the first that applies to a message is its finding."""


def audit(
    plan: DataFrame | Sequence[DataFrame],
    events: DataFrame,
    snapshot: DataFrame,
    runs: Iterable[RunInfo] = (),
    *,
    at: datetime,
    start: datetime | None = None,
    until: datetime | None = None,
    max_late: Duration | None = None,
    default_max_late: Duration | None = None,
    archive_start: datetime | None = None,
    undone: Iterable[Undone] = (),
    examples: int = 1000,
) -> Audit:
    """Compare plans with the ledger, the archive and a snapshot of the queue that was taken `at` a time.

    A plan has the columns id and due, and optionally payload and action (`cancel`: must no longer be delivered). Of
    several plans give the latest last: it decides on an id that is in more than one. What the loads of a plan were to
    send is in the ledger. `start` (inclusive) and `until` (exclusive) audit only a part of it. Take the snapshot, with
    payloads, before updating the archive, so that messages that move meanwhile are in the archive. The audit only
    reads.

    What is due for longer than `max_late` (else `default_max_late`, else 5 minutes) and was not started is overdue: a
    finding. First deliveries that were later are counted; they are findings if `max_late` is given. So is an audit
    without any reminder. `undone` are the roll-backs of the archive's log, which the result tells.

    If events were deleted on purpose (`archive --retain`), give the time returned by `archive_start`. Then reminders
    due before are not audited, nor are the counts of runs that began before.
    """
    runs = list(runs)
    purges = [row.log_offset for row in events.where("kind = 'purged'").select("log_offset").distinct().collect()]
    plans = (plan,) if isinstance(plan, DataFrame) else tuple(plan)
    is_cut = archive_start is not None
    start = max((one for one in (start, archive_start) if one is not None), default=None)
    joined = (
        planned(plans, runs, start, until)
        .join(histories(events, purges, is_cut=is_cut), "id", "full_outer")
        .join(_locations(snapshot), "id", "full_outer")
        .where("coalesce(in_period, true)")
    )
    limit = timedelta(milliseconds=to_millis(max_late or default_max_late or MAX_LATE, "max_late"))
    flags = {"is_cut": F.lit(is_cut), "late_counts": F.lit(max_late is not None)}
    reminders = _with_findings(joined.withColumns(flags), at, limit).persist()
    statuses, found, not_loaded, unsent, late = dict.fromkeys(STATUSES, 0), Counter[str](), 0, 0, 0
    of_run, wrong_of_run = defaultdict[str, Counter[str]](Counter), Counter[str]()
    try:
        is_unsent = F.expr("detail <=> 'was never sent'").alias("unsent")
        is_again = F.col("first_id").isNotNull().alias("again")
        groups = reminders.groupBy("planned", "status", "run", "finding", is_unsent, is_again, "is_late").count()
        for row in groups.collect():
            number = row["count"]
            if row.finding:
                found[row.finding] += number
                wrong_of_run[row.run] += number
            if row.status == NOT_LOADED:
                not_loaded += number
                continue
            if row.planned and not row.again:
                late += number if row.is_late else 0
                statuses[row.status] += number
                of_run[row.run][row.status] += number
            unsent += number if row.unsent else 0
        listed = list[Finding]()
        if found:  # else a job is spared
            first = reminders.where("finding is not null").orderBy("finding", "id").limit(examples)
            listed = [Finding(row.finding, row.id, row.detail) for row in first.collect()]
    finally:
        reminders.unpersist()
    reminders = reminders.drop("first_id", "is_late")
    logged = _logged(events) if runs else {}
    of_runs = [
        finding
        for info in runs
        for finding in _judged(
            info, logged.get(info.run, 0), unsent, is_cut=archive_start is not None and info.started < archive_start
        )
    ]
    for finding in [*_log(events, at, examples, is_cut=is_cut), *of_runs]:
        found[finding.what] += 1
        listed.append(finding)
    if not any(statuses.values()) and not found:
        found["nothing audited"] = 1
        listed.append(Finding("nothing audited", "", "no reminder of the plan was to be sent in this period"))
    wrong_of_run.update(finding.id for finding in of_runs)
    audited = [
        RunAudit(
            *(info.run, info.state, info.new + info.replaced, logged.get(info.run, 0)),
            *(dict(of_run[info.run]), wrong_of_run[info.run]),
        )
        for info in runs
    ]
    told = (statuses, dict(found), listed[:examples], audited, not_loaded, late, tuple(undone))
    return Audit(reminders, *told, archive_start)


def with_digests(snapshot: DataFrame) -> DataFrame:
    """Return a snapshot that was read with its payloads, with a digest of each payload instead: for a smaller copy."""
    return snapshot.withColumn("digest", digest("payload")).drop("payload")


def _locations(snapshot: DataFrame) -> DataFrame:
    """Return where each id is in the queue, and how often in the dead letter."""
    if "digest" not in snapshot.columns:
        snapshot = with_digests(snapshot)
    columns = (
        "max(state != 'dead') AS alive",
        "count_if(state = 'dead') AS held",
        "max(due) FILTER (WHERE state != 'dead') AS place_due",
        "max(deadline) FILTER (WHERE state != 'dead') AS place_deadline",
        "max(retries_left) FILTER (WHERE state != 'dead') AS place_left",
        "min(digest) AS first_payload",
        "max(digest) AS last_payload",
    )
    return snapshot.groupBy("id").agg(*map(F.expr, columns))


def _with_findings(joined: DataFrame, at: datetime, max_late: timedelta) -> DataFrame:
    """Add to each message its status and its first finding."""
    located = joined.withColumns(
        {
            "planned": F.expr("coalesce(planned, false)"),
            "alive": F.expr("coalesce(alive, false)"),
            "held": F.expr("coalesce(held, 0)"),
            "deaths": F.expr("coalesce(deaths, 0)"),
            "taken": F.expr("coalesce(taken, 0)"),
            # Changed after the snapshot was taken, so only the log is current.
            "changed_later": F.coalesce(F.col("last_at") >= F.lit(at), F.expr("false")),
            "dead_later": F.coalesce(F.col("dead_at") >= F.lit(at), F.expr("false")),
        }
    )
    # What failed waits until the end of its backoff, what runs has time until the end of its lease.
    since = """CASE WHEN last IN ('nacked', 'expired', 'delivered') THEN if(changed_later, NULL, place_deadline)
        WHEN last = 'retried' THEN last_at ELSE coalesce(place_due, life_due, planned_due) END"""
    late_before = round((at - max_late).timestamp() * 1e6)
    is_late = f"coalesce(lateness > {round(max_late.total_seconds() * 1e6)}, false)"
    withdrawn = "coalesce(action = 'cancel', false) AND log_status IS NULL AND NOT alive"
    status = f"""CASE WHEN NOT expected AND log_status IS NULL AND NOT alive AND held = 0 THEN '{NOT_LOADED}'
        WHEN withdrawn THEN 'cancelled'
        WHEN log_status != 'scheduled' THEN log_status
        WHEN (alive OR changed_later) AND since < timestamp_micros({late_before}) THEN 'overdue'
        WHEN alive OR changed_later THEN 'scheduled'
        WHEN held > 0 THEN 'dead' ELSE 'missing' END"""
    located = located.withColumns({"since": F.expr(since), "is_late": F.expr(is_late), "withdrawn": F.expr(withdrawn)})
    judged = located.withColumn("status", F.expr(status))
    finding = "".join(f" WHEN {wrong} THEN {_text(what)}" for what, wrong, _ in _CHECKS)
    detail = "".join(f" WHEN {wrong} THEN {text}" for _, wrong, text in _CHECKS)
    return judged.selectExpr(
        *(
            "id",
            "planned",
            "status",
            "run",
            "planned_due",
            "sent_due",
            "delivered_at",
            "coalesce(deliveries, 0) AS deliveries",
            "first_id",
            "is_late",
        ),
        *(f"CASE {finding} END AS finding", f"CASE {detail} END AS detail"),
    )


def _text(what: str) -> str:
    return what if "." in what else f"'{what}'"


def _log(events: DataFrame, at: datetime, limit: int, *, is_cut: bool) -> list[Finding]:
    """Return what is wrong with the log as a whole."""
    order = check_order(events, at, limit, is_cut=is_cut)
    found = [Finding(*one) for one in order.disorders]
    if order.missing > 0:
        gaps = missing(events, order.first, order.last)
        found += [Finding("event lost", "", f"missing in the log: {told([gap])}") for gap in gaps]
    return found


def _logged(events: DataFrame) -> dict[str, int]:
    """Return how many messages each run stored, by the log."""
    sends = events.where(F.col("kind").isin("sent", "replaced", IMPORTED) & F.col("run").isNotNull())
    return {row.run: row["count"] for row in sends.groupBy("run").count().collect()}


def _judged(info: RunInfo, logged: int, unsent: int, *, is_cut: bool) -> list[Finding]:
    """Return what is wrong with a run. One that did not end is in order if nothing is left to send.

    If its first events were deleted (`is_cut`), they are not counted.
    """
    findings = []
    if info.state != "committed" and unsent:
        detail = f"is {info.state}, not committed, and planned reminders were never sent: load the plan again"
        findings.append(Finding("run", info.run, detail))
    if logged != (stored := info.new + info.replaced) and not is_cut:
        findings.append(Finding("run", info.run, f"stored {stored} messages by the ledger, {logged} by the log"))
    return findings
