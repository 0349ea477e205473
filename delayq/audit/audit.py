"""Audits a plan: compares it with the run ledger, the archived events and the current state of the queue.

Each planned reminder must be scheduled, delivered, dead or cancelled. Findings are reminders that are missing, early,
delivered twice without a failure or not planned, and any disagreement between the four sources.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from delayq.archive.archive_files import Undone
from delayq.archive.log_gaps import missing, told
from delayq.archive.sql_engine import SqlEngine, micros_of, rows_of, time_text
from delayq.audit.audit_result import NOT_LOADED, STATUSES, Audit, Finding, RunAudit
from delayq.audit.cold_checks import COLD, COLD_CHECKS, with_cold
from delayq.audit.log_order import check_order
from delayq.audit.message_lives import histories
from delayq.audit.planned_reminders import planned
from delayq.bulk.files.schemas import IMPORTED
from delayq.bulk.load_run import UNKNOWN
from delayq.queue.sweeps.bulk_runs import RunInfo
from delayq.values.times import Duration, to_millis

T = TypeVar("T")

MAX_LATE = "5m"
"""How long a reminder may wait after its time, if nobody says otherwise."""

_CHECKS = (
    ("planned twice", "planned AND rows > 1", "concat('is in the plan ', rows, ' times')"),
    (
        "planned twice",
        "planned AND first_id IS NOT NULL",
        "concat('is the same reminder of the same source as ', first_id)",
    ),
    ("missing", "planned AND status = 'missing' AND log_status IS NULL", "'was never sent'"),
    ("early", "early > 0", "'was delivered before it was due'"),
    ("unplanned", "NOT planned AND wrong.what = 'sent again'", "concat('is not in the plan; status: ', status)"),
    ("wrong.what", "wrong IS NOT NULL", "wrong.text"),
    *COLD_CHECKS,
    ("missing", "status = 'missing'", "concat('is not in the queue; last seen ', last)"),
    (
        "event lost",
        "NOT is_cut AND log_status IS NULL AND (alive OR held > 0 OR cold_files > 0)",
        "concat('is in the ', if(alive OR held > 0, 'queue', 'cold tier'), ', but not in the log')",
    ),
    (
        "resurrected",
        f"log_status NOT IN ('scheduled', '{COLD}') AND alive AND NOT changed_later",
        "'is in the queue after its end'",
    ),
    (
        "dead letter",
        "NOT dead_later AND if(is_cut, deaths - taken > held, deaths - taken != held)",
        """concat('is in the dead letter ', held, ' times; by the log it died ', deaths, ' times, and ', taken,
            ' were redriven or deleted')""",
    ),
    (
        "not cancelled",
        # What was withdrawn in the cold tier is only known by its files.
        """action = 'cancel' AND status IN ('scheduled', 'overdue', 'cold')
            AND (NOT is_cold OR cold_files > withdrawn_files)""",
        "concat('should be cancelled, but is ', if(is_cold, 'cold', 'scheduled'))",
    ),
    ("unplanned", "NOT planned", "concat('is not in the plan; status: ', status)"),
    (
        "wrong time",
        # A due time is stored in milliseconds, rounded up.
        "rescheduled = 0 AND abs(unix_micros(sent_due) - unix_micros(planned_due)) >= 1000",
        f"concat('was sent with due time ', {time_text('sent_due')})",
    ),
    (
        "wrong time",
        "alive AND NOT changed_later AND place_due != life_due",
        f"""concat('has the due time ', {time_text("place_due")}, ' in the queue, and ', {time_text("life_due")},
            ' by the log')""",
    ),
    (
        "wrong payload",
        "payload != first_payload OR payload != last_payload",
        "'has another payload in the queue than in the plan'",
    ),
    (
        "wrong retries",
        "alive AND NOT changed_later AND place_left != left",
        "concat('has ', place_left, ' retries left in the queue, and ', left, ' by the log')",
    ),
    ("overdue", "status = 'overdue'", f"concat('waits since ', {time_text('since')}, ': nobody has started it')"),
    ("late", "is_late AND late_counts", "concat('was delivered ', lateness DIV 1000000, ' s late')"),
)
"""Each finding, when it applies and its detail, in SQL; the first that applies to a message is its finding."""


def audit(
    engine: SqlEngine[T],
    plans: Sequence[T],
    events: T,
    snapshot: T,
    runs: Iterable[RunInfo] = (),
    *,
    at: datetime,
    sources: Sequence[str] | None = None,
    start: datetime | None = None,
    until: datetime | None = None,
    max_late: Duration | None = None,
    default_max_late: Duration | None = None,
    archive_start: datetime | None = None,
    undone: Iterable[Undone] = (),
    cold: T | None = None,
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

    `cold` is the table of `delayq.bulk.cold_messages`, read after the snapshot and before the archive is updated: it is
    compared with the log. Without it, what is cold by the log counts as `cold`.

    If events were deleted on purpose (`archive --retain`), give the time returned by `archive_start`. Then reminders
    due before are not audited, nor are the counts of runs that began before.
    """
    runs = list(runs)
    is_cut = archive_start is not None
    start = max((one for one in (start, archive_start) if one is not None), default=None)
    limit = timedelta(milliseconds=to_millis(max_late or default_max_late or MAX_LATE, "max_late"))
    purges = [
        row["log_offset"]
        for row in rows_of(
            engine, engine.query("SELECT DISTINCT log_offset FROM {events} WHERE kind = 'purged'", events=events)
        )
    ]
    joined = engine.query(
        """SELECT * FROM {planned} FULL OUTER JOIN {histories} USING (id) FULL OUTER JOIN {places} USING (id)
        WHERE coalesce(in_period, true)""",
        planned=planned(engine, plans, sources or [UNKNOWN] * len(plans), runs, start=start, until=until),
        histories=histories(engine, events, purges, is_cut=is_cut),
        places=_locations(engine, snapshot, cold),
    )
    facts = {"is_cut": is_cut, "late_counts": max_late is not None, "has_tier": cold is not None}
    judged = _with_findings(engine, joined, at, limit, facts)
    statuses, found, not_loaded, unsent, late = dict.fromkeys(STATUSES, 0), Counter[str](), 0, 0, 0
    of_run, wrong_of_run = defaultdict[str, Counter[str]](Counter), Counter[str]()
    listed = list[Finding]()
    with engine.kept(judged) as reminders:
        for row in rows_of(engine, engine.query(_GROUPS, reminders=reminders)):
            number = row["number"]
            if row["finding"]:
                found[row["finding"]] += number
                wrong_of_run[row["run"]] += number
            if row["status"] == NOT_LOADED:
                not_loaded += number
                continue
            if row["planned"] and not row["again"]:
                late += number if row["is_late"] else 0
                statuses[row["status"]] = statuses.get(row["status"], 0) + number
                of_run[row["run"]][row["status"]] += number
            unsent += number if row["unsent"] else 0
        if found:  # else a query is spared
            first = f"{_FIRST} LIMIT {examples}"
            listed = [Finding(**row) for row in rows_of(engine, engine.query(first, reminders=reminders))]
        table = engine.result(engine.query("SELECT * EXCEPT (first_id, is_late) FROM {reminders}", reminders=reminders))
    logged = _logged(engine, events) if runs else {}
    of_runs = [
        finding
        for info in runs
        for finding in _judged(
            info, logged.get(info.run, 0), unsent, is_cut=archive_start is not None and info.started < archive_start
        )
    ]
    for finding in [*_log(engine, events, at, examples, is_cut=is_cut), *of_runs]:
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
    return Audit(table, *told, archive_start)


_GROUPS = """
SELECT planned, status, run, finding, coalesce(detail = 'was never sent', false) AS unsent,
    first_id IS NOT NULL AS again, is_late, count(*) AS number
FROM {reminders}
GROUP BY planned, status, run, finding, coalesce(detail = 'was never sent', false), first_id IS NOT NULL, is_late
"""
_FIRST = """
SELECT finding AS what, id, detail FROM {reminders} WHERE finding IS NOT NULL ORDER BY finding, id
"""


_IN_FILES = "state IN ('cold', 'withdrawn')"
_IN_QUEUE = "state NOT IN ('dead', 'cold', 'withdrawn')"


def with_digests(engine: SqlEngine[T], snapshot: T) -> T:
    """Return a snapshot that was read with its payloads, with a digest of each payload instead: for a smaller copy."""
    others = ", ".join(name for name in engine.types(snapshot) if name != "payload")
    return engine.query(f"SELECT {others}, sha2(payload, 256) AS digest FROM {{snapshot}}", snapshot=snapshot)


def _locations(engine: SqlEngine[T], snapshot: T, cold: T | None) -> T:
    """Return where each id is in the queue, and how often in the dead letter."""
    if "digest" not in engine.types(snapshot):
        snapshot = with_digests(engine, snapshot)
    if cold is not None:
        snapshot = with_cold(engine, snapshot, cold)
    return engine.query(
        f"""SELECT id, bool_or({_IN_QUEUE}) AS alive, count_if(state = 'dead') AS held,
            count_if({_IN_FILES}) AS cold_files, count_if(state = 'withdrawn') AS withdrawn_files,
            max(due) FILTER (WHERE {_IN_QUEUE}) AS place_due,
            max(deadline) FILTER (WHERE {_IN_QUEUE}) AS place_deadline,
            max(retries_left) FILTER (WHERE {_IN_QUEUE}) AS place_left,
            min(digest) FILTER (WHERE NOT {_IN_FILES}) AS first_payload,
            max(digest) FILTER (WHERE NOT {_IN_FILES}) AS last_payload,
            max(due) FILTER (WHERE {_IN_FILES}) AS cold_due,
            max(retries_left) FILTER (WHERE {_IN_FILES}) AS cold_left,
            max(digest) FILTER (WHERE {_IN_FILES}) AS cold_payload
        FROM {{snapshot}} GROUP BY id""",
        snapshot=snapshot,
    )


def _with_findings(engine: SqlEngine[T], joined: T, at: datetime, max_late: timedelta, facts: Mapping[str, bool]) -> T:
    """Add to each message its status and its first finding."""
    taken_at = f"timestamp_micros({micros_of(at)})"
    late_before = f"timestamp_micros({micros_of(at - max_late)})"
    finding = "".join(f" WHEN {wrong} THEN {_text(what)}" for what, wrong, _ in _CHECKS)
    detail = "".join(f" WHEN {wrong} THEN {text}" for _, wrong, text in _CHECKS)
    return engine.query(
        f"""WITH located AS (
            SELECT id, action, payload, first_id, rows, planned_due, expected, last, last_at, sent_due, life_due, run,
                left, delivered_at, lateness, rescheduled, early, wrong, log_status, place_due, place_deadline,
                place_left, first_payload, last_payload, coalesce(planned, false) AS planned,
                coalesce(alive, false) AS alive, coalesce(held, 0) AS held, coalesce(deaths, 0) AS deaths,
                coalesce(taken, 0) AS taken, coalesce(deliveries, 0) AS deliveries,
                -- Changed after the snapshot was taken, so only the log is current.
                coalesce(last_at >= {taken_at}, false) AS changed_later,
                coalesce(dead_at >= {taken_at}, false) AS dead_later,
                coalesce(cold_files, 0) AS cold_files, coalesce(withdrawn_files, 0) AS withdrawn_files,
                coalesce(cold, 0) AS cold, spilled_due, cold_due, cold_left, cold_payload,
                coalesce(cold_at >= {taken_at}, false) AS cold_later,
                {", ".join(f"{str(value).lower()} AS {name}" for name, value in facts.items())}
            FROM {{joined}}
        ), waiting AS (
            -- What failed waits until the end of its backoff, what runs has time until the end of its lease.
            SELECT *, CASE WHEN last IN ('nacked', 'expired', 'delivered')
                    THEN if(changed_later, NULL, place_deadline)
                WHEN last = 'retried' THEN last_at
                ELSE coalesce(place_due, life_due, cold_due, planned_due) END AS since,
                coalesce(lateness > {max_late // timedelta(microseconds=1)}, false) AS is_late,
                coalesce(action = 'cancel', false) AND log_status IS NULL AND NOT alive
                    AND cold_files = 0 AS withdrawn,
                NOT alive AND (coalesce(log_status = 'cold', false) OR log_status IS NULL AND cold_files > 0) AS is_cold
            FROM located
        ), judged AS (
            SELECT *, CASE
                WHEN NOT expected AND log_status IS NULL AND NOT alive AND held = 0 AND NOT is_cold THEN '{NOT_LOADED}'
                WHEN withdrawn THEN 'cancelled'
                WHEN is_cold AND cold_files > 0 AND cold_files = withdrawn_files THEN 'cancelled'
                WHEN is_cold AND has_tier AND cold_files = 0 AND NOT cold_later THEN 'missing'
                WHEN is_cold THEN if(since < {late_before}, 'overdue', '{COLD}')
                WHEN log_status != 'scheduled' THEN log_status
                WHEN (alive OR changed_later) AND since < {late_before} THEN 'overdue'
                WHEN alive OR changed_later THEN 'scheduled'
                WHEN held > 0 THEN 'dead' ELSE 'missing' END AS status
            FROM waiting
        ) SELECT id, planned, status, run, planned_due, sent_due, delivered_at, deliveries, first_id, is_late,
            CASE {finding} END AS finding, CASE {detail} END AS detail
        FROM judged""",
        joined=joined,
    )


def _text(what: str) -> str:
    return what if "." in what else f"'{what}'"


def _log(engine: SqlEngine[T], events: T, at: datetime, limit: int, *, is_cut: bool) -> list[Finding]:
    """Return what is wrong with the log as a whole."""
    order = check_order(engine, events, at, limit, is_cut=is_cut)
    found = [Finding(*one) for one in order.disorders]
    if order.missing > 0:
        gaps = missing(engine, events, order.first, order.last)
        found += [Finding("event lost", "", f"missing in the log: {told([gap])}") for gap in gaps]
    return found


def _logged(engine: SqlEngine[T], events: T) -> dict[str, int]:
    """Return how many messages each run stored, by the log."""
    sends = engine.query(
        f"""SELECT run, count(*) AS number FROM {{events}}
        WHERE kind IN {("sent", "replaced", IMPORTED)} AND run IS NOT NULL GROUP BY run""",
        events=events,
    )
    return {row["run"]: row["number"] for row in rows_of(engine, sends)}


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
