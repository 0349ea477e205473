"""Reading schedules: those that are due, those named, and page by page."""

from __future__ import annotations

import pytest

from delayq.errors import ServerError
from delayq.schedules.calls import StoredSchedule, note_schedules, schedules_due_call, schedules_page_call
from tests.support.scripts import KEYS, NOW, T, World, calls, observe, plant

THREE = World(
    schedules={"late": -500, "soon": 40, "far": 60_000},
    schedule_specs={"late": "{}\nL", "soon": "{}\nS", "far": "{}\nF", "asleep": "{}\n\x00\xff"},
    schedule_states={"late": "T-9 3 -60000 0", "soon": "T-8 0 - 0", "far": "T-7 1 -5 0", "asleep": "T-6 2 -7 1"},
)
LATE = StoredSchedule("late", NOW - 500, b"{}\nL", str(T - 9), 3, NOW - 60_000, False)
SOON = StoredSchedule("soon", NOW + 40, b"{}\nS", str(T - 8), 0, 0, False)
FAR = StoredSchedule("far", NOW + 60_000, b"{}\nF", str(T - 7), 1, NOW - 5, False)
ASLEEP = StoredSchedule("asleep", None, b"{}\n\x00\xff", str(T - 6), 2, NOW - 7, True)


def due(executor, ahead=0, offset=0, limit=100, byte_limit=1000):
    found = executor.call(schedules_due_call(calls, ahead=ahead, offset=offset, limit=limit, byte_limit=byte_limit))
    assert found.now == NOW
    assert observe(executor) == THREE
    return found.schedules, found.complete


def test_due_and_upcoming_schedules_are_read_earliest_first(executor):
    plant(executor, THREE)
    assert due(executor) == ([LATE], True)
    assert due(executor, ahead=39) == ([LATE], True)
    assert due(executor, ahead=40) == ([LATE, SOON], True)
    assert due(executor, ahead=60_000) == ([LATE, SOON, FAR], True)


def test_reading_due_schedules_respects_limit_and_offset(executor):
    plant(executor, THREE)
    assert due(executor, ahead=60_000, limit=2) == ([LATE, SOON], False)
    assert due(executor, ahead=60_000, limit=3) == ([LATE, SOON, FAR], False)
    assert due(executor, ahead=60_000, limit=2, offset=1) == ([SOON, FAR], False)
    assert due(executor, ahead=60_000, limit=2, offset=2) == ([FAR], True)
    assert due(executor, ahead=60_000, limit=2, offset=3) == ([], True)


def test_reading_due_schedules_respects_the_byte_limit(executor):
    plant(executor, THREE)
    assert due(executor, ahead=60_000, byte_limit=9) == ([LATE, SOON, FAR], True)
    assert due(executor, ahead=60_000, byte_limit=8) == ([LATE, SOON], False)
    assert due(executor, ahead=60_000, byte_limit=5) == ([LATE, SOON], False)
    assert due(executor, ahead=60_000, byte_limit=4) == ([LATE], False)
    assert due(executor, ahead=60_000, byte_limit=1) == ([LATE], False)


def test_partly_deleted_schedule_is_read(executor):
    world = World(schedules={"a": -5, "b": -4}, schedule_specs={"a": "{}"}, schedule_states={"b": "T-9 1 -5 0"})
    plant(executor, world)
    found = executor.call(schedules_due_call(calls, ahead=0, offset=0, limit=9, byte_limit=9)).schedules
    assert found == [
        StoredSchedule("a", NOW - 5, b"{}", "0", 0, 0, False),
        StoredSchedule("b", NOW - 4, b"", str(T - 9), 1, NOW - 5, False),
    ]
    assert executor.call(schedules_page_call(calls, limit=9)).schedules == [found[0]]


def test_schedules_are_read_by_name(executor):
    plant(executor, THREE)
    page = executor.call(schedules_page_call(calls, ["far", "none", "asleep"], limit=9))
    assert page == (NOW, 0, "", "0", [FAR, ASLEEP])
    executor.call(note_schedules(calls, NOW + 5, zones=""))
    assert executor.call(schedules_page_call(calls, ["far"], limit=9))[:3] == (NOW, NOW + 5, "")
    executor.call(note_schedules(calls, NOW + 6, zones="2026a"))
    assert executor.call(schedules_page_call(calls, ["far"], limit=9))[:3] == (NOW, NOW + 6, "2026a")
    executor.call(note_schedules(calls, NOW + 7, zones=""))
    assert executor.call(schedules_page_call(calls, ["far"], limit=9))[:3] == (NOW, NOW + 7, "2026a")
    executor.client.delete(KEYS.meta)
    assert executor.call(schedules_page_call(calls, ["none"], limit=9)).schedules == []
    executor.client.hset(KEYS.schedule_specs, "9", "{}")
    assert executor.call(schedules_page_call(calls, ["far"], limit=9)).schedules == [FAR]
    executor.client.hdel(KEYS.schedule_specs, "9")
    assert observe(executor) == THREE


def test_all_schedules_are_read_in_pages(executor):
    names = {f"s{n}": n for n in range(1500)}
    states = dict.fromkeys(names, "T-9 0 - 0")
    plant(executor, World(schedules=names, schedule_specs=dict.fromkeys(names, "{}"), schedule_states=states))
    found, cursor, pages = {}, "", 0
    while cursor != "0":
        page = executor.call(schedules_page_call(calls, cursor=cursor or "0", limit=100))
        found |= {one.name: one.next - NOW for one in page.schedules}
        cursor, pages = page.cursor, pages + 1
        assert pages < 100
    assert found == names
    assert pages > 5


@pytest.mark.faults
@pytest.mark.parametrize("part", ["schedules", "schedule_specs", "schedule_states"])
def test_key_of_wrong_type_is_refused(real_executor, part):
    plant(real_executor, THREE)
    real_executor.client.set(getattr(KEYS, part), "a text")
    for call in (
        schedules_due_call(calls, ahead=0, offset=0, limit=9, byte_limit=99),
        schedules_page_call(calls, ["far"], limit=9),
        schedules_page_call(calls, limit=9),
    ):
        with pytest.raises(ServerError, match="WRONGTYPE"):
            real_executor.call(call)
