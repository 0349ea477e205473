"""The folder of a cold tier: first passes, passes that are killed while they write, full disks, and odd files."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time

import pytest
from pyarrow import parquet

from delayq import ColdTierError, DelayQueue, InvalidValueError, NewMessage, QueueFullError
from delayq.broker.requests import ScriptCall
from delayq.broker.transport.executor import Executor
from delayq.bulk import cold_status, move_cold
from delayq.bulk.cold import cold_folder, cold_pass, spilling
from delayq.bulk.cold.cold_folder import ColdFolder
from tests.support.cold import FOREVER, as_stored, cold_files, day_later, days

MESSAGES = 5


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cold"


@pytest.fixture
def move(queue, redis_url, folder):
    for number in range(MESSAGES):
        queue.send(b"%d" % number, id=f"m{number}", delay=day_later(20 + number // 2))
    return lambda keep="7d", **options: move_cold("q", folder, url=redis_url, keep=keep, **options)


def test_first_pass_that_was_killed_leaves_a_folder_to_go_on_with(move, folder):
    (folder / "_delayq").mkdir(parents=True)
    (folder / "_delayq" / ".facts.json.half").write_text("{")
    assert move().spilled == MESSAGES


def test_first_passes_at_a_time_have_one_folder(move, folder, monkeypatch):
    """Else what the one has moved would be in a folder that the other refuses."""
    put, ids = cold_folder._put, []

    def put_second(*args, **options):
        monkeypatch.setattr(cold_folder, "_put", put)
        ids.append(ColdFolder.open(folder, "q", "delayq", "").id)
        put(*args, **options)

    monkeypatch.setattr(cold_folder, "_put", put_second)
    ids.append(ColdFolder.open(folder, "q", "delayq", "").id)
    assert len(ids) == 2
    assert len({*ids}) == 1
    assert move().spilled == MESSAGES


def test_folder_on_a_disk_without_second_names_for_files(move, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(cold_folder.Path, "hardlink_to", refuse)
    assert move().spilled == MESSAGES
    assert move(FOREVER).restored == MESSAGES


def test_what_a_killed_pass_has_half_written_is_deleted_after_a_day(move, folder):
    move()
    old, new = (path.with_name(f".{path.name}.half") for path in cold_files(folder)[:2])
    for path in (old, new):
        path.write_text("PAR1")
    os.utime(old, (0, time.time() - 86_500))
    assert move().unknown == ()
    assert (old.exists(), new.exists()) == (False, True)
    assert move(FOREVER).restored == MESSAGES


def test_full_disk_is_one_error_and_loses_nothing(queue, move, folder, monkeypatch):
    """Each write in turn fails: the facts of the folder, the messages that are to be moved, those of each day."""
    put, before = cold_folder._put, as_stored(queue)
    for full_at in range(100):
        writes = []

        def fail(to, data, *, number=full_at, done=writes, **options):
            done.append(to)
            if len(done) > number:
                raise OSError(errno.ENOSPC, "No space left on device")
            put(to, data, **options)

        with monkeypatch.context() as patched:
            patched.setattr(cold_folder, "_put", fail)
            try:
                assert move().cold == MESSAGES
                break
            except ColdTierError as error:
                assert "No space left on device" in str(error)  # noqa: PT017 - the last one raises none
        assert move().cold == MESSAGES, "there is space again"
        assert move(FOREVER).restored == MESSAGES
        assert as_stored(queue) == before
        shutil.rmtree(folder)
        queue.executor.client.delete("delayq:{q}:cold")
    assert full_at == 5, "the facts, the messages, and three days"


def truncate(path):
    path.write_bytes(path.read_bytes()[:-20])


def empty(path):
    path.write_bytes(b"")


def foreign(path):
    parquet.write_table(parquet.read_table(path, partitioning=None).select(["id", "due"]), path)


def odd(path):
    table = parquet.read_table(path, partitioning=None)
    parquet.write_table(table.set_column(1, "due", table["payload"]), path)


def directory(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [truncate, empty, foreign, odd, directory])
def test_odd_file_is_one_error_and_the_others_come_back(queue, move, folder, spoil):
    move()
    first, *_ = cold_files(folder)
    kept = first.with_name(f"{first.name}.kept")
    shutil.copy(first, kept)
    spoil(first)
    for _ in range(2):
        with pytest.raises(
            ColdTierError, match=rf"day={days(20)[0]}/.*\.parquet of the cold tier cannot be read"
        ) as raised:
            move(FOREVER)
        assert "\n" not in str(raised.value)
        assert sorted(as_stored(queue)) == ["m2", "m3", "m4"]
    shutil.rmtree(first) if first.is_dir() else first.unlink()
    kept.rename(first)
    assert move(FOREVER).restored == 2
    assert len(as_stored(queue)) == MESSAGES


def test_foreign_file_beside_the_others_is_named_and_left_alone(move, folder):
    move()
    stranger = cold_files(folder)[0].with_name("stranger.parquet")
    stranger.write_text("not Parquet")
    moved = move(FOREVER)
    assert (moved.restored, moved.unknown) == (MESSAGES, (f"day={days(20)[0]}/stranger.parquet",))
    assert stranger.read_text() == "not Parquet"


def test_odd_file_of_what_is_to_be_moved_is_one_error(queue, move, folder):
    (folder / "_delayq").mkdir(parents=True)
    assert move().cold == MESSAGES
    (folder / "_moved" / "odd.parquet").write_text("odd")
    assert move().cold == MESSAGES, "no message was moved to it: it is given up"
    assert not list(folder.glob("_moved/*"))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"keep": "-7d"}, "keep"),
        ({"keep": "soon"}, "keep"),
        ({"keep": float("nan")}, "keep"),
        ({"keep": True}, "keep"),
        ({"every": 0}, "every"),
        ({"every": "-1h"}, "every"),
        ({"every": "often"}, "every"),
        ({"deadline": "never"}, "deadline"),
    ],
)
def test_odd_durations_are_refused_before_anything(move, folder, options, text):
    with pytest.raises(InvalidValueError, match=text):
        move(**options)
    assert not folder.exists()


def test_redis_that_forgot_that_a_file_is_back_gets_it_again(queue, move, redis_client):
    """It has lost its last second, or another server took its place: what it knows is what it knew before."""
    before = as_stored(queue)
    move()
    dumped = {key: redis_client.dump(key) for key in redis_client.keys("*")}
    assert move(FOREVER).restored == MESSAGES
    redis_client.flushall()
    for key, value in dumped.items():
        redis_client.restore(key, 0, value)
    assert move(FOREVER).restored == MESSAGES
    assert as_stored(queue) == before


@pytest.mark.parametrize("put_away", [False, True])
def test_redis_that_forgot_that_a_file_was_divided_is_told_again(queue, move, folder, redis_client, put_away):
    before = as_stored(queue)
    move()
    key = "delayq:{q}:cold"
    files = {path.relative_to(folder).as_posix() for path in cold_files(folder)}
    (name,) = {path.stem.removesuffix(f"-{MESSAGES}") for path in cold_files(folder)}
    if put_away:  # what it forgot includes that two messages are back
        dumped = {one: redis_client.dump(one) for one in redis_client.keys("*")}
        assert move("20d").restored == 2
        redis_client.flushall()
        for one, value in dumped.items():
            redis_client.restore(one, 0, value)
    redis_client.hdel(key, *(f"file {file}" for file in files))
    redis_client.hset(key, f"moved {name}", "1" * MESSAGES)
    assert move(FOREVER).restored == MESSAGES
    assert as_stored(queue) == before
    assert redis_client.hget("delayq:{q}:meta", "cold") == b"0"


def test_spilled_file_that_is_gone_is_an_error_after_all_others_are_back(queue, move, redis_client):
    move()
    redis_client.hset("delayq:{q}:cold", "moved lost", "0110")
    for _ in range(2):
        with pytest.raises(ColdTierError, match=r"1 file of the cold tier gone: _moved/lost\.parquet"):
            move(FOREVER)
        assert len(as_stored(queue)) == MESSAGES


def test_odd_spilled_file_is_an_error_after_all_others_are_back(queue, move, folder, redis_client):
    move()
    redis_client.hset("delayq:{q}:cold", "moved odd", "01")
    (folder / "_moved" / "odd.parquet").write_text("odd")
    for _ in range(2):
        with pytest.raises(ColdTierError, match=r"_moved/odd\.parquet of the cold tier cannot be read"):
            move(FOREVER)
        assert len(as_stored(queue)) == MESSAGES


def test_messages_move_on_while_a_file_cannot_come_back(queue, move, folder):
    move()
    first, *_ = cold_files(folder)
    empty(first)
    queue.send(b"late", id="late", delay=day_later(80))
    with pytest.raises(ColdTierError, match="cannot be read"):
        move("25d")
    assert sorted(as_stored(queue)) == ["m2", "m3", "m4"], "the late one was spilled all the same"


def test_full_redis_is_relieved_and_takes_back_when_it_has_room(start_redis, folder):
    """Spilling frees memory, so it must work; bringing back is refused as a whole, until there is room."""
    server = start_redis()
    with DelayQueue("q", url=server.url, codec="bytes") as queue, server.client() as client:
        queue.send_many([NewMessage(b"x" * 1000, id=f"m{number}", delay="30d") for number in range(MESSAGES)])
        before = as_stored(queue)
        move_cold("q", folder, url=server.url)
        queue.send(b"far", id="far", delay="300d")
        client.config_set("maxmemory", 1)
        with pytest.raises(QueueFullError):
            move_cold("q", folder, url=server.url, keep="60d", deadline="1s")
        assert not as_stored(queue), "what is far ahead has left, and nothing came back by halves"
        assert cold_status("q", url=server.url).cold == MESSAGES + 1
        (folder / "_moved" / "begun.parquet").write_text("begun by a pass that was killed")
        assert move_cold("q", folder, url=server.url, deadline="1s").cold == MESSAGES + 1
        assert not list(folder.glob("_moved/*")), "it was given up"
        client.config_set("maxmemory", 0)
        assert move_cold("q", folder, url=server.url, keep="60d").restored == MESSAGES
        assert as_stored(queue) == before


def test_room_that_spilling_makes_is_used_at_once(start_redis, folder, monkeypatch):
    """The server has room as soon as something has left it, so one pass does both."""
    server = start_redis()
    with DelayQueue("q", url=server.url, codec="bytes") as queue, server.client() as client:
        queue.send(b"near", id="near", delay="30d")
        move_cold("q", folder, url=server.url)
        queue.send(b"far", id="far", delay="300d")
        spill = cold_pass.spill

        def spill_and_relieve(*args):
            spilled = spill(*args)
            client.config_set("maxmemory", 0)
            return spilled

        monkeypatch.setattr(cold_pass, "spill", spill_and_relieve)
        client.config_set("maxmemory", 1)
        moved = move_cold("q", folder, url=server.url, keep="60d", deadline="1s")
        assert (moved.spilled, moved.restored, moved.cold) == (1, 1, 1)
        assert list(as_stored(queue)) == ["near"]


def test_what_another_program_has_stored_is_left_out(queue, move, redis_url, redis_client, tmp_path):
    move()
    (tmp_path / "elsewhere.parquet").write_text("mine")
    strange = {
        b"file ../../elsewhere.parquet": "1 0",
        "file day=2027-02-30/x.parquet": "1 0",
        "file day=2027-02-03/../x.parquet": "1 0",
        f"file day={days(20)[0]}/x.parquet": "many",
        "moved ../../elsewhere": "11",
        "moved x": "1x",
        "back ../../elsewhere.parquet": "1",
        "keep": "long",
        "passed": "-",
        b"\xff": b"\xff",
    }
    redis_client.hset("delayq:{q}:cold", mapping=strange)
    noted = {"m0": "x", "m1": "", "m2": "nan 5", b"\xff": b"\xff", "m3": "1" * 30 + " 5", "m4": "-1"}
    redis_client.hset("delayq:{q}:cold_changes", mapping=noted)
    assert cold_status("q", url=redis_url).cold == MESSAGES
    moved = move(FOREVER)
    assert (moved.restored, moved.withdrawn, moved.unknown) == (MESSAGES, 0, ())
    assert (tmp_path / "elsewhere.parquet").read_text() == "mine"


def test_slow_pass_does_not_replace_what_another_has_completed(queue, move, redis_url, folder, monkeypatch):
    """It read which messages were moved to a file while one was, and divides the file later."""
    monkeypatch.setattr(spilling, "MAX_IDS", 1)
    call, write_day = Executor.call, ColdFolder.write_day
    began, ended = threading.Event(), threading.Event()
    slow = threading.Thread(target=lambda: move_cold("q", folder, url=redis_url, deadline="50s"))

    def call_and_start(executor, request):
        reply = call(executor, request)
        if isinstance(request, ScriptCall) and request.script.name == "spill" and slow.ident is None:
            slow.start()
            assert began.wait(30)
        return reply

    def write_late(of, file, rows):
        if threading.current_thread() is slow and not began.is_set():
            began.set()
            assert ended.wait(30)
        write_day(of, file, rows)

    monkeypatch.setattr(Executor, "call", call_and_start)
    monkeypatch.setattr(ColdFolder, "write_day", write_late)
    before = as_stored(queue)
    assert move().cold == MESSAGES
    ended.set()
    slow.join(30)
    monkeypatch.undo()
    moved = move(FOREVER)
    assert (moved.restored, moved.unknown) == (MESSAGES, ())
    assert as_stored(queue) == before
