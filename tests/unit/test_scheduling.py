"""Storing schedules while others fire and change them, and in batches of limited size."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from delayq import ConfigurationError, Schedule
from delayq.broker.calls import Calls
from delayq.broker.context import QueueContext
from delayq.broker.keys import Keys
from delayq.options import read_settings
from delayq.schedules.calls import SchedulePage, StoredSchedule
from delayq.schedules.definition import pack, unpack
from delayq.schedules.messages import occurrence_id
from delayq.schedules.store import BATCH, pausing, put, update

NOW = 1_800_000_000_000
TOOLS = QueueContext(Calls(Keys.of("delayq", "q")), read_settings({}), bytes, "q")
SPEC = b'{"retries":3,"every":3600000}\n1'
OTHER = b'{"retries":3,"every":7200000}\n1'


def page(*schedules: StoredSchedule) -> SchedulePage:
    return SchedulePage(NOW, NOW, "", "0", list(schedules))


def stored(revision: str, at: int | None = NOW + 5, last: int = 0, spec: bytes = OTHER) -> StoredSchedule:
    return StoredSchedule("s", at, spec, revision, 7, last, False)


def played(operation: Any, *replies: Any) -> tuple[list[list[Any]], Any]:
    """Run an operation with one reply a round; return the names and arguments of its calls, and its result."""
    asked = []
    step = next(operation)
    try:
        for reply in replies:
            (call,) = step
            asked.append([call.script.name, *call.args[1:]])
            step = operation.send([reply])
    except StopIteration as end:
        return asked, end.value
    raise AssertionError("the operation has more requests")


def test_put_is_repeated_if_the_schedule_has_changed_meanwhile():
    operation = put(TOOLS, {"s": SPEC})
    hour = NOW // 3_600_000 * 3_600_000 + 3_600_000
    asked, found = played(operation, page(stored("1")), "0", page(stored("2", hour + 5, last=hour)), "1")
    assert [name for name, *_ in asked] == ["schedules_page", "schedule_put"] * 2
    assert asked[1][1:] == ["s", "1", hour, 0, SPEC]
    assert asked[3][1:] == ["s", "2", hour + 3_600_000, 0, SPEC]
    assert found == {"s": "changed"}


def test_put_repeats_only_the_schedules_that_have_changed():
    operation = put(TOOLS, {"a": SPEC, "b": SPEC, "c": SPEC})
    asked, found = played(operation, page(), "101", page(stored("3", spec=SPEC)._replace(name="b")), "1")
    assert asked[2] == ["schedules_page", "0", BATCH, "b"]
    assert (asked[3][0], asked[3][1], asked[3][2]) == ("schedule_put", "b", "3")
    assert found == {"a": "new", "b": "changed", "c": "new"}


def test_pause_is_retried_until_it_succeeds_or_the_schedule_is_removed():
    asked, found = played(update(TOOLS, "s", pausing(None)), page(stored("1")), "0", page(stored("2")), "1")
    assert [call[0] for call in asked] == ["schedules_page", "schedule_put"] * 2
    assert found is not None
    asked, found = played(update(TOOLS, "s", pausing(None)), page(stored("1")), "0", page())
    assert found is None


def test_many_or_large_schedules_are_stored_in_batches():
    def slices(specs: dict[str, bytes]) -> list[int]:
        operation, sizes = put(TOOLS, specs), []
        step = next(operation, None)
        while step is not None:
            (call,) = step
            if call.script.name == "schedules_page":
                sizes.append(len(call.args) - 3)
            try:
                step = operation.send([page() if call.script.name == "schedules_page" else "1" * sizes[-1]])
            except StopIteration:
                step = None
        return sizes

    assert slices({f"s{n}": SPEC for n in range(2 * BATCH + 1)}) == [BATCH, BATCH, 1]
    assert slices({f"s{n}": SPEC + b"x" * 400_000 for n in range(5)}) == [2, 2, 1]


def test_invalid_definition_raises_and_unknown_fields_are_ignored():
    for spec in (
        b"",
        b"{",
        b"\xff\n",
        b"[]\n1",
        b"{}\n1",
        b'{"retries":"x"}\n',
        b'{"retries":1}\n',
        b'{"retries":1,"every":-5}\n',
    ):
        with pytest.raises(ConfigurationError, match="its definition cannot be read"):
            unpack(spec)
    opened = unpack(b'{"retries":1,"every":5000,"colour":"red","misfire":"later"}\nP')
    assert (opened.payload, opened.definition.every, opened.definition.timetable.makes_up) == (b"P", 5000, 1)


def test_equal_schedules_are_packed_to_equal_bytes():
    def packed(**options: Any) -> bytes:
        return pack(Schedule("s", **options), read_settings({}), lambda payload: b"%d" % payload, declared=False)

    full = {"cron": "0 9 * * *", "tz": "Asia/Tokyo", "payload": 1, "retries": 5, "misfire": "skip", "late_after": "2m"}
    assert packed(**full, headers={"b": "1", "a": "2"}) == packed(**full, headers={"a": "2", "b": "1"})
    assert packed(every=60, payload=1, misfire=str(b"once", "ascii")) == b'{"retries":3,"every":60000}\n1'
    definition = unpack(packed(every="1h", payload=2, start=datetime(2027, 1, 1, tzinfo=UTC), count=3)).definition
    assert (definition.start, definition.count, definition.late_after) == (1_798_761_600_000, 3, None)


@pytest.mark.parametrize(
    ("time", "id"),
    [
        (0, "s@1970-01-01T00:00:00Z"),
        (1_795_334_400_000, "s@2026-11-22T08:00:00Z"),
        (1_795_334_400_001, "s@2026-11-22T08:00:00.001Z"),
        (1_795_334_400_120, "s@2026-11-22T08:00:00.120Z"),
    ],
)
def test_id_of_an_occurrence_is_its_time_in_utc(time, id):
    assert occurrence_id("s", time) == id
