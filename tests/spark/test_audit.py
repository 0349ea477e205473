"""The audit on hand-made histories: each thing that can go wrong is found, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from delayq.runs import RunInfo
from delayq.spark.audit import Audit, audit
from delayq.spark.schemas import EVENTS, PLAN, SNAPSHOT

pytestmark = pytest.mark.spark

T0 = datetime(2026, 3, 1, 9, tzinfo=UTC)
DUE = T0 + timedelta(hours=1)
AT = T0 + timedelta(hours=2)
"""When the snapshot was taken."""
EVENT_COLUMNS = [part.split()[0] for part in EVENTS.split(", ")]
SNAPSHOT_COLUMNS = [part.split()[0] for part in SNAPSHOT.replace("MAP<STRING,STRING>", "MAP").split(", ")]


def told(*stories: tuple[str, str]):
    """Make the log of messages, each an id and its kinds: "sent promoted delivered acked"."""
    rows, offset = [], 0
    for id, story in stories:
        for kind in story.split():
            offset += 1
            early = kind == "early"
            at = T0 if kind in ("sent", "replaced") else DUE - timedelta(minutes=1) if early else DUE
            row = dict.fromkeys(EVENT_COLUMNS)
            row |= {
                "offset": offset,
                "index": 0,
                "at": at,
                "kind": "delivered" if early else kind,
                "id": id,
                "due": DUE,
            }
            row["run"] = "r1" if kind == "sent" else None
            rows.append(row)
    return rows


def reminders(*ids: str, action: str = "new", due: datetime = DUE):
    return [(id, "s", "rule", 0, due, "{}", 0, action, 3) for id in ids]


def places(**states: str):
    return [
        tuple({"id": id, "state": state, "due": DUE}.get(name) for name in SNAPSHOT_COLUMNS)
        for id, state in states.items()
    ]


def run(new: int, state: str = "committed") -> RunInfo:
    return RunInfo("r1", state, T0, AT, new, 0, 0, 0, 0, 0)


@pytest.fixture(scope="module")
def judge(spark):
    def call(plan, events, snapshot=(), runs=(), **options) -> Audit:
        rows = [tuple(event[name] for name in EVENT_COLUMNS) for event in events]
        return audit(
            spark.createDataFrame(plan, PLAN),
            spark.createDataFrame(rows, EVENTS),
            spark.createDataFrame(list(snapshot), SNAPSHOT),
            runs,
            at=AT,
            **options,
        )

    return call


def test_every_planned_reminder_is_somewhere(judge):
    result = judge(
        reminders("acked", "discarded", "waiting", "dead", "withdrawn", "retried"),
        told(
            ("acked", "sent promoted delivered acked"),
            ("discarded", "sent promoted delivered discarded"),
            ("waiting", "sent"),
            ("dead", "sent promoted delivered dead"),
            ("withdrawn", "sent cancelled"),
            ("retried", "sent promoted delivered nacked retried delivered expired retried delivered acked"),
        ),
        places(waiting="pending", dead="dead"),
        [run(6)],
    )
    assert result.statuses == {"scheduled": 1, "delivered": 3, "dead": 1, "cancelled": 1, "missing": 0}
    assert result.findings == {}
    assert result.adds_up


WRONG = {
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
        "2 deliveries and 2 acks in 1 lives with 0 faults",
    ),
    "two acks after a fault": (
        "sent promoted delivered acked expired delivered acked",
        {},
        "duplicate",
        "2 deliveries and 2 acks in 1 lives with 1 faults",
    ),
    "a delivery that the log lost": ("sent promoted acked", {}, "event lost", "was acked without a delivery"),
    "a send that the log lost": ("promoted delivered acked", {}, "event lost", "its sending is not in the log"),
    "a message that the log does not know": ("", {"": "pending"}, "event lost", "is in the queue and not in the log"),
    "one that came back after its end": (
        "sent promoted delivered acked",
        {"": "pending"},
        "resurrected",
        "had ended and is in the queue",
    ),
}


@pytest.fixture(scope="module")
def wrong(judge):
    """One audit of all the stories, each of a message of its own."""
    stories = [(name, story) for name, (story, *_) in WRONG.items()]
    snapshot = {name: state for name, (_, place, *_) in WRONG.items() for state in place.values()}
    return judge(reminders("fine", *WRONG), told(("fine", "sent"), *stories), places(fine="ready", **snapshot))


@pytest.mark.parametrize("name", WRONG)
def test_finds(wrong, name):
    _, _, what, detail = WRONG[name]
    assert [(one.what, one.detail) for one in wrong.examples if one.id == name] == [(what, detail)]


def test_finds_nothing_else(wrong):
    assert not wrong.adds_up
    assert {one.id for one in wrong.examples} == set(WRONG)
    assert sum(wrong.findings.values()) == len(WRONG)


def test_finds_what_is_in_no_plan_what_was_to_be_cancelled_and_what_has_another_time(judge):
    events = told(("extra", "sent"), ("gone", "sent"), ("moved", "sent"), ("never", ""))
    plan = reminders("gone", "never", action="cancel") + reminders("moved", due=DUE + timedelta(seconds=1))
    result = judge(plan, events, places(extra="pending", gone="pending", moved="pending"))
    assert [(one.what, one.id) for one in result.examples] == [
        ("not cancelled", "gone"),
        ("unplanned", "extra"),
        ("wrong time", "moved"),
    ]
    assert result.statuses == {"scheduled": 2, "delivered": 0, "dead": 0, "cancelled": 1, "missing": 0}


def test_a_rescheduled_message_may_have_another_time(judge):
    result = judge(reminders("a", due=DUE + timedelta(seconds=1)), told(("a", "sent rescheduled")), places(a="pending"))
    assert result.adds_up


def test_finds_a_gap_in_the_log_by_its_numbers(judge):
    events = [event for event in told(("a", "sent promoted delivered acked"), ("b", "sent")) if event["offset"] != 2]
    result = judge(reminders("a", "b"), events, places(b="pending"))
    assert [(one.what, one.detail) for one in result.examples] == [
        ("event lost", "1 of the 5 entries up to offset 5 are missing")
    ]


def test_finds_a_run_that_was_not_ended_and_one_the_log_tells_otherwise(judge):
    result = judge(reminders("a"), told(("a", "sent")), places(a="pending"), [run(2, "writing")])
    assert [(one.what, one.id, one.detail) for one in result.examples] == [
        ("run", "r1", "is writing, not committed"),
        ("run", "r1", "the ledger has 2 messages stored, the log 1"),
    ]


def test_what_moved_after_the_snapshot_is_believed_to_the_log(judge):
    events = told(("late", "sent"), ("done", "sent promoted delivered acked"))
    for event in events:
        event["at"] = AT + timedelta(seconds=1)
    result = judge(reminders("late", "done"), events, places(done="active"))
    assert result.statuses == {"scheduled": 1, "delivered": 1, "dead": 0, "cancelled": 0, "missing": 0}
    assert result.adds_up


def test_only_what_is_due_in_the_window_is_held_to_the_plan(judge):
    plan = reminders("in") + reminders("later", due=DUE + timedelta(days=1)) + reminders("past", due=T0)
    result = judge(plan, told(("in", "sent")), places(**{"in": "pending"}), start=DUE, until=DUE + timedelta(hours=1))
    assert sum(result.statuses.values()) == 1
    assert result.adds_up


def test_a_purge_ends_what_lived(judge):
    events = told(("a", "sent"), ("", "purged"))
    events[-1]["id"] = None
    assert judge(reminders("a"), events).statuses["cancelled"] == 1


def test_a_dead_message_that_was_redriven_lives_again(judge):
    result = judge(reminders("a"), told(("a", "sent promoted delivered dead redriven promoted delivered acked")))
    assert result.statuses["delivered"] == 1
    assert result.adds_up


def test_lists_no_more_examples_than_asked_for_and_counts_all(judge):
    result = judge(reminders(*map(str, range(20))), told(("x", "")), examples=3)
    assert len(result.examples) == 3
    assert result.findings == {"missing": 20}
