"""The audit on hand-made histories: it finds each fault, and nothing else."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from delayq.archive.message_steps import SETTLED, SPENT
from delayq.archive.sql_engine import DuckDB
from delayq.audit.audit import audit
from delayq.audit.audit_result import Audit
from delayq.bulk.files.schemas import EVENTS, IMPORTED, KILLED, PLAN, SNAPSHOT
from delayq.queue.sweeps.bulk_runs import RunInfo
from tests.support.event_tables import table_of

T0 = datetime(2026, 3, 1, 9, tzinfo=UTC)
DUE = T0 + timedelta(hours=1)
AT = T0 + timedelta(hours=2)
"""When the snapshot was taken."""
EVENT_COLUMNS = [part.split()[0] for part in EVENTS.split(", ")]
SNAPSHOT_COLUMNS = [part.split()[0] for part in SNAPSHOT.replace("MAP<STRING,STRING>", "MAP").split(", ")]


def log_of(*stories: tuple[str, str]):
    """Make the log of messages, each an id and its kinds: "sent promoted delivered acked".

    "early" is a delivery before its time, "spent" a nack that uses the last retry, "rejected" a death without one,
    "killed" one by hand.
    """
    rows: list[dict] = []
    for id, story in stories:
        retries = 0 if "spent" in story else 3
        life = {"attempt": 0, "retries_left": retries, "token": 1000 * len(rows)}
        for name in story.split():
            rows.append(
                dict.fromkeys(EVENT_COLUMNS)
                | {"log_offset": len(rows) + 1, "entry_index": 0, "id": id, "event_at": DUE}
            )
            rows[-1] |= event_of(name, life, retries)
            if "early" in story and rows[-1]["due"]:
                rows[-1]["due"] = DUE + timedelta(minutes=1)
    return rows


def event_of(name: str, life: dict[str, int], retries: int) -> dict:
    """Return the columns of a message's next event, and update its life."""
    kind = {"early": "delivered", "spent": "nacked", "rejected": "dead", "killed": "dead"}.get(name, name)
    starts = kind in ("sent", "replaced", "redriven")
    if starts:
        life |= {"attempt": 0, "retries_left": retries}
    life["attempt"] += (kind == "delivered") - (kind == "released")
    life["token"] += kind == "delivered"
    life["retries_left"] -= name in ("nacked", "expired")
    columns = {
        "due": starts or kind in ("rescheduled", "promoted", "delivered", "dead", IMPORTED),
        "token": kind
        in (*SETTLED, "delivered", "missed", "nacked", "expired", "released", "retried", "dead", IMPORTED),
        "attempt": kind in ("delivered", "dead", IMPORTED),
        "retries_left": starts or name in ("early", "delivered", "nacked", "expired"),
    }
    values = life | {"due": DUE}
    event = {"kind": kind} | {column: values[column] for column, has_it in columns.items() if has_it}
    if kind in ("dead", IMPORTED):
        event["reason"] = {"rejected": "no", "killed": KILLED}.get(name, SPENT)
    return event | ({"run": "r1"} if kind in ("sent", IMPORTED) else {})


def reminders(*ids: str, action: str = "new", due: datetime = DUE):
    return [(id, id.removesuffix("x"), "rule", 0, due, "{}", 0, action, 3) for id in ids]


def places(**states: str):
    return [
        tuple({"id": id, "state": state, "due": DUE}.get(name) for name in SNAPSHOT_COLUMNS)
        for id, state in states.items()
    ]


def run(new: int, state: str = "committed", name: str = "r1", **horizon) -> RunInfo:
    return RunInfo(name, state, T0, AT, new, 0, 0, 0, 0, 0, **horizon)


@pytest.fixture
def run_audit():
    def call(plan, events, snapshot=(), runs=(), *, newer=None, **options) -> Audit:
        engine = DuckDB()
        plans = [engine.table(table_of(rows, PLAN)) for rows in (plan, newer) if rows is not None]
        log = engine.table(table_of([tuple(event[name] for name in EVENT_COLUMNS) for event in events], EVENTS))
        state = engine.table(table_of(snapshot, SNAPSHOT))
        return audit(engine, plans, log, state, runs, at=AT, **{"default_max_late": "1d"} | options)

    return call


def test_every_planned_reminder_is_accounted_for(run_audit):
    killed = {
        "untried": "sent killed",
        "returned": "sent promoted delivered released killed",
        "failed": "sent promoted delivered nacked retried killed",
        "redriven": "sent promoted delivered nacked killed redriven killed",
    }
    imported = {
        "elsewhere": "dead_imported",
        "both": "sent promoted delivered rejected dead_purged dead_imported",
        "twice": "dead_imported redriven promoted delivered rejected dead_purged",
    }
    result = run_audit(
        reminders("acked", "discarded", "waiting", "dead", "withdrawn", "retried", *killed, *imported),
        log_of(
            ("acked", "sent promoted delivered acked"),
            ("discarded", "sent promoted audit delivered missed discarded audit"),
            ("waiting", "sent"),
            ("dead", "sent promoted delivered missed rejected"),
            ("withdrawn", "sent cancelled audit"),
            ("retried", "sent promoted delivered nacked retried delivered expired retried delivered acked"),
            *killed.items(),
            *imported.items(),
        ),
        places(waiting="pending", dead="dead", **dict.fromkeys((*killed, "elsewhere", "both"), "dead")),
        [run(11 + 3)],
    )
    assert result.statuses == {"scheduled": 1, "overdue": 0, "delivered": 3, "dead": 8, "cancelled": 1, "missing": 0}
    assert result.findings == {}
    assert result.adds_up


FAULTS = {
    "a message deleted from Redis by hand": ("sent", {}, "missing", "is not in the queue; last seen sent"),
    "one that was never sent": ("", {}, "missing", "was never sent"),
    "one lost while it was processed": (
        "sent promoted delivered",
        {},
        "missing",
        "is not in the queue; last seen delivered",
    ),
    "a delivery before its time": ("sent promoted early acked", {}, "early", "was delivered before it was due"),
    "a second delivery without a fault": (
        "sent promoted delivered acked delivered acked",
        {},
        "duplicate",
        "was delivered after it was acked",
    ),
    "a second ack": (
        "sent promoted delivered acked acked",
        {},
        "duplicate",
        "was acked after it was acked",
    ),
    "a delivery that the log lost": ("sent promoted acked", {}, "event lost", "was acked without a delivery"),
    "a send that the log lost": ("promoted delivered acked", {}, "event lost", "its send is not in the log"),
    "a message that the log does not know": ("", {"": "pending"}, "event lost", "is in the queue, but not in the log"),
    "one that came back after its end": (
        "sent promoted delivered acked",
        {"": "pending"},
        "resurrected",
        "is in the queue after its end",
    ),
}


@pytest.fixture
def faulty_audit(run_audit):
    """One audit of all faults, each with its own message."""
    stories = [(name, story) for name, (story, *_) in FAULTS.items()]
    snapshot = {name: state for name, (_, place, *_) in FAULTS.items() for state in place.values()}
    return run_audit(reminders("fine", *FAULTS), log_of(("fine", "sent"), *stories), places(fine="ready", **snapshot))


@pytest.mark.parametrize("name", FAULTS)
def test_audit_finds_each_fault(faulty_audit, name):
    _, _, what, detail = FAULTS[name]
    assert [(one.what, one.detail) for one in faulty_audit.examples if one.id == name] == [(what, detail)]


def test_audit_finds_no_other_fault(faulty_audit):
    assert not faulty_audit.adds_up
    assert {one.id for one in faulty_audit.examples} == set(FAULTS)
    assert sum(faulty_audit.findings.values()) == len(FAULTS)


def test_audit_finds_unplanned_uncancelled_and_mistimed_messages(run_audit):
    events = log_of(("extra", "sent"), ("gone", "sent"), ("moved", "sent"), ("never", ""))
    plan = reminders("gone", "never", action="cancel") + reminders("moved", due=DUE + timedelta(seconds=1))
    result = run_audit(plan, events, places(extra="pending", gone="pending", moved="pending"))
    assert [(one.what, one.id) for one in result.examples] == [
        ("not cancelled", "gone"),
        ("unplanned", "extra"),
        ("wrong time", "moved"),
    ]
    assert result.statuses == {"scheduled": 2, "overdue": 0, "delivered": 0, "dead": 0, "cancelled": 1, "missing": 0}


def test_rescheduled_message_may_have_another_time(run_audit):
    result = run_audit(
        reminders("a", due=DUE + timedelta(seconds=1)), log_of(("a", "sent rescheduled")), places(a="pending")
    )
    assert result.adds_up


def test_audit_finds_a_gap_in_the_offsets_of_the_log(run_audit):
    events = [
        event for event in log_of(("a", "sent promoted delivered acked"), ("b", "sent")) if event["log_offset"] != 2
    ]
    result = run_audit(reminders("a", "b"), events, places(b="pending"))
    assert [(one.what, one.detail) for one in result.examples] == [
        ("event lost", "what led from sent to delivered at offset 3 is not in the log"),
        ("event lost", "missing in the log: 1 entry, offset 2"),
    ]


STORIES = {
    "acked": "sent promoted delivered acked",
    "waiting": "sent promoted delivered nacked retried",
    "released": "sent promoted delivered released delivered acked",
    "dead": "sent promoted delivered rejected",
    "redriven": "sent promoted delivered rejected redriven",
}
WHERE = {"waiting": "retry", "dead": "dead", "redriven": "ready"}


def cut(at: int):
    """Return the log of five messages, one after the other, without the events of the first offsets."""
    return [event for event in log_of(*STORIES.items()) if event["log_offset"] > at]


@pytest.mark.parametrize("at", [0, 2, 7, 14, 20])
def test_events_deleted_on_purpose_are_not_missing(run_audit, at):
    result = run_audit(
        reminders(*STORIES, "past", due=DUE), cut(at), places(**WHERE), [run(5)], archive_start=T0 + timedelta(hours=2)
    )
    assert [one.what for one in result.examples] == ["nothing audited"]  # all are of before
    assert result.facts()["archive_start"] == "2026-03-01T11:00:00.000Z"


def test_late_ack_of_a_delivery_that_was_deleted_on_purpose_fits(run_audit):
    events = log_of(("a", STORIES["released"]))
    events[-1]["token"] -= 1
    for at in (0, 3, 4):
        result = run_audit(reminders("a", due=AT), events[at:], archive_start=T0)
        assert [one.detail for one in result.examples] == ["was sent with due time 2026-03-01 10:00:00.000"] * (not at)


def test_without_a_start_of_the_archive_they_are(run_audit):
    result = run_audit(reminders(*STORIES), cut(6), places(**WHERE), [run(5)])
    assert ("event lost", "", "missing in the log: 6 entries, offsets 1 to 6") in [
        (one.what, one.id, one.detail) for one in result.examples
    ]
    assert result.statuses["missing"] == 1


def test_faults_after_the_start_of_the_archive_are_found(run_audit):
    start = T0 + timedelta(minutes=30)
    events = [event for event in cut(3) if event["log_offset"] != 11]
    result = run_audit(
        reminders(*STORIES, "never"), events, places(waiting="retry", dead="dead"), [run(5)], archive_start=start
    )
    assert [(one.what, one.id, one.detail) for one in result.examples] == [
        ("event lost", "released", "what led from sent to delivered at offset 12 is not in the log"),
        ("missing", "never", "was never sent"),
        ("missing", "redriven", "is not in the queue; last seen redriven"),
        ("event lost", "", "missing in the log: 1 entry, offset 11"),
    ]


def test_audit_finds_runs_that_differ_from_the_log(run_audit):
    result = run_audit(reminders("a"), log_of(("a", "sent")), places(a="pending"), [run(2)])
    assert [(one.what, one.id, one.detail) for one in result.examples] == [
        ("run", "r1", "stored 2 messages by the ledger, 1 by the log"),
    ]


def test_unfinished_run_is_in_order_if_all_of_its_plan_was_sent(run_audit):
    plan, events, snapshot = reminders("a", "b"), log_of(("a", "sent"), ("b", "sent")), places(a="pending", b="pending")
    runs = [run(2, "writing"), run(0, "aborted", "r2")]
    assert run_audit(plan, events, snapshot, runs).adds_up
    result = run_audit(plan + reminders("never"), events, snapshot, runs)
    assert [(one.what, one.id) for one in result.examples] == [("missing", "never"), ("run", "r1"), ("run", "r2")]
    assert result.examples[1].detail == (
        "is writing, not committed, and planned reminders were never sent: load the plan again"
    )


def test_reminders_outside_the_horizon_of_the_loads_are_not_missing(run_audit):
    hours = {name: DUE + timedelta(hours=n) for n, name in enumerate(("past", "first", "between", "second", "later"))}
    plan = [row for name, due in hours.items() for row in reminders(name, due=due)]
    plan += reminders("sent-late", due=DUE + timedelta(days=1)) + reminders("cancel", due=T0, action="cancel")
    loads = [
        run(1, name="r1", source="-", start=hours["first"], until=hours["between"]),
        run(0, name="r2", source="-", start=hours["second"], until=hours["later"]),
    ]
    result = run_audit(plan, log_of(("sent-late", "sent")), places(**{"sent-late": "pending"}), loads)
    assert [(one.what, one.id) for one in result.examples] == [
        ("missing", "first"),
        ("missing", "second"),
        ("wrong time", "sent-late"),
    ]
    assert result.statuses == {"scheduled": 1, "overdue": 0, "delivered": 0, "dead": 0, "cancelled": 1, "missing": 2}
    assert (result.not_loaded, result.counts()["not loaded"]) == (3, 3)


def test_events_of_a_reminder_that_was_not_loaded_are_a_finding(run_audit):
    load = run(0, source="-", start=DUE, until=DUE + timedelta(hours=1))
    result = run_audit(reminders("later", due=AT), log_of(("later", "dead_purged")), runs=[load])
    assert (result.not_loaded, result.findings, result.adds_up) == (1, {"event lost": 1}, False)


def test_several_plans_add_up_for_each_run(run_audit):
    events = log_of(("a", "sent promoted delivered acked"), ("b", "sent"), ("c", "sent cancelled"), ("d", "sent"))
    for event in events:
        event["run"] = event["run"] and {"d": "r2"}.get(event["id"], "r1")
    newer = reminders("b") + reminders("c", action="cancel") + reminders("d", "e")
    result = run_audit(
        reminders("a", "b", "c"),
        events,
        places(b="pending", d="pending"),
        [run(1, "writing", name="r2"), run(3, name="r1")],
        newer=newer,
    )
    assert result.statuses == {"scheduled": 2, "overdue": 0, "delivered": 1, "dead": 0, "cancelled": 1, "missing": 1}
    second, first = result.runs
    assert (first.run, first.adds_up, first.statuses) == ("r1", True, {"delivered": 1, "scheduled": 1, "cancelled": 1})
    assert (second.run, second.adds_up, second.statuses, second.findings) == ("r2", False, {"scheduled": 1}, 1)
    assert (second.stored, second.logged, second.state) == (1, 1, "writing")
    facts = json.loads(json.dumps(result.facts()))
    assert facts["runs"][1]["adds_up"] is True
    assert facts["examples"][0]["id"] == "e"


def test_log_wins_over_the_snapshot_for_later_events(run_audit):
    events = log_of(("late", "sent"), ("done", "sent promoted delivered acked"))
    for event in events:
        event["event_at"] = AT + timedelta(seconds=1)
    result = run_audit(reminders("late", "done"), events, places(done="active"))
    assert result.statuses == {"scheduled": 1, "overdue": 0, "delivered": 1, "dead": 0, "cancelled": 0, "missing": 0}
    assert result.adds_up


def test_only_reminders_due_in_the_window_are_audited(run_audit):
    plan = reminders("in") + reminders("later", due=DUE + timedelta(days=1)) + reminders("past", due=T0)
    result = run_audit(
        plan, log_of(("in", "sent")), places(**{"in": "pending"}), start=DUE, until=DUE + timedelta(hours=1)
    )
    assert sum(result.statuses.values()) == 1
    assert result.adds_up


def test_purge_cancels_all_messages(run_audit):
    events = log_of(("a", "sent"), ("", "purged"))
    events[-1]["id"] = None
    assert run_audit(reminders("a"), events).statuses["cancelled"] == 1


def test_pauses_change_no_message(run_audit):
    events = log_of(("a", "sent"), ("", "paused"), ("a", "promoted delivered acked"), ("", "resumed"))
    for event in events:
        event["id"] = event["id"] or None
    result = run_audit(reminders("a"), events)
    assert result.statuses["delivered"] == 1
    assert result.adds_up


def test_redriven_message_can_be_delivered(run_audit):
    result = run_audit(
        reminders("a"), log_of(("a", "sent promoted delivered spent dead redriven promoted delivered acked"))
    )
    assert result.statuses["delivered"] == 1
    assert result.adds_up


def test_message_sent_again_without_a_redrive_is_a_finding(run_audit):
    stories = {
        "redriven": "sent promoted delivered rejected redriven promoted delivered acked",
        "replaced": "sent replaced promoted delivered acked",
        "acked": "sent promoted delivered acked sent promoted delivered acked",
        "dead": "sent promoted delivered rejected sent promoted delivered acked dead_purged",
        "cancelled": "sent cancelled sent promoted delivered acked",
    }
    result = run_audit(reminders(*stories), log_of(*stories.items()))
    assert result.statuses["delivered"] == 5
    assert [(one.what, one.id, one.detail) for one in result.examples] == [
        ("sent again", "acked", "was sent again after it was acked"),
        ("sent again", "cancelled", "was sent again after it was cancelled"),
        ("sent again", "dead", "was sent again after it was rejected"),
    ]


def test_message_may_be_sent_again_after_a_purge(run_audit):
    events = log_of(("a", "sent"), ("", "purged"), ("b", "sent promoted delivered"), ("", "purged"), ("a", "sent"))
    for event in events:
        event["id"] = event["id"] or None
    result = run_audit(reminders("a", "b"), events, places(a="pending"))
    assert result.statuses == {"scheduled": 1, "overdue": 0, "delivered": 0, "dead": 0, "cancelled": 1, "missing": 0}
    assert result.adds_up


def test_entries_that_leave_the_dead_letter_are_in_the_log(run_audit):
    stories = {
        "purged": "sent promoted delivered rejected dead_purged",
        "trimmed": "sent promoted delivered spent dead dead_trimmed",
        "lost": "sent promoted delivered rejected",
    }
    result = run_audit(reminders(*stories), log_of(*stories.items()))
    detail = "is in the dead letter 0 times; by the log it died 1 times, and 0 were redriven or deleted"
    assert [(one.what, one.id, one.detail) for one in result.examples] == [("dead letter", "lost", detail)]


def test_audit_limits_the_examples_but_counts_all_faults(run_audit):
    result = run_audit(reminders(*map(str, range(20))), log_of(("x", "")), examples=3)
    assert len(result.examples) == 3
    assert result.findings == {"missing": 20}


# What nobody delivers


def test_what_waits_for_too_long_is_overdue(run_audit):
    stories = {
        "never": "sent",
        "ready": "sent promoted",
        "failed": "sent promoted delivered nacked",
        "again": "sent promoted delivered nacked retried",
        "runs": "sent promoted delivered",
        "done": "sent promoted delivered acked",
    }
    here = [list(row) for row in places(**dict.fromkeys(stories, "pending")) if row[0] != "done"]
    for row in here:
        ends = {"failed": AT - timedelta(minutes=10), "runs": AT + timedelta(minutes=1)}
        row[SNAPSHOT_COLUMNS.index("deadline")] = ends.get(row[0])
    call = (reminders(*stories), log_of(*stories.items()), [tuple(row) for row in here])
    result = run_audit(*call, default_max_late=None)
    assert result.statuses == {"scheduled": 1, "overdue": 4, "delivered": 1, "dead": 0, "cancelled": 0, "missing": 0}
    assert (result.findings, result.adds_up) == ({"overdue": 4}, False)
    assert {one.id for one in result.examples} == {"never", "ready", "failed", "again"}
    assert run_audit(*call, max_late="61m").adds_up
    assert run_audit(*call, default_max_late="61m").adds_up


def test_late_deliveries_are_counted_and_findings_on_request(run_audit):
    events = log_of(("late", "sent promoted delivered acked"), ("in time", "sent promoted delivered acked"))
    for event in events[2:4]:
        event["event_at"] += timedelta(minutes=6)
    for event in events[4:]:
        event["event_at"] += timedelta(minutes=6)
        event["due"] = event["due"] and DUE + timedelta(minutes=4)
    plan = reminders("late") + reminders("in time", due=DUE + timedelta(minutes=4))
    result = run_audit(plan, events, default_max_late=None)
    assert (result.late, result.adds_up, result.facts()["late"]) == (1, True, 1)
    result = run_audit(plan, events, max_late="5m")
    assert [(one.what, one.id, one.detail) for one in result.examples] == [("late", "late", "was delivered 360 s late")]


def test_audit_of_nothing_is_a_finding(run_audit):
    result = run_audit(reminders("a", due=DUE), [], start=AT)
    assert (result.findings, result.adds_up) == ({"nothing audited": 1}, False)


# Plans and entries that are not whole


def test_what_is_planned_twice_is_a_finding_and_counts_once(run_audit):
    events = log_of(("a", "sent promoted delivered acked"), ("ax", "sent promoted delivered acked"), ("b", "sent"))
    plan = reminders("a", "ax") + [
        (id, "t", "rule", 0, DUE, "{}", 0, action, 3)
        for id, action in (("b", "new"), ("b", "new"), ("moved", "cancel"))
    ]
    result = run_audit(plan, events, places(b="pending"))
    assert [(one.what, one.id, one.detail) for one in result.examples] == [
        ("planned twice", "ax", "is the same reminder of the same source as a"),
        ("planned twice", "b", "is in the plan 2 times"),
    ]
    assert result.statuses == {"scheduled": 1, "overdue": 0, "delivered": 1, "dead": 0, "cancelled": 1, "missing": 0}


@pytest.mark.parametrize("removed", [0, 1])
def test_event_removed_from_the_middle_of_an_entry_is_a_finding(run_audit, removed):
    events = log_of(("a", "sent"), ("b", "sent"), ("c", "sent"))
    for index, event in enumerate(events):
        event |= {"log_offset": 1, "entry_index": index}
    plan, here = reminders("a", "b", "c"), places(a="pending", b="pending", c="pending")
    assert run_audit(plan, events, here).adds_up
    del events[removed]
    found = [(one.what, one.id, one.detail) for one in run_audit(plan, events, here).examples]
    assert ("event lost", "", f"number {removed} of the entry at offset 1, sent, is not there") in found
    assert {id for _, id, _ in found} == {"", "abc"[removed]}
