"""`schedules_in`: a batch of another partition's schedules is stored once."""

from __future__ import annotations

from delayq.broker.partition_calls import schedules_in_call
from delayq.broker.requests import ScriptCall
from tests.lua.cases.moving import SOURCE, arrived, packed
from tests.lua.cases.schedule_remove import ACTIVE, LABELLED, PAUSED
from tests.lua.cases.schedules_out import IS_ACTIVE, IS_PAUSED
from tests.support.scripts import NOW, Case, T, World, calls

_ARRIVED = arrived(kind="schedules")


def into(*batch: str) -> ScriptCall[str]:
    return schedules_in_call(calls, SOURCE, T, "".join(batch).encode())


CASES = [
    Case("active", World(), into(IS_ACTIVE), "11", ACTIVE + _ARRIVED + World(wake=1)),
    Case(
        "active, behind another",
        World(schedules={"x": 5}),
        into(IS_ACTIVE),
        "11",
        ACTIVE + World(schedules={"x": 5}) + _ARRIVED,
    ),
    Case("paused", World(), into(IS_PAUSED), "11", PAUSED + _ARRIVED),
    Case("two", World(), into(IS_ACTIVE, IS_PAUSED), "111", ACTIVE + PAUSED + _ARRIVED + World(wake=1)),
    Case(
        "without a state", World(), into(packed("s", "", "{}", "")), "11", World(schedule_specs={"s": "{}"}) + _ARRIVED
    ),
    Case(
        "with labels",
        World(schedule_labels={"a p"}),
        into(packed("s", NOW + 60_000, '{"labels":["a","b"]}\n', f"{T - 9} 3 {NOW - 60_000} 0")),
        "11",
        LABELLED + _ARRIVED + World(wake=1),
    ),
    Case("its name is here", PAUSED, into(packed("p", NOW, "{}", "x")), "10", PAUSED + _ARRIVED),
    Case("it has arrived", _ARRIVED, into(IS_ACTIVE), "2", _ARRIVED),
    Case("a later one has arrived", arrived(T + 1, "schedules"), into(IS_ACTIVE), "2", arrived(T + 1, "schedules")),
    Case("none", World(), into(), "1", _ARRIVED),
]
