"""Finding schedules: by label and by what their names begin with, page by page."""

from __future__ import annotations

import pytest

from delayq.errors import ServerError
from delayq.schedules.calls import schedules_find_call
from tests.support.scripts import KEYS, World, calls, observe, plant

NAMES = ["a", "a-1", "a-2", "b", "0"]
WORLD = World(
    schedule_states=dict.fromkeys(NAMES, "T-9 0 - 0"),
    schedule_labels={"x a", "x a-1", "x a-2", "x b", "y b", "x:1 0"},
)
CASES = [
    ("all", {}, ("", ["0", "a", "a-1", "a-2", "b"])),
    ("a page of all", {"limit": 2}, ("@a", ["0", "a"])),
    ("the next page of all", {"limit": 2, "cursor": "@a"}, ("@a-2", ["a-1", "a-2"])),
    ("the last page of all", {"limit": 2, "cursor": "@a-2"}, ("", ["b"])),
    ("a full last page of all", {"limit": 2, "cursor": "@a-1"}, ("", ["a-2", "b"])),
    ("by prefix", {"prefix": "a-"}, ("", ["a-1", "a-2"])),
    ("a page by prefix", {"prefix": "a-", "limit": 1}, ("@a-1", ["a-1"])),
    ("the last page by prefix", {"prefix": "a-", "limit": 1, "cursor": "@a-1"}, ("", ["a-2"])),
    ("the whole name", {"prefix": "b"}, ("", ["b"])),
    ("no such name", {"prefix": "c"}, ("", [])),
    ("by label", {"label": "x"}, ("", ["a", "a-1", "a-2", "b"])),
    ("by a label", {"label": "y"}, ("", ["b"])),
    ("by a label that begins with another", {"label": "x:1"}, ("", ["0"])),
    ("no such label", {"label": "z"}, ("", [])),
    ("a page by label", {"label": "x", "limit": 2}, ("@a-1", ["a", "a-1"])),
    ("the next page by label", {"label": "x", "limit": 2, "cursor": "@a-1"}, ("@b", ["a-2", "b"])),
    ("after the last page by label", {"label": "x", "limit": 2, "cursor": "@b"}, ("", [])),
    ("by label and prefix", {"label": "x", "prefix": "a-"}, ("", ["a-1", "a-2"])),
    ("a page by both", {"label": "x", "prefix": "a-", "limit": 1, "cursor": "@a-1"}, ("@a-2", ["a-2"])),
    ("after a name that is gone", {"label": "x", "cursor": "@a-1x"}, ("", ["a-2", "b"])),
]


@pytest.mark.parametrize(("options", "reply"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_schedules_are_found(executor, options, reply):
    plant(executor, WORLD)
    assert executor.call(schedules_find_call(calls, **{"limit": 9} | options)) == reply
    assert observe(executor) == WORLD


def test_nothing_is_found_in_an_empty_queue(executor):
    assert executor.call(schedules_find_call(calls, limit=9)) == ("", [])
    assert executor.call(schedules_find_call(calls, label="x", limit=9)) == ("", [])


@pytest.mark.long
@pytest.mark.parametrize("cursor", ["", "@n5"])
def test_many_schedules_are_found_by_a_scan(executor, cursor):
    names = {f"{'mn'[n % 2]}{n}" for n in range(30_000)}
    plant(executor, World(schedule_states=dict.fromkeys(names, "T-9 0 - 0")))
    found: set[str] = set()
    sizes = []
    for _ in range(2000):
        cursor, page = executor.call(schedules_find_call(calls, prefix="n", cursor=cursor, limit=50))
        found |= set(page)
        sizes.append(len(page))
        if not cursor:
            break
    assert not cursor
    assert found == {name for name in names if name.startswith("n")}
    assert max(sizes) <= 50 + 200
    cursor, page = executor.call(schedules_find_call(calls, prefix="x", limit=50))
    assert page == []
    assert cursor  # it has looked at 10,000


@pytest.mark.parametrize("number", [1000, 1001])
def test_up_to_a_thousand_schedules_are_found_in_order(real_executor, number):
    names = [f"{n:04}" for n in range(number)]
    plant(real_executor, World(schedule_states=dict.fromkeys(names, "T-9 0 - 0")))
    cursor, found = real_executor.call(schedules_find_call(calls, limit=300))
    assert (cursor == "@0299" and found == names[:300]) is (number == 1000)
    assert (real_executor.call(schedules_find_call(calls, cursor="0", limit=300))[0] == "@0299") is False


@pytest.mark.faults
@pytest.mark.parametrize(("part", "options"), [("schedule_states", {}), ("schedule_labels", {"label": "x"})])
def test_key_of_wrong_type_is_refused(real_executor, part, options):
    plant(real_executor, WORLD)
    real_executor.client.set(getattr(KEYS, part), "a text")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        real_executor.call(schedules_find_call(calls, limit=9, **options))
