"""`file_spilled`, `merge_files`, `drop_changes`: files of the cold tier that count, and what was noted of messages."""

from __future__ import annotations

import pytest

from delayq.bulk.cold.cold_calls import (
    ColdRow,
    drop_changes_call,
    file_spilled_call,
    give_up_call,
    merge_files_call,
    spill_call,
)
from tests.support.scripts import NOW, World, calls, observe, plant

VOID = f"void {NOW}"


@pytest.mark.parametrize(
    ("before", "answer", "after"),
    [({}, VOID, {"moved x": VOID}), ({"moved x": "void 5"}, "void 5", None), ({"moved x": "101"}, "101", None)],
    ids=["unknown", "given up before", "in use"],
)
def test_file_without_messages_is_given_up(executor, before, answer, after):
    plant(executor, World(cold=before))
    for _ in range(2):
        assert executor.call(give_up_call(calls, "x")) == answer
        assert observe(executor) == World(cold=before if after is None else after)


@pytest.mark.parametrize("known", ["101", "000"])
def test_files_by_day_count_once(executor, known):
    plant(executor, World(cold={"folder": "f", "moved x": known, "moved y": "1"}))
    after = World(cold={"folder": "f", "moved y": "1", "file d/x": "1 0", "file e/x": "2 0"})
    assert executor.call(file_spilled_call(calls, "x", known, {"d/x": 1, "e/x": 2})) == known
    assert observe(executor) == after
    assert executor.call(file_spilled_call(calls, "x", known, {"d/x": 1, "e/x": 2})) == "-"
    assert observe(executor) == after


@pytest.mark.parametrize("known", ["1011", "void 5"])
def test_files_of_what_has_changed_do_not_count(executor, known):
    before = World(cold={"moved x": known})
    plant(executor, before)
    assert executor.call(file_spilled_call(calls, "x", "101", {"d/x": 2})) == known
    assert observe(executor) == before


def test_one_file_counts_in_place_of_others(executor):
    plant(executor, World(cold={"folder": "f", "file d/x": "1 0", "file d/y": "2 0", "file d/z": "3 1"}))
    after = World(cold={"folder": "f", "file d/n": "3 0", "file d/z": "3 1", "back d/x": "1", "back d/y": "1"})
    for _ in range(2):
        assert executor.call(merge_files_call(calls, "d/n", 3, ["d/x", "d/y"])) == 1
        assert observe(executor) == after


@pytest.mark.parametrize(
    ("rows", "old"), [(4, ["d/x", "d/z"]), (1, ["d/x", "d/gone"]), (4, ["d/x", "d/y"]), (2, ["d/x", "d/y"])]
)
def test_files_that_are_not_as_they_were_are_not_replaced(executor, rows, old):
    before = World(cold={"file d/x": "1 0", "file d/y": "2 0", "file d/z": "3 1", "moved y": "1"})
    plant(executor, before)
    assert executor.call(merge_files_call(calls, "d/n", rows, old)) == 0
    assert observe(executor) == before


def test_spill_stops_after_a_mebibyte(executor):
    text = "x" * (1 << 20)
    plant(executor, World(pending={"a": 5, "b": 6}, messages={"a": text, "b": text}, meta={"schema": 3}))
    rows = [ColdRow(id, NOW + due, 3, text.encode(), b"", b"") for id, due in (("a", 5), ("b", 6))]
    for at in range(2):
        assert executor.call(spill_call(calls, "f", "x", rows[at:], first=at, oldest=NOW)) == "1"
    assert observe(executor) == World(cold={"folder": "f", "moved x": "11"}, meta={"schema": 8, "cold": 2})


@pytest.mark.parametrize(("latest", "left"), [(4, "abc"), (6, "c"), (7, "")])
def test_changes_are_dropped_up_to_a_time(executor, latest, left):
    noted = {"a": "- 5", "b": "900 6", "c": "- 7"}
    plant(executor, World(cold_changes=noted))
    assert executor.call(drop_changes_call(calls, latest, noted)) == 3 - len(left)
    assert observe(executor) == World(cold_changes={id: noted[id] for id in left})


def test_changes_that_have_changed_stay(executor):
    plant(executor, World(cold_changes={"a": "- 5", "b": "- 6", "c": "- 7", "d": "- 4 done"}))
    assert executor.call(drop_changes_call(calls, 5, "abde")) == 2
    assert observe(executor) == World(cold_changes={"b": "- 6", "c": "- 7"})
