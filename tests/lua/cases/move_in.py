"""`move_in`: a batch of another partition is stored once, each message as it waited there."""

from __future__ import annotations

from typing import Any

from delayq.broker.partition_calls import move_in_call
from delayq.broker.requests import ScriptCall
from tests.lua.cases.moving import SOURCE, arrived, message, packed, record
from tests.lua.cases.states import AFTER, CROWD, GONE, KEPT, KEY, LEASED, PENDING, RESCHEDULED, remembering, with_meta
from tests.support.scripts import NOW, Case, Kept, T, World, calls

_FIRST = World(wake=1)
"""A consumer is woken for what is due before all else."""
_TOKEN = {"token": "T-7"}
_RESULT = f"nothing 1 {NOW - 900} {NOW - 800} {T - 90} 0 0\n"
_KEPT = World(completed={"a": 500}, results={"a": Kept("nothing", 1, -900, -800, "T-90", "")})
_HELD = packed("reserved", "a", NOW - 100)


def into(*batch: str, number: int = T) -> ScriptCall[str]:
    return move_in_call(calls, SOURCE, number, "".join(batch).encode("latin-1"))


def _stored(world: World, *, wakes: bool = True, **meta: Any) -> World:
    """Return a world with attributes as a queue that has some."""
    return with_meta(world, World(meta={"schema": 2} | meta)) + arrived() + (_FIRST if wakes else World())


_WAITING = RESCHEDULED.but(meta={}, deliveries={"a": "pending -5 2 T-9 T-7 w"}, pending={"a": -5})
_BACKOFF = RESCHEDULED.but(
    pending={}, unack={"a": 500}, deliveries={"a": "backoff -5 2 T-9 T-7 w"}, meta={"backoffs": 1}
)
_GARBAGE = RESCHEDULED.but(
    pending={}, garbage={"a"}, deliveries={"a": "garbage -5 2 T-9 T-7 w"}, retries={"a": 0}, meta={}
)
_TWO = PENDING + World(pending={"b": 70_000}, messages={"b": "B"})
_GROUP_TEXT = f"collect=9 gathers={T}:3:2:2:5:{NOW}:{NOW + 500}:1000"
_GROUP = World(
    pending={"a": 500}, messages={"a": ""}, attributes={"a": _GROUP_TEXT}, gathered={"a 3": ",1", "a 4": ",2"}
)
_GATHERED = {f"a\n{T}\n3": ",1", f"a\n{T}\n4": ",2"}
_PLAIN = message(text="", headers="", left="")
_IS_PLAIN = World(pending={"a": 60_000}, messages={"a": "A"})

CASES = [
    Case("pending", CROWD, into(message()), "11", _stored(CROWD + PENDING)),
    Case("plain", World(), into(_PLAIN), "11", _IS_PLAIN + arrived() + _FIRST),
    Case(
        "due, after attempts",
        CROWD,
        into(message(at=NOW - 5, record=record("pending"), error="oops")),
        "11",
        _stored(CROWD + _WAITING, **_TOKEN),
    ),
    Case(
        "in backoff",
        CROWD,
        into(message(at=NOW + 500, record=record("backoff"), error="oops")),
        "11",
        _stored(CROWD + _BACKOFF, **_TOKEN),
    ),
    Case(
        "in backoff behind another",
        World(unack={"x": 5}),
        into(message(at=NOW + 500, record=record("backoff"), error="oops")),
        "11",
        _stored(World(unack={"x": 5}) + _BACKOFF, wakes=False, **_TOKEN),
    ),
    Case(
        "without retries",
        CROWD,
        into(message(at=NOW - 5, record=record("garbage"), error="oops", left="0")),
        "11",
        _stored(CROWD + _GARBAGE, wakes=False, **_TOKEN),
    ),
    Case(
        "a higher token stays",
        GONE,
        into(message(at=NOW - 5, record=record("pending"), error="oops")),
        "11",
        _stored(with_meta(_WAITING, GONE)),
    ),
    Case(
        "behind another",
        World(pending={"x": 500}),
        into(message()),
        "11",
        _stored(World(pending={"x": 500}) + PENDING, wakes=False),
    ),
    Case(
        "two",
        World(),
        into(message(), message("b", NOW + 70_000, left="", payload="B", headers="", text="")),
        "111",
        _stored(_TWO),
    ),
    Case("none", World(), into(), "1", arrived()),
    Case("it lives here", LEASED, into(message(payload="old")), "10", LEASED + arrived()),
    Case("it has arrived", arrived(), into(message()), "2", arrived()),
    Case("a later one has arrived", arrived(T + 1), into(message()), "2", arrived(T + 1)),
    Case("an earlier one has arrived", arrived(T - 1), into(_PLAIN), "11", _IS_PLAIN + arrived() + _FIRST),
    Case(
        "with a priority",
        World(),
        into(message(text="priority=1")),
        "11",
        _stored(PENDING.but(attributes={"a": "priority=1"}), priority_step=60_000),
    ),
    Case(
        "with hours",
        World(),
        into(message(text="hours=MON-FRI_09:00-17:00")),
        "11",
        _stored(PENDING.but(attributes={"a": "hours=MON-FRI_09:00-17:00"}), schema=6),
    ),
    Case(
        "with a successor",
        World(),
        into(message(text="", after=f"{NOW + 7000} 3 2 6\nhnname=nnew")),
        "11",
        _stored(PENDING.but(attributes={}) + World(successors=AFTER.successors)),
    ),
    Case(
        "with a successor that has a priority",
        World(),
        into(message(text="", after=f"{NOW + 7000} 3 2 10\nhnpriority=1new")),
        "11",
        _stored(
            PENDING.but(attributes={})
            + World(successors={"a": AFTER.successors["a"]._replace(attributes="priority=1")}),
            priority_step=60_000,
        ),
    ),
    Case(
        "with the place of its key",
        KEPT.but(running={}, gates={}),
        into(message(at=NOW + 500, record=record("backoff"), error="oops", place=str(KEY + 1))),
        "11",
        with_meta(_BACKOFF, KEPT.but(gates={}), World(meta=_TOKEN)) + arrived() + _FIRST,
    ),
    Case("with a place, without limits", World(), into(message(place=str(KEY + 1))), "11", _stored(PENDING)),
    Case(
        "a group",
        World(),
        into(message(at=NOW + 500, left="", payload="", headers="", text=_GROUP_TEXT, entries=_GATHERED)),
        "11",
        _stored(_GROUP, schema=6, priority_step=60_000),
    ),
    Case("a reserved id", remembering(1000), into(_HELD), "1", remembering(1000, a=-100) + arrived()),
    Case("a reserved id that is over", remembering(50), into(_HELD), "1", remembering(50) + arrived()),
    Case("a reserved id without a window", World(), into(_HELD), "1", arrived()),
    Case(
        "a reserved id that is held longer here",
        remembering(1000, a=-50),
        into(_HELD),
        "1",
        remembering(1000, a=-50) + arrived(),
    ),
    Case(
        "a reserved id that is held less long here",
        remembering(1000, a=-150),
        into(_HELD),
        "1",
        remembering(1000, a=-100) + arrived(),
    ),
    Case(
        "an id with an end of its own",
        World(),
        into(packed("reserved", "a", f"{NOW + 100}.5")),
        "1",
        World(done={"a": 100.5}, meta={"unique": 1}) + arrived(),
    ),
    Case(
        "an id with an end of its own, and one without",
        remembering(1000),
        into(packed("reserved", "a", f"{NOW + 2000}.5"), packed("reserved", "b", NOW - 100)),
        "1",
        World(done={"a": 2000.5, "b": -100}, meta={"dedupe": "1000 100", "unique": 1}) + arrived(),
    ),
    Case(
        "a group, and another",
        World(),
        into(
            message(at=NOW + 500, left="", payload="", headers="", text=_GROUP_TEXT, entries=_GATHERED),
            message("b", NOW + 70_000, left="", payload="B", headers="", text=""),
        ),
        "111",
        _stored(_GROUP + World(pending={"b": 70_000}, messages={"b": "B"}), schema=6, priority_step=60_000),
    ),
    Case(
        "without a place, under a template",
        KEPT.but(running={}, gates={}),
        into(message()),
        "11",
        with_meta(PENDING, KEPT.but(running={}, gates={})) + arrived() + _FIRST,
    ),
    Case(
        "two with tokens",
        World(),
        into(
            message("b", NOW - 5, left="", payload="B", headers="", text="", record=record("pending")),
            message("c", NOW - 5, left="", payload="C", headers="", text="", record=f"pending {NOW - 5} 2 T-9 T-8 w"),
        ),
        "111",
        World(
            pending={"b": -5, "c": -5},
            messages={"b": "B", "c": "C"},
            deliveries={"b": "pending -5 2 T-9 T-7 w", "c": "pending -5 2 T-9 T-8 w"},
            meta=_TOKEN,
        )
        + arrived()
        + _FIRST,
    ),
    Case("a result", World(), into(packed("result", "a", NOW + 500, _RESULT)), "1", _stored(_KEPT, wakes=False)),
    Case(
        "a result, and a later one is here", _KEPT, into(packed("result", "a", NOW + 900, "x")), "1", _KEPT + arrived()
    ),
]
