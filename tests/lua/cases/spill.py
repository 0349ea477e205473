"""`spill`: what waits for its first delivery leaves the queue, if it is still as the file has it."""

from __future__ import annotations

from typing import Any

from delayq.bulk.cold.cold_calls import ColdRow, spill_call
from tests.lua.cases.states import CROWD, PENDING, STATES, logged, reserved, with_meta
from tests.support.scripts import NOW, Case, World, calls

_ROW = ColdRow("a", NOW + 60_000, 2, b"A", b"ha", b"name=a")
"""The message of the states, as it waits."""
_MOVED = World(meta={"schema": 8, "cold": 1}, cold={"folder": "f", "moved x": "1"})
_STAYED = World(meta={"schema": 8}, cold={"folder": "f", "moved x": "0"})


def spill(*rows: ColdRow, folder: str = "f", first: int = 0, oldest: int = 0) -> Any:
    return spill_call(calls, folder, "x", rows or [_ROW], first=first, oldest=NOW + oldest)


def _with(text: str) -> Case:
    world = PENDING.but(attributes={"a": text})
    row = _ROW._replace(attributes=text.encode())
    return Case(f"stays: {text.partition('=')[0]}", world, spill(row), "0", with_meta(world, _STAYED))


_DONE = World(cold={"folder": "f", "moved x": "void 5"}, meta={"schema": 8})
CASES = [
    *(
        Case(name, world + CROWD, spill(), "0", with_meta(world + CROWD, _STAYED))
        for name, world in STATES.items()
        if name != "pending"
    ),
    Case("pending", PENDING + CROWD, spill(), "1", with_meta(_MOVED, CROWD)),
    Case(
        "with the default retries",
        World(pending={"a": 5}, messages={"a": "A"}, meta={"schema": 3}),
        spill(ColdRow("a", NOW + 5, 3, b"A", b"", b"")),
        "1",
        _MOVED,
    ),
    *(
        Case(f"another {name}", PENDING, spill(_ROW._replace(**{name: value})), "0", with_meta(PENDING, _STAYED))
        for name, value in {
            "due": NOW + 60_001,
            "retries": 1,
            "payload": b"B",
            "headers": b"hb",
            "attributes": b"name=b",
        }.items()
    ),
    *map(_with, ("since=5", "collect=5", "gathers=1:2:3:4:5:6:7:8", "joins=g", "unique_for=5", "unique_after=5")),
    Case(
        "twice in a call",
        PENDING,
        spill(_ROW, _ROW),
        "10",
        _MOVED.but(cold={"folder": "f", "moved x": "10"}),
    ),
    Case(
        "its id is held",
        with_meta(PENDING, reserved(a=5.5)),
        spill(),
        "0",
        with_meta(PENDING, _STAYED, reserved(a=5.5)),
    ),
    Case(
        "delivered before, and rescheduled",
        with_meta(PENDING, World(deliveries={"a": "pending 60000 1 T-7 T-7 w"})),
        spill(),
        "0",
        with_meta(PENDING, _STAYED, World(deliveries={"a": "pending 60000 1 T-7 T-7 w"})),
    ),
    Case("its id was held", with_meta(PENDING, reserved(a=-5.5)), spill(), "1", with_meta(_MOVED, reserved(a=-5.5))),
    Case(
        "a change of one with its id is noted",
        PENDING.but(cold_changes={"a": "- 5"}),
        spill(),
        "0",
        with_meta(PENDING, _STAYED).but(cold_changes={"a": "- 5"}),
    ),
    Case(
        "a change of another is noted",
        PENDING.but(cold_changes={"b": "- 5"}),
        spill(),
        "1",
        _MOVED.but(cold_changes={"b": "- 5"}),
    ),
    Case(
        "more of the file",
        with_meta(PENDING, _MOVED.but(cold={"folder": "f", "moved x": "101"})),
        spill(first=3),
        "1",
        _MOVED.but(cold={"folder": "f", "moved x": "1011"}, meta={"schema": 8, "cold": 2}),
    ),
    *(
        Case(name, with_meta(PENDING, before), call, "-", with_meta(PENDING, before))
        for name, before, call in (
            ("not the next of the file", _MOVED, spill(first=0)),
            ("of a file that is unknown", World(), spill(first=1)),
            ("a file that was given up", _DONE, spill()),
            ("a file that was given up, of that length", _DONE, spill(first=6)),
            ("another folder", World(cold={"folder": "g"}), spill()),
            ("a queue with partitions", World(meta={"schema": 7}), spill()),
            ("written too long ago", World(), spill(oldest=-3_600_001)),
        )
    ),
    Case("written just not too long ago", PENDING, spill(oldest=-3_600_000), "1", _MOVED),
]
CASES += logged(CASES, {"pending": ["spilled 0; ids a; dues 60000"], "another due": [], "another folder": []})
