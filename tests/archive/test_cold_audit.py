"""The audit of a queue with a cold tier: every cold message is accounted for, also beside passes."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import cycle

import pytest

from delayq import ColdTierError, DelayQueue
from delayq.archive import DuckDB, open_archive
from delayq.archive.sql_engine import rows_of
from delayq.archive.views import lives
from delayq.audit.message_lives import _BEFORE as ORDER
from delayq.bulk import cold_messages
from delayq.bulk.cold import cold_messages as reading
from delayq.bulk.cold import spilling
from delayq.bulk.files.schemas import COLD_DROPPED, NOTES, OF_ENTRIES
from delayq.queue.inspecting.event_log import EventKind
from delayq.report.delivery_history import _UNMOVED as UNMOVED
from delayq.report.report_tables import reports
from tests.support.cold import FOREVER, cold_files
from tests.support.cold_audits import DUE, deliver, found, send
from tests.support.waiting import wait_until


def test_account_adds_up_at_every_step(queue, move, run_audit):
    ids = ("waits", "acked", "early", "later", "withdrawn", "cancelled")
    send(queue, *ids)
    assert run_audit(*ids, with_files=False).statuses["scheduled"] == 6
    move()
    assert found(result := run_audit(*ids)) == []
    assert Counter(result.statuses)["cold"] == 6

    queue.cancel("withdrawn")
    queue.reschedule("early", "1h")
    queue.reschedule("later", "90d")
    assert found(result := run_audit(*ids, cancel=["withdrawn"])) == []
    assert (result.statuses["cold"], result.statuses["cancelled"]) == (5, 1)
    without = run_audit(*ids, with_files=False)
    assert (found(without), without.statuses["cold"]) == ([], 6)

    assert move().restored == 1
    queue.reschedule("early", 0)
    deliver(queue, 1)
    assert found(result := run_audit(*ids)) == []
    assert (result.statuses["delivered"], result.statuses["cold"], result.statuses["cancelled"]) == (1, 4, 1)

    move(keep=FOREVER)
    queue.cancel("cancelled")
    queue.reschedule("acked", 0)
    deliver(queue, 1)
    assert queue.get("later").due > DUE + timedelta(days=50)
    for with_files in (True, False):
        result = run_audit(*ids, with_files=with_files, max_late="1h")
        assert found(result) == []
        assert {name: count for name, count in result.statuses.items() if count} == {
            "scheduled": 2,
            "delivered": 2,
            "cancelled": 2,
        }


def test_log_tells_what_ended_in_the_cold_tier(queue, move, run_audit, redis_url):
    send(queue, "withdrawn", "early", "exists")
    move()
    queue.cancel("withdrawn")
    queue.reschedule("early", "1h")
    move()
    assert queue.cancel("early") == "cancelled", "it is back, so the log has its end"
    queue.send(b"exists", id="exists", delay="1d")
    move(keep=FOREVER)
    told = sorted((event.id, event.reason) for event in queue.events() if event.kind == COLD_DROPPED)
    assert told == [("exists", "exists"), ("withdrawn", "withdrawn")]
    assert [event.kind for event in queue.events() if event.id == "early"] == [
        *("sent", "spilled", "restored", "rescheduled", "cancelled")
    ]


def test_message_whose_id_is_held_ends_in_the_cold_tier(redis_url, move, run_audit):
    with DelayQueue("q", url=redis_url, codec="bytes", events=True, dedupe_window="1d") as queue:
        send(queue, "a")
        move()
        send(queue, "a")
        queue.reschedule("a", 0)
        deliver(queue, 1)
        assert move(keep=FOREVER).settled == 1
        assert [event.reason for event in queue.events() if event.kind == COLD_DROPPED] == ["settled"]
        result = run_audit("a")
        assert (found(result), result.statuses["delivered"]) == ([], 1)


def test_message_with_the_id_of_a_cold_one_counts_once(queue, move, run_audit):
    send(queue, "lives", "acked")
    move()
    send(queue, "lives", "acked")
    assert found(run_audit("lives", "acked")) == [], "each is in a file and in the queue, and the log says so"
    move()
    assert found(result := run_audit("lives", "acked")) == [], "two of each are cold, and the log says so"
    assert result.statuses["cold"] == 2
    move(keep=FOREVER)
    assert found(result := run_audit("lives", "acked")) == []
    assert result.statuses["scheduled"] == 2
    dropped = [event.reason for event in queue.events() if event.kind == COLD_DROPPED]
    assert dropped == ["exists"] * 2


def test_both_messages_of_an_id_that_are_delivered_are_a_finding(queue, move, run_audit):
    send(queue, "a")
    move()
    queue.send(b"a", id="a")
    deliver(queue, 1)
    assert found(run_audit("a", with_files=False)) == [("wrong time", "a")], "it was sent with another time"
    move(keep=FOREVER)
    assert found(result := run_audit("a")) == [("sent again", "a")]
    assert result.examples[0].detail == "was sent again while it was cold, and came back after it was acked"


def test_message_that_is_sent_after_it_was_withdrawn_is_a_finding(queue, move, run_audit):
    send(queue, "a", "b")
    move()
    queue.cancel("a")
    move(keep=FOREVER)
    send(queue, "a")
    result = run_audit("a", "b")
    assert found(result) == [("sent again", "a")]
    assert result.examples[0].detail == "was sent again after it was dropped from the cold tier"


def test_purge_ends_what_is_cold(queue, move, run_audit):
    send(queue, "a", "b")
    move()
    queue.purge()
    send(queue, "b")
    result = run_audit("a", "b")
    assert (found(result), result.statuses["cancelled"], result.statuses["scheduled"]) == ([], 1, 1)
    move()
    result = run_audit("a", "b")
    assert (found(result), result.statuses["cancelled"], result.statuses["cold"]) == ([], 1, 1)


def test_cold_message_that_is_past_its_time_is_overdue(queue, move, run_audit):
    send(queue, "a", "withdrawn")
    move()
    queue.cancel("withdrawn")
    result = run_audit("a", "withdrawn", later=timedelta(days=32), max_late="1d")
    assert found(result) == [("overdue", "a")]
    assert "is in the cold tier, and was due at" in result.examples[0].detail
    assert not run_audit("a", "withdrawn", later=timedelta(days=32), max_late="3d").findings


def test_planned_cancel_of_a_cold_message_is_found_until_it_is_withdrawn(queue, move, run_audit):
    send(queue, "a")
    move()
    assert found(run_audit("a", cancel=["a"])) == [("not cancelled", "a")]
    queue.cancel("a")
    assert run_audit("a", cancel=["a"]).statuses["cancelled"] == 1


def test_messages_that_are_being_moved_count(queue, move, run_audit, monkeypatch):
    """A pass is killed when Redis has given the messages away, and no file by day has them."""
    send(queue, "a", "b")
    monkeypatch.setattr(spilling, "files_by_day", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        move()
    assert run_audit("a", "b").adds_up
    monkeypatch.undo()
    move()
    assert run_audit("a", "b").adds_up


def test_messages_that_move_while_they_are_read_are_read_once(queue, move, redis_url, folder, monkeypatch):
    send(queue, "a", "b")
    move()
    read = reading.ColdFolder.read

    def late(self, *args):
        monkeypatch.undo()
        move(keep=FOREVER)
        move()
        return read(self, *args)

    monkeypatch.setattr(reading.ColdFolder, "read", late)
    assert sorted(cold_messages("q", folder, url=redis_url)["id"].to_pylist()) == ["a", "b"]


def test_audits_beside_passes_find_nothing(queue, move, run_audit):
    ids = [f"m{number}" for number in range(200)]
    send(queue, *ids)
    move()
    audited, passes = threading.Event(), []

    def run():
        for keep in cycle((FOREVER, "7d")):
            passes.append(move(keep=keep))
            if audited.is_set():
                return

    with ThreadPoolExecutor() as pool:
        running = pool.submit(run)
        try:
            for number in range(4):
                assert found(run_audit(*ids)) == []
                wait_until(lambda number=number: len(passes) > number or running.done())
        finally:
            audited.set()
        running.result()
    assert run_audit(*ids).adds_up


def test_file_that_was_put_away_counts_if_redis_has_lost_that(queue, move, run_audit, folder):
    send(queue, "a")
    move()
    (path,) = cold_files(folder)
    (folder / "_done" / path.parent.name).mkdir(parents=True)
    path.rename(folder / "_done" / path.parent.name / path.name)
    assert run_audit("a").adds_up


def test_folder_that_is_not_of_the_tier_is_refused(queue, move, redis_url, folder, tmp_path):
    send(queue, "a")
    with pytest.raises(ColdTierError, match="is no folder of a cold tier"):
        cold_messages("q", folder, url=redis_url)
    assert not folder.exists()
    move()
    with pytest.raises(ColdTierError, match="is no folder of a cold tier"):
        cold_messages("q", tmp_path, url=redis_url)
    (path,) = cold_files(folder)
    path.write_bytes(b"PAR1")
    with pytest.raises(ColdTierError, match=rf"{path.name} of the cold tier.* cannot be read"):
        cold_messages("q", folder, url=redis_url)


def test_events_that_were_deleted_on_purpose_are_not_missed(queue, move, run_audit, folder):
    send(queue, "a")
    move()
    start = queue.stats().at - timedelta(days=1)
    assert run_audit("a", archive_start=start).adds_up


def test_lives_and_report_tell_what_became_of_cold_messages(queue, move, run_audit, tmp_path):
    send(queue, "waits", "withdrawn", "again")
    move()
    queue.cancel("withdrawn")
    send(queue, "again")
    queue.reschedule("again", 0)
    deliver(queue, 1)
    run_audit("waits")
    assert outcomes(tmp_path) == [
        ("again", 1, "replaced"),
        ("again", 2, "acked"),
        ("waits", 1, None),
        ("withdrawn", 1, None),
    ]
    move(keep=FOREVER)
    queue.reschedule("waits", 0)
    deliver(queue, 1)
    run_audit("waits")
    assert outcomes(tmp_path)[2:] == [("waits", 1, "acked"), ("withdrawn", 1, "cancelled")]
    engine = DuckDB()
    events = open_archive(str(tmp_path / "archive")).table(engine)
    with reports(engine, events) as made:
        tables = made.tables()
    assert {row["kind"]: row["events"] for row in tables["totals"].to_pylist()}["cold_dropped"] == 1
    assert tables["duplicates"].num_rows == 0
    assert tables["redeliveries"].num_rows == 0


def outcomes(tmp_path):
    engine = DuckDB()
    table = lives(engine, open_archive(str(tmp_path / "archive")).table(engine))
    return sorted((row["id"], row["life"], row["outcome"]) for row in rows_of(engine, table))


OF_QUEUE = {EventKind.PURGED, EventKind.PAUSED, EventKind.RESUMED}
"""Events that name no message."""
MOVES = {
    "sent",
    "replaced",
    "redriven",
    "delivered",
    "acked",
    "discarded",
    "nacked",
    "expired",
    "released",
    "dead",
    "cancelled",
}


@pytest.mark.parametrize("kind", [kind for kind in EventKind if kind not in OF_QUEUE])
def test_audit_and_report_know_every_kind_of_event(kind):
    """A kind that the audit does not place between others would break the lives of its messages."""
    assert (kind in ORDER) + (kind in (*OF_ENTRIES, COLD_DROPPED, *NOTES)) == 1
    assert (kind in UNMOVED) + (kind in MOVES) == 1
