"""`schedule_remove`: active and paused schedules, unknown ones, and what they have fired."""

from __future__ import annotations

from tests.lua.cases.states import PENDING
from tests.support.scripts import Case, World, calls

ACTIVE = World(schedules={"s": 60_000}, schedule_specs={"s": "{}"}, schedule_states={"s": "T-9 3 -60000 0"})
PAUSED = World(schedule_specs={"p": "{}"}, schedule_states={"p": "T-9 3 -60000 1"})
LABELLED = ACTIVE.but(schedule_specs={"s": '{"labels":["a","b"]}\n'}, schedule_labels={"a s", "b s", "a p"})

CASES = [
    Case("active", ACTIVE, calls.schedule_remove(["s"]), "1", World()),
    Case("paused", PAUSED, calls.schedule_remove(["p"]), "1", World()),
    Case("unknown", ACTIVE, calls.schedule_remove(["x"]), "0", ACTIVE),
    Case("none at all", World(), calls.schedule_remove(["s"]), "0", World()),
    Case("several, one of them twice", ACTIVE + PAUSED, calls.schedule_remove(["s", "x", "s", "p"]), "1001", World()),
    Case("others stay", ACTIVE + PAUSED, calls.schedule_remove(["p"]), "1", ACTIVE),
    Case("messages stay", ACTIVE + PENDING, calls.schedule_remove(["s"]), "1", PENDING),
    Case("half of one is there", ACTIVE.but(schedule_specs={}), calls.schedule_remove(["s"]), "1", World()),
    Case("the other half is there", ACTIVE.but(schedule_states={}), calls.schedule_remove(["s"]), "1", World()),
    Case("with labels", LABELLED, calls.schedule_remove(["s"]), "1", World(schedule_labels={"a p"})),
    Case("with labels, twice", LABELLED, calls.schedule_remove(["s", "s"]), "10", World(schedule_labels={"a p"})),
    Case("only its time is there", World(schedules={"s": 5}), calls.schedule_remove(["s"]), "0", World()),
]
