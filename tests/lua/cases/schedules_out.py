"""`schedules_out`: schedules leave a partition, each with its next occurrence and its state."""

from __future__ import annotations

from delayq.broker.requests import ScriptCall
from delayq.broker.move_calls import SentOff, schedules_out_call
from tests.lua.cases.moving import ON_ITS_WAY, TARGET, packed, sent_off
from tests.lua.cases.schedule_remove import ACTIVE, LABELLED, PAUSED
from tests.lua.cases.states import PENDING
from tests.support.scripts import NOW, Case, T, World, calls

IS_ACTIVE = packed("s", NOW + 60_000, "{}", f"{T - 9} 3 {NOW - 60_000} 0")
IS_PAUSED = packed("p", "", "{}", f"{T - 9} 3 {NOW - 60_000} 1")


def out(*names: str) -> ScriptCall[SentOff]:
    return schedules_out_call(calls, TARGET, names)


CASES = [
    Case("active", ACTIVE + PENDING, out("s"), ON_ITS_WAY, PENDING + sent_off(IS_ACTIVE, "schedules")),
    Case("paused", PAUSED, out("p"), ON_ITS_WAY, sent_off(IS_PAUSED, "schedules")),
    Case("several, one of them twice", ACTIVE + PAUSED, out("s", "x", "s", "p"), SentOff("1001", [T]),
         sent_off(IS_ACTIVE + IS_PAUSED, "schedules")),
    Case("unknown", ACTIVE, out("x"), SentOff("0", []), ACTIVE),
    Case("with labels", LABELLED, out("s"), ON_ITS_WAY, World(schedule_labels={"a p"}) + sent_off(
        packed("s", NOW + 60_000, '{"labels":["a","b"]}\n', f"{T - 9} 3 {NOW - 60_000} 0"), "schedules")),
    Case("its definition is gone", ACTIVE.but(schedule_specs={}), out("s"), SentOff("0", []), ACTIVE.but(schedule_specs={})),
]
