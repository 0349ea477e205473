"""The audit of a queue with a cold tier: every cold message is accounted for, and each change of its files is found."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import redis
from click.testing import CliRunner
from pyarrow import parquet

from delayq import ColdTierError, DelayQueue, NewMessage
from delayq.archive import DuckDB, archive, open_archive
from delayq.archive.sql_engine import rows_of
from delayq.archive.views import lives
from delayq.audit import audit
from delayq.audit.message_lives import _BEFORE as ORDER
from delayq.broker.keys import Keys
from delayq.bulk import cold_messages, move_cold, read_messages
from delayq.bulk.cold import cold_messages as reading
from delayq.bulk.cold import spilling
from delayq.bulk.files.schemas import COLD_DROPPED, NOTES, OF_ENTRIES, PLAN
from delayq.cli import main
from delayq.queue.inspecting.event_log import EventKind
from delayq.report.delivery_history import _UNMOVED as UNMOVED
from delayq.report.report_tables import reports
from tests.support.cold import FOREVER, cold_files
from tests.support.event_tables import table_of

KEYS = Keys.of("delayq", "q")
DUE = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=30)


@pytest.fixture
def queue(redis_url):
    with DelayQueue("q", url=redis_url, codec="bytes", events=True) as made:
        yield made


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cold"


@pytest.fixture
def move(redis_url, folder):
    """`move()` makes a pass that keeps 7 days."""
    return lambda **options: move_cold("q", folder, url=redis_url, **options)


@pytest.fixture
def run_audit(queue, redis_url, tmp_path, folder):
    """Audit a plan of these ids, which is also sent here."""

    def call(*ids, with_files=True, cancel=(), later=timedelta(), **options):
        engine = DuckDB()
        at = queue.stats().at + timedelta(milliseconds=1)
        snapshot = engine.table(read_messages("q", url=redis_url, include_payload=True).read_all())
        cold = engine.table(cold_messages("q", folder, url=redis_url)) if with_files else None
        archive("q", str(tmp_path / "archive"), url=redis_url)
        events = open_archive(str(tmp_path / "archive")).table(engine)
        rows = [(id, id, "r", 0, DUE, id, 0, "cancel" if id in cancel else "new", 3) for id in ids]
        plan = engine.table(table_of(rows, PLAN))
        return audit(engine, [plan], events, snapshot, at=at + later, cold=cold, **options)

    return call


def send(queue, *ids):
    queue.send_many([NewMessage(id.encode(), id=id, at=DUE) for id in ids])


def found(result):
    return [(one.what, one.id) for one in result.examples]


def deliver(queue, number):
    for _ in range(number):
        with queue.lease():
            pass


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
        result = run_audit(*ids, with_files=with_files)
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


def changed(change):
    """Change the one file of a tier."""

    def apply(folder):
        (path,) = cold_files(folder)
        parquet.write_table(change(parquet.read_table(path, partitioning=None)), path)

    return apply


def with_column(table, name, change):
    at, field = table.schema.get_field_index(name), table.schema.field(name)
    cells = [
        change(cell) if id == "x" else cell
        for id, cell in zip(*(table[one].to_pylist() for one in ("id", name)), strict=True)
    ]
    return table.set_column(at, field, pa.array(cells, field.type))


TAMPERS = {
    "row dropped": (changed(lambda table: table.filter(pc.field("id") != "x")), [("missing", "x")]),
    "row doubled": (
        changed(lambda table: pa.concat_tables([table, table.filter(pc.field("id") == "x")])),
        [("cold twice", "x")],
    ),
    "due changed": (
        changed(lambda table: with_column(table, "due", lambda due: due + timedelta(milliseconds=1))),
        [("wrong time", "x")],
    ),
    "retries changed": (
        changed(lambda table: with_column(table, "retries", lambda retries: retries + 1)),
        [("wrong retries", "x")],
    ),
    "payload changed": (
        changed(lambda table: with_column(table, "payload", lambda _: b"other")),
        [("wrong payload", "x")],
    ),
    "row added": (
        changed(lambda table: pa.concat_tables([table, with_column(table, "id", lambda _: "new").slice(0, 1)])),
        [("event lost", "new")],
    ),
    "file deleted": (lambda folder: cold_files(folder)[0].unlink(), [("missing", "x"), ("missing", "y")]),
}


@pytest.mark.parametrize("name", TAMPERS)
def test_each_change_of_the_files_is_found(queue, move, run_audit, folder, name):
    send(queue, "x", "y")
    move()
    assert run_audit("x", "y").adds_up
    change, wrong = TAMPERS[name]
    change(folder)
    assert found(run_audit("x", "y")) == wrong


def test_changes_of_what_redis_counts_are_found(queue, move, run_audit, folder, redis_url):
    """Another file counts with the same messages; then one that is back; then a message that was planted."""
    send(queue, "x", "y")
    move()
    (path,) = cold_files(folder)
    copy = path.with_name("copy.parquet")
    shutil.copy(path, copy)
    with redis.Redis.from_url(redis_url) as client:
        name = f"file {copy.parent.name}/{copy.name}"
        client.hset(KEYS.cold, name, "2 0")
        assert found(run_audit("x", "y")) == [("cold twice", "x"), ("cold twice", "y")]
        client.hset(KEYS.cold, name, "2 1")
        assert found(run_audit("x", "y")) == [("cold twice", "y")]
        client.hdel(KEYS.cold, name)
        client.zadd(KEYS.pending, {"x": 4e12})
        client.hset(KEYS.messages, "x", b"x")
        for with_files in (True, False):
            assert found(run_audit("x", "y", with_files=with_files)) == [("cold and living", "x")]
        client.zrem(KEYS.pending, "x")
        client.hdel(KEYS.messages, "x")

        move(keep=FOREVER)
        queue.reschedule("y", 0)
        deliver(queue, 1)
        shutil.copy(next(folder.glob("_done/*/*.parquet")), copy)
        assert run_audit("x", "y").adds_up, "a file that Redis does not count is none"
        client.hset(KEYS.cold, name, "2 0")
        assert found(run_audit("x", "y")) == [("cold and living", "x"), ("resurrected", "y")]


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


def test_command_compares_the_files(queue, move, redis_url, folder):
    tmp_path = folder.parent
    plan = tmp_path / "plan.parquet"
    parquet.write_table(table_of([(id, id, "r", 0, DUE, id, 0, "new", 3) for id in ("x", "y")], PLAN), plan)
    send(queue, "x", "y")
    move()

    env = {"DELAYQ_URL": redis_url, "COLUMNS": "200"}

    def run(*options):
        return CliRunner().invoke(main, ["audit", str(plan), str(tmp_path / "archive"), "q", *options], env=env)

    whole = json.loads(run("--cold", str(folder), "--json").stdout)
    assert (whole["adds_up"], whole["statuses"]["cold"]) == (True, 2)
    assert "--cold FOLDER also compares" in run().stderr
    TAMPERS["row dropped"][0](folder)
    assert run().exit_code == 0
    found = run("--cold", str(folder))
    assert (found.exit_code, "--cold FOLDER" in found.stderr) == (1, False)
    assert "is in the cold tier by the log" in " ".join(found.stdout.split())
    wrong = run("--cold", str(tmp_path))
    assert (wrong.exit_code, len(wrong.stderr.splitlines())) == (1, 1)
    assert f"'{tmp_path}' is no folder of a cold tier" in wrong.stderr
