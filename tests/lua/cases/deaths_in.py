"""`deaths_in`: a batch of another partition's dead letter is stored once."""

from __future__ import annotations

from delayq.broker.partition_calls import deaths_in_call
from delayq.broker.requests import ScriptCall
from tests.lua.cases.deaths_out import ENTRY, STORED
from tests.lua.cases.moving import SOURCE, arrived, packed
from tests.lua.cases.states import CROWD, DEAD, with_meta
from tests.support.scripts import NOW, Case, T, World, calls

_PLAIN = f"2 1 {NOW - 500} {NOW - 100} 12 4 2\nno such useroopshaA"
_DEAD = DEAD.but(meta={"schema": 2})
_ARRIVED = arrived(kind="deaths")


def into(*cells: str | int) -> ScriptCall[str]:
    return deaths_in_call(calls, SOURCE, T, packed(*cells).encode())


def _with(text: str) -> str:
    return f"2 1 {NOW - 500} {NOW - 100} 12 4 2 {len(text)}\nno such useroopsha{text}A"


def _dead(text: str, **meta: int) -> World:
    kept = DEAD.dead_messages["a:T-7"]._replace(attributes=text)
    return DEAD.but(dead_messages={"a:T-7": kept}, meta=meta) + _ARRIVED


_OTHER = World(
    dead={"a:T-20": -200},
    dead_messages={"a:T-20": DEAD.dead_messages["a:T-7"]._replace(died=-200)},
    dead_ids={"a": "T-20"},
)
_LATER = World(dead={"a:T-2": -1}, dead_messages={"a:T-2": DEAD.dead_messages["a:T-7"]}, dead_ids={"a": "T-2"})

CASES = [
    Case("one", CROWD, into(ENTRY, NOW - 100, STORED), "1", CROWD + _DEAD + _ARRIVED),
    Case("without attributes", World(), into(ENTRY, NOW - 100, _PLAIN), "1", _dead("")),
    Case(
        "with a priority",
        World(),
        into(ENTRY, NOW - 100, _with("priority=1")),
        "1",
        _dead("priority=1", schema=2, priority_step=60_000),
    ),
    Case("with hours", World(), into(ENTRY, NOW - 100, _with("hours=MON")), "1", _dead("hours=MON", schema=6)),
    Case(
        "after another of its id",
        _OTHER,
        into(ENTRY, NOW - 100, STORED),
        "1",
        with_meta(_OTHER, _DEAD).but(dead_ids={"a": "T-20 T-7"}) + _ARRIVED,
    ),
    Case(
        "before another of its id",
        _LATER,
        into(ENTRY, NOW - 100, STORED),
        "1",
        with_meta(_LATER, _DEAD).but(dead_ids={"a": "T-7 T-2"}) + _ARRIVED,
    ),
    Case("it has arrived", _ARRIVED, into(ENTRY, NOW - 100, STORED), "2", _ARRIVED),
    Case(
        "a later one has arrived",
        arrived(T + 1, "deaths"),
        into(ENTRY, NOW - 100, STORED),
        "2",
        arrived(T + 1, "deaths"),
    ),
    Case(
        "two of its id",
        World(),
        into(ENTRY, NOW - 100, STORED, f"a:{T - 20}", NOW - 200, STORED.replace(str(NOW - 100), str(NOW - 200))),
        "1",
        with_meta(_DEAD, World(dead=_OTHER.dead, dead_messages=_OTHER.dead_messages)).but(dead_ids={"a": "T-20 T-7"})
        + _ARRIVED,
    ),
    Case("none", World(), into(), "1", _ARRIVED),
]
