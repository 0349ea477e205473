"""The cold tier: what is due far ahead moves to files by day, and comes back in time as it was."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta

import pytest
import redis
from pyarrow import parquet

from delayq import ColdTierError, ConfigurationError, DelayQueue, NewMessage, UnsafeServerError
from delayq.broker.keys import Keys
from delayq.bulk import cold_status, move_cold
from delayq.bulk.cold import spilling
from delayq.bulk.cold.cold_calls import set_calls
from delayq.queue.inspecting.cold_tier import DAY
from delayq.queue.server_check import COLD
from tests.support.cold import FOREVER, as_stored, cold_files, day_later, days

KEYS = Keys.of("delayq", "q")


@pytest.fixture
def move(redis_url, tmp_path):
    """`move()` makes a pass that keeps 7 days."""
    return lambda **options: move_cold("q", tmp_path / "cold", url=redis_url, **options)


def test_spilled_messages_come_back_as_they_were(queue, move, tmp_path):
    queue.send_many(
        [
            NewMessage(b"one", id="a", delay="20d", retries=0),
            NewMessage(b"\x00\xff", id="b", delay="20d", name="remind", headers={"k": "v"}, priority=2, expires="1h"),
            NewMessage(b"x" * 300_000, id="c", delay="300d"),
            NewMessage(b"soon", id="d", delay="6d"),
        ]
    )
    before = as_stored(queue)

    moved = move()
    assert (moved.spilled, moved.restored, moved.cold) == (3, 0, 3)
    assert list(as_stored(queue)) == ["d"]
    assert move().facts() == moved.facts() | {"spilled": 0}  # nothing more to do

    back = move(keep=FOREVER)
    assert (back.spilled, back.restored, back.cold, back.unknown) == (0, 3, 0, ())
    assert as_stored(queue) == before
    assert not cold_files(tmp_path / "cold")


def test_messages_come_back_day_by_day(queue, move):
    for day in (3, 10, 20, 20, 40):
        queue.send(b"m", delay=day_later(day))
    assert move(keep="5d").spilled == 4
    assert move(keep="15d").restored == 1
    assert move(keep="25d").restored == 2
    assert len(as_stored(queue)) == 4


def test_files_are_a_table_by_day(queue, move, tmp_path):
    for day in (10, 10, 12):
        queue.send(b"m", delay=day_later(day))
    move()
    assert [path.parent.name for path in cold_files(tmp_path / "cold")] == [f"day={one}" for one in days(10, 12)]
    table = parquet.read_table(tmp_path / "cold")
    assert table.num_rows == 3
    assert {str(day) for day in table["day"].to_pylist()} == set(days(10, 12))
    assert {due.date().isoformat() for due in table["due"].to_pylist()} == set(days(10, 12))


def test_what_is_not_only_waiting_stays(queue, move, redis_url):
    queue.send(b"m", id="plain", delay="30d")
    queue.send(b"m", id="unique", delay="30d", unique_for="60d")
    queue.send(b"m", id="burst", debounce="30d")
    queue.send(b"m", id="retried", retries=3)
    with queue.lease() as message:
        message.nack(delay="30d")
    assert move().spilled == 1
    assert list(as_stored(queue)) == ["burst", "retried", "unique"]


def test_cancelled_message_does_not_come_back(queue, move):
    queue.send(b"m", id="a", delay="30d")
    queue.send(b"m", id="b", delay="30d")
    move()
    assert [queue.cancel(id) for id in ("a", "a", "unknown")] == ["withdrawn"] * 3
    assert queue.executor.call(_changes(queue)) == 2
    move()
    assert queue.executor.call(_changes(queue)) == 1, "what is noted of ids that are not cold is forgotten"
    back = move(keep=FOREVER)
    assert (back.restored, back.withdrawn) == (1, 1)
    assert list(as_stored(queue)) == ["b"]
    assert queue.cancel("a") == "gone", "nothing is cold any more"


def test_odd_notes_stop_no_pass(queue, move, redis_url):
    queue.send(b"m", id="a", delay="30d")
    move()
    with redis.Redis.from_url(redis_url) as client:
        client.hset(KEYS.cold_changes, mapping={"a": b"x", "b": b"\xff 5", "c": b"- soon", "d": b""})
    assert move().cold == 1
    assert move(keep=FOREVER).restored == 1


def test_cancel_holds_for_a_cold_message_with_the_id_of_one_that_waits(queue, move):
    queue.send(b"old", id="a", delay="30d")
    move()
    queue.send(b"new", id="a", delay="1d")
    assert queue.cancel("a") == "cancelled"
    assert move(keep=FOREVER).withdrawn == 1
    assert not as_stored(queue)


def test_message_that_was_sent_again_counts(queue, move):
    queue.send(b"old", id="a", delay="30d")
    move()
    queue.send(b"new", id="a", delay="1d")
    assert move(keep=FOREVER).exists == 1
    assert as_stored(queue)["a"].payload == b"new"


def test_rescheduled_message_comes_back_with_its_time(queue, move):
    for id in "abc":
        queue.send(b"m", id=id, delay="30d")
    move()
    soon, late = datetime.now(UTC) + timedelta(days=2), datetime.now(UTC) + timedelta(days=90)
    soon, late = (at.replace(microsecond=0) for at in (soon, late))
    assert queue.reschedule("a", at=soon) == "noted"
    assert queue.reschedule("b", at=late) == "noted"
    assert queue.reschedule("c", at=soon) == "noted"
    assert queue.cancel("c") == "withdrawn"
    assert queue.reschedule("c", at=soon) == "gone"
    assert move().restored == 1
    assert queue.get("a").due == soon
    assert queue.reschedule("a", "1h") == "rescheduled"
    back = move(keep="100d")
    assert (back.restored, back.withdrawn) == (1, 1)
    assert queue.get("b").due == late


def test_message_that_changed_while_it_was_written_stays(queue, move, monkeypatch):
    for id in "abcd":
        queue.send(b"m", id=id, delay="30d")
    write = spilling.ColdFolder.write_spilled

    def change(folder, name, rows):
        write(folder, name, rows)
        queue.reschedule("a", "40d")
        queue.edit("b", payload=b"changed")
        queue.cancel("c")

    monkeypatch.setattr(spilling.ColdFolder, "write_spilled", change)
    assert move().spilled == 1
    assert {id: one.payload for id, one in as_stored(queue).items()} == {"a": b"m", "b": b"changed"}


def test_log_tells_what_moved(redis_url, move):
    with DelayQueue("q", url=redis_url, codec="bytes", events=True) as queue:
        queue.send(b"m", id="a", delay="30d")
        move()
        move(keep=FOREVER)
        events = list(queue.events())
    assert [(event.kind, event.id) for event in events] == [("sent", "a"), ("spilled", "a"), ("restored", "a")]
    assert len({event.due for event in events}) == 1


def test_purge_also_deletes_what_is_cold(queue, move, tmp_path):
    queue.send(b"m", id="a", delay="30d")
    move()
    queue.purge()
    assert queue.cancel("a") == "gone"
    left = move(keep=FOREVER)
    assert (left.restored, left.cold) == (0, 0)
    assert [tmp_path / "cold" / name for name in left.unknown] == cold_files(tmp_path / "cold")


def test_status_tells_what_is_cold_and_late(queue, move, redis_url, tmp_path):
    queue.send(b"m", delay=day_later(10))
    assert cold_status("q", url=redis_url).cold == 0
    move(keep="5d")
    status = cold_status("q", url=redis_url)
    assert (status.where, status.cold, status.late) == (str(tmp_path / "cold"), 1, 0)
    assert status.facts()["days"] == dict.fromkeys(days(10), 1)
    queue.executor.call(set_calls(queue.context.calls, keep=30 * DAY))
    assert cold_status("q", url=redis_url).late == 1


def test_missing_file_is_an_error_with_the_days(queue, move, tmp_path):
    queue.send(b"m", id="a", delay=day_later(10))
    move()
    for path in cold_files(tmp_path / "cold"):
        path.unlink()
    for keep in ("7d", "20d"):  # also before it is due
        with pytest.raises(ColdTierError, match=rf"1 messages cannot come back.*due on {days(10)[0]}"):
            move(keep=keep)


def test_short_file_is_an_error(queue, move, tmp_path):
    queue.send_many([NewMessage(b"m", delay=day_later(10)) for _ in range(2)])
    move()
    (path,) = cold_files(tmp_path / "cold")
    parquet.write_table(parquet.read_table(path, partitioning=None).slice(1), path)
    with pytest.raises(ColdTierError, match="has 1 messages, and 2 were moved to it"):
        move(keep="20d")


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"queue": "other"}, "is of queue other under the prefix delayq"),
        ({"version": 2}, "has version 2, but this delayq knows only 1: upgrade delayq"),
        ({"id": "else"}, "queue q has its cold tier in another folder"),
        ({"version": None}, "cannot be used"),
    ],
)
def test_wrong_folder_is_refused(queue, move, tmp_path, facts, text):
    queue.send(b"m", delay="30d")
    move()
    place = tmp_path / "cold" / "_delayq" / "facts.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | facts))
    with pytest.raises(ColdTierError, match=text):
        move()


def test_folder_that_is_not_the_tiers_is_refused(queue, redis_url, tmp_path, move):
    queue.send(b"m", delay="30d")
    (tmp_path / "cold").mkdir()
    (tmp_path / "cold" / "notes.txt").write_text("mine")
    with pytest.raises(ColdTierError, match="is not empty"):
        move()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ColdTierError, match="cannot be used"):
        move_cold("q", tmp_path / "file", url=redis_url)
    move_cold("q", tmp_path / "other", url=redis_url)
    with pytest.raises(ColdTierError, match="has a cold tier, and it is not in"):
        move()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_cannot_be_written_is_refused(queue, move, tmp_path):
    queue.send(b"m", delay="30d")
    (tmp_path / "cold").mkdir(mode=0o500)
    with pytest.raises(ColdTierError, match="cannot be used"):
        move()


def test_keep_must_be_longer_than_the_interval(queue, move):
    with pytest.raises(ConfigurationError, match="keep must be at least 2 times every"):
        move(keep="1h")
    queue.open()
    assert move(keep="2h", every="1h").cold == 0


def test_queues_that_cannot_have_a_tier_are_refused(queue, redis_url, tmp_path):
    with DelayQueue("parts", url=redis_url, partitions=2, codec="bytes") as parts:
        parts.send(b"m", delay="30d")
        with pytest.raises(ConfigurationError, match="queue parts has partitions"):
            move_cold("parts", tmp_path, url=redis_url)
    with pytest.raises(ConfigurationError, match="embedded"):
        move_cold("q", tmp_path, url="memory://")
    with pytest.raises(ConfigurationError, match="there is no queue 'none'"):
        move_cold("none", tmp_path, url=redis_url)


def test_older_version_refuses_a_queue_with_a_tier(queue, move, redis_url, monkeypatch):
    queue.send(b"m", delay="30d")
    move()
    from delayq.queue import server_check

    monkeypatch.setattr(server_check, "_KNOWN", [b"0", b"1", b"2", b"3", b"4", b"5", b"6"])
    with pytest.raises(UnsafeServerError, match=f"has schema {COLD}"), DelayQueue("q", url=redis_url) as older:
        older.open()


def _changes(queue):
    from delayq.broker.requests import RedisCommand

    return RedisCommand(("HLEN", KEYS.cold_changes), int)
