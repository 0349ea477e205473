"""`schedule_remove`: active and paused schedules, unknown ones, and what they have fired."""

from __future__ import annotations

from delayq.schedules.calls import schedule_remove_call
from tests.lua.cases.states import PENDING
from tests.support.scripts import Case, World, calls

ACTIVE = World(schedules={"s": 60_000}, schedule_specs={"s": "{}"}, schedule_states={"s": "T-9 3 -60000 0"})
PAUSED = World(schedule_specs={"p": "{}"}, schedule_states={"p": "T-9 3 -60000 1"})
LABELLED = ACTIVE.but(schedule_specs={"s": '{"labels":["a","b"]}\n'}, schedule_labels={"a s", "b s", "a p"})

CASES = [
    Case("active", ACTIVE, schedule_remove_call(calls, ["s"]), "1", World()),
    Case("paused", PAUSED, schedule_remove_call(calls, ["p"]), "1", World()),
    Case("unknown", ACTIVE, schedule_remove_call(calls, ["x"]), "0", ACTIVE),
    Case("none at all", World(), schedule_remove_call(calls, ["s"]), "0", World()),
    Case(
        "several, one of them twice",
        ACTIVE + PAUSED,
        schedule_remove_call(calls, ["s", "x", "s", "p"]),
        "1001",
        World(),
    ),
    Case("others stay", ACTIVE + PAUSED, schedule_remove_call(calls, ["p"]), "1", ACTIVE),
    Case("messages stay", ACTIVE + PENDING, schedule_remove_call(calls, ["s"]), "1", PENDING),
    Case("half of one is there", ACTIVE.but(schedule_specs={}), schedule_remove_call(calls, ["s"]), "1", World()),
    Case("the other half is there", ACTIVE.but(schedule_states={}), schedule_remove_call(calls, ["s"]), "1", World()),
    Case("with labels", LABELLED, schedule_remove_call(calls, ["s"]), "1", World(schedule_labels={"a p"})),
    Case("with labels, twice", LABELLED, schedule_remove_call(calls, ["s", "s"]), "10", World(schedule_labels={"a p"})),
    Case("only its time is there", World(schedules={"s": 5}), schedule_remove_call(calls, ["s"]), "0", World()),
]
