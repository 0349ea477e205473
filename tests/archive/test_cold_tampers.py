"""The audit finds each change of the files, the log and what Redis knows of a cold tier."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import redis
from click.testing import CliRunner
from pyarrow import parquet

from delayq.broker.keys import Keys
from delayq.bulk.files.schemas import COLD_DROPPED, PLAN
from delayq.cli import main
from tests.support.cold import FOREVER, cold_files
from tests.support.cold_audits import DUE, deliver, found, send
from tests.support.event_tables import table_of

KEYS = Keys.of("delayq", "q")


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


def dropped(kind):
    return lambda events: [event for event in events if event["kind"] != kind or event["id"] != "x"]


def doubled(kind):
    """The event is there again, as the last one."""
    last = {"log_offset": 1 << 40, "entry_index": 0}
    return lambda events: [*events, *(event | last for event in events if event["kind"] == kind and event["id"] == "x")]


def moved(kind):
    def later(event):
        is_it = event["kind"] == kind and event["id"] == "x"
        return event | {"due": event["due"] + timedelta(hours=1)} if is_it else event

    return lambda events: [later(event) for event in events]


LOG_TAMPERS = {
    "move dropped": (dropped("spilled"), "event lost"),
    "move doubled": (doubled("spilled"), "wrong time"),
    "due time of the move": (moved("spilled"), "wrong time"),
    "return dropped": (dropped("restored"), "event lost"),
    "return doubled": (doubled("restored"), "event lost"),
    "due time of the return": (moved("restored"), "wrong time"),
    "new time dropped": (dropped("rescheduled"), "wrong time"),
}


@pytest.mark.parametrize("name", LOG_TAMPERS)
def test_each_change_of_the_log_is_found(queue, move, run_audit, name):
    send(queue, "x", "y")
    move()
    queue.reschedule("x", "60d")
    move(keep=FOREVER)
    change, wrong = LOG_TAMPERS[name]
    assert wrong in [what for what, id in found(run_audit("x", "y", change=change)) if id == "x"]
    assert run_audit("x", "y").adds_up


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


@pytest.mark.parametrize("with_files", [True, False])
def test_end_in_the_cold_tier_that_the_log_lost_is_found(queue, move, run_audit, with_files):
    """Without the files a message counts as cold, until it is overdue."""
    send(queue, "x", "y")
    move()
    queue.cancel("x")
    move(keep=FOREVER)
    options = {"with_files": with_files, "change": dropped(COLD_DROPPED)}
    assert (("missing", "x") in found(run_audit("x", "y", **options))) == with_files
    late = run_audit("x", "y", later=timedelta(days=32), **options)
    assert ("overdue", "x") in found(late) or with_files
