"""Small files of the cold tier are merged; and passes that follow one another."""

from __future__ import annotations

import threading

import pytest

from delayq import ColdTierError, ConfigurationError, NewMessage
from delayq.bulk import cold_status, find_cold, follow_cold, move_cold
from delayq.bulk.cold import cold_follow, merging
from delayq.bulk.cold.cold_folder import ColdFolder
from tests.support.cold import FOREVER, as_stored, cold_files, day_later, days
from tests.support.waiting import wait_until


@pytest.fixture
def options(redis_url):
    return {"url": redis_url}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cold"


def fill(queue, folder, passes, *, first=0, **options):
    """Send messages of two days before each pass; returns them as they were stored."""
    sent = {}
    for number in range(first, first + passes):
        queue.send_many(NewMessage(b"%d" % number, id=f"{day}-{number}", delay=day_later(day)) for day in (20, 40))
        sent |= as_stored(queue)
        move_cold("q", folder, **options)
    return sent


def test_small_files_of_a_day_become_one(queue, folder, options):
    sent = fill(queue, folder, merging.MIN_FILES, **options)
    assert len(cold_files(folder)) == 2
    assert list(cold_status("q", **options).days.values()) == [merging.MIN_FILES] * 2
    moved = move_cold("q", folder, keep=FOREVER, **options)
    assert (moved.restored, moved.unknown) == (2 * merging.MIN_FILES, ())
    assert as_stored(queue) == sent


@pytest.mark.parametrize("limit", ["SMALL", "MAX_ROWS", "MAX_BYTES"])
def test_large_files_stay(queue, folder, options, monkeypatch, limit):
    monkeypatch.setattr(merging, limit, 0)
    fill(queue, folder, merging.MIN_FILES, **options)
    assert len(cold_files(folder)) == 2 * merging.MIN_FILES


def test_what_another_pass_has_brought_back_is_not_merged(queue, folder, options, monkeypatch):
    passes = merging.MIN_FILES - 1
    sent = fill(queue, folder, passes, **options)
    write, others = ColdFolder.write_day, []

    def write_beside_another_pass(self, file, rows):
        write(self, file, rows)
        if len(rows) > 1 and not others:
            others.append(None)
            others[0] = move_cold("q", folder, keep="30d", every="1s", **options)

    monkeypatch.setattr(ColdFolder, "write_day", write_beside_another_pass)
    sent |= fill(queue, folder, 1, first=passes, **options)
    assert others[0].restored == merging.MIN_FILES
    assert move_cold("q", folder, keep=FOREVER, **options).unknown == ()
    assert as_stored(queue) == sent


def test_passes_follow_one_another_and_a_bulk_load(queue, folder, options, monkeypatch):
    monkeypatch.setattr(cold_follow, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(cold_follow, "SPILL_AT", 10)
    queue.send(b"m", delay="20d")
    stop, passes = threading.Event(), []
    thread = threading.Thread(
        target=follow_cold, args=("q", folder), kwargs={"stop": stop, "on_pass": passes.append, **options}
    )
    thread.start()
    try:
        wait_until(lambda: passes)
        queue.send_many(NewMessage(b"m", delay="20d") for _ in range(9))  # fewer than are worth a pass
        queue.send(b"m", delay="20d")
        wait_until(lambda: sum(one.spilled for one in passes) == 11)
        assert len(passes) == 2
    finally:
        stop.set()
        thread.join()


def test_the_first_pass_that_fails_is_told_to_the_caller(queue, folder, options):
    with pytest.raises(ConfigurationError, match="keep must be at least 2 times every"):
        follow_cold("q", folder, keep="1h", every="1h", **options)
    queue.send(b"m", delay="20d")
    folder.write_text("a file")
    with pytest.raises(ColdTierError, match="cannot be used"):
        follow_cold("q", folder, **options)


def test_a_message_is_found_in_its_file(queue, folder, options):
    queue.send(b"m")
    assert find_cold("q", "20-0", folder, **options) is None
    fill(queue, folder, 1, **options)
    found = find_cold("q", "20-0", **options)
    assert (found.id, found.file[4:14], found.due.date().isoformat(), found.withdrawn) == ("20-0", *days(20, 20), False)
    assert find_cold("q", "20-1", folder, **options) is None
    queue.reschedule("20-0", "1h")
    move_cold("q", folder, **options)
    assert find_cold("q", "20-0", folder, **options) is None  # it is back, before its file
    move_cold("q", folder, keep="30d", **options)
    assert find_cold("q", "20-0", folder, **options) is None
    assert find_cold("q", "40-0", folder, **options) is not None


def test_a_file_that_cannot_be_read_is_told_and_stops_nothing(queue, folder, options, caplog):
    fill(queue, folder, merging.MIN_FILES - 1, **options)
    cold_files(folder)[0].write_bytes(b"odd")
    fill(queue, folder, 1, first=merging.MIN_FILES, **options)
    assert f"the files of day={days(20)[0]} are not merged" in caplog.text
    assert len(cold_files(folder)) == merging.MIN_FILES + 1


@pytest.mark.parametrize("noted", ["", "x", "x 5", "12 soon", b"\xff"])
def test_an_odd_note_on_a_message_stops_no_search(queue, folder, options, noted, redis_client):
    fill(queue, folder, 1, **options)
    redis_client.hset(queue.context.calls.keys.cold_changes, "20-0", noted)
    found = find_cold("q", "20-0", folder, **options)
    assert (found.withdrawn, found.due.date().isoformat()) == (False, days(20)[0])
