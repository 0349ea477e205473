"""`restore`: messages of a cold file come back in their order, each once."""

from __future__ import annotations

from typing import Any

from delayq.bulk.cold.cold_calls import ColdRow, restore_call
from tests.lua.cases.states import CROWD, LEASED, PENDING, logged, remembering, reserved, with_meta
from tests.support.scripts import NOW, Case, World, calls

_ROW = ColdRow("a", NOW + 60_000, 2, b"A", b"ha", b"name=a")
_PLAIN = ColdRow("b", NOW + 70_000, 3, b"", b"", b"")


def tier(rows: int, back: int, **meta: int) -> World:
    """Return what is known of a file, and how many messages are cold."""
    return World(cold={"file x": f"{rows} {back}"}, meta={"schema": 8, "cold": rows - back} | meta)


def restore(*rows: ColdRow, first: int = 0, file: str = "x") -> Any:
    return restore_call(calls, file, rows or [_ROW], first=first)


_BACK = World(cold={"back x": "1"}, meta={"schema": 8})
_FIRST = PENDING.but(meta={}, wake=1)
_PLACE = World(pending={"b": 70_000}, messages={"b": ""})


def _changed(change: str) -> World:
    return World(cold_changes={"a": change})


CASES = [
    Case("the only one", tier(1, 0), restore(), "1", with_meta(_FIRST, _BACK)),
    Case("beside others", tier(1, 0) + CROWD, restore(), "1", with_meta(_FIRST, CROWD, _BACK)),
    Case("the first of two", tier(2, 0), restore(), "1", with_meta(_FIRST, tier(2, 1))),
    Case(
        "the second of two",
        with_meta(_FIRST, tier(2, 1)),
        restore(_PLAIN, first=1),
        "1",
        with_meta(_FIRST, _PLACE, _BACK),
    ),
    Case("both", tier(2, 0), restore(_ROW, _PLAIN), "11", with_meta(_FIRST, _PLACE, _BACK)),
    Case(
        "with a priority",
        tier(1, 0),
        restore(_ROW._replace(attributes=b"priority=1")),
        "1",
        with_meta(_FIRST, _BACK, World(meta={"priority_step": 60_000})).but(attributes={"a": "priority=1"}),
    ),
    Case("twice in a call", tier(2, 0), restore(_ROW, _ROW), "10", with_meta(_FIRST, _BACK)),
    Case("not the next of its file", tier(5, 3), restore(first=2), "@3", tier(5, 3)),
    Case("of no file", World(meta={"schema": 8}), restore(), "@", World(meta={"schema": 8})),
    Case("a message has its id", with_meta(PENDING, tier(1, 0)), restore(), "0", with_meta(PENDING, _BACK)),
    Case("one is being processed", with_meta(LEASED, tier(1, 0)), restore(), "0", with_meta(LEASED, _BACK)),
    Case(
        "its id was settled",
        with_meta(tier(1, 0), remembering(10, a=-5)),
        restore(),
        "5",
        with_meta(_BACK, remembering(10, a=-5)),
    ),
    Case(
        "its id is held",
        with_meta(tier(1, 0), reserved(a=5.5)),
        restore(),
        "5",
        with_meta(_BACK, reserved(a=5.5)),
    ),
    Case("cancelled", with_meta(tier(1, 0), _changed("- 5")), restore(), "6", with_meta(_BACK, _changed("- 5"))),
    Case(
        "rescheduled",
        with_meta(tier(1, 0), _changed(f"{NOW + 9} 5")),
        restore(),
        "1",
        with_meta(_FIRST.but(pending={"a": 9}), _BACK),
    ),
    Case(
        "rescheduled, and sent again",
        with_meta(PENDING, tier(1, 0), _changed(f"{NOW + 9} 5")),
        restore(),
        "0",
        with_meta(PENDING, _BACK),
    ),
    Case(
        "what another program has noted",
        with_meta(tier(1, 0), _changed("9" * 30 + " 5")),
        restore(),
        "1",
        with_meta(_FIRST, _BACK, _changed("9" * 30 + " 5")),
    ),
    Case(
        "another was cancelled",
        with_meta(tier(1, 0), World(cold_changes={"b": "- 5"})),
        restore(),
        "1",
        with_meta(_FIRST, _BACK, World(cold_changes={"b": "- 5"})),
    ),
    Case(
        "early: only what was rescheduled",
        with_meta(tier(2, 0), _changed(f"{NOW + 9} 5")),
        restore(_ROW, _PLAIN, file=""),
        "1-",
        with_meta(_FIRST.but(pending={"a": 9}), tier(2, 0), _changed(f"- {NOW} done")),
    ),
    Case(
        "early: cancelled",
        with_meta(tier(1, 0), _changed("- 5")),
        restore(file=""),
        "-",
        with_meta(tier(1, 0), _changed("- 5")),
    ),
    Case(
        "early: a message has its id",
        with_meta(PENDING, tier(1, 0), _changed(f"{NOW + 9} 5")),
        restore(file=""),
        "0",
        with_meta(PENDING, tier(1, 0), _changed(f"- {NOW} done")),
    ),
    Case(
        "brought back early",
        with_meta(PENDING, tier(2, 0), _changed("- 5 done")),
        restore(_ROW, _PLAIN),
        "-1",
        with_meta(PENDING, _PLACE, _BACK, _changed("- 5 done")),
    ),
]
CASES += logged(
    CASES,
    {
        "both": ["restored 0; ids a b; dues 60000 70000"],
        "rescheduled": ["restored 0; ids a; dues 60000", "rescheduled 0; ids a; dues 9"],
        "cancelled": ["cold_dropped 0; ids a; reasons withdrawn"],
        "twice in a call": ["restored 0; ids a; dues 60000", "cold_dropped 0; ids a; reasons exists"],
        "its id is held": ["cold_dropped 0; ids a; reasons settled"],
        "not the next of its file": [],
        "early: only what was rescheduled": ["restored 0; ids a; dues 60000", "rescheduled 0; ids a; dues 9"],
        "early: a message has its id": ["cold_dropped 0; ids a; reasons exists"],
        "brought back early": ["restored 0; ids b; dues 70000"],
    },
)
