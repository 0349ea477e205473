"""`reschedule`: a new due time for what nobody is processing."""

from __future__ import annotations

from delayq.broker.requests import ScriptCall
from tests.lua.cases.states import (
    CROWD,
    DEAD,
    LEASED,
    LEFTOVERS,
    LIMITED,
    PENDING,
    READY,
    RESCHEDULED,
    STATES,
    logged,
    with_meta,
)
from tests.support.scripts import NOW, Case, World, calls


def reschedule(due: str | int = 70_000) -> ScriptCall[str]:
    return calls.reschedule([("a", due)])


def _in_every_state() -> list[Case]:
    replies = {"leased": "2", "garbage": "3", "dead": "3", "gone": "0"}
    again = RESCHEDULED.but(
        pending={"a": 70_000},
        deliveries={"a": "pending 70000 2 T-9 T-7 w"},
        meta={"token": "T-3", "rescheduled": 1},
        wake=1,
    )
    fresh = PENDING.but(pending={"a": 70_000}, meta={"rescheduled": 1}, wake=1)
    moved = {
        "pending": fresh,
        "rescheduled": again,
        "ready": fresh.but(
            ready=["a"],
            deliveries={"a": "pending 70000 0 0 0 -"},
            meta={"rescheduled": 1, "stale_ready": 1},
        ),
        "released": again.but(ready=["a"], meta=again.meta | {"stale_ready": 1}),
        "backoff": again,
        "retry": again.but(retry=["a"], meta=again.meta | {"stale_retry": 1}),
        "ranked": again.but(attributes={"a": "name=a priority=1"}, meta=again.meta | {"priority_step": 60_000}),
        "throttled": with_meta(again, LIMITED),
    }
    return [
        Case(name, world + CROWD, reschedule(), replies.get(name, "1"), moved.get(name, world) + CROWD)
        for name, world in STATES.items()
    ]


_PENDING = PENDING.but(meta={"rescheduled": 4})
_MOVED = PENDING.but(meta={"rescheduled": 5})
_MANY = World(
    pending={"a": 50, "b": 60},
    ready=["c"],
    unack={"d": 5, "e": 6},
    messages=dict.fromkeys("abcde", "m"),
    retries=dict.fromkeys("abcde", 1),
    deliveries={
        "b": "pending 60 1 T-9 T-9 w",
        "c": "ready -5 0 0 0 -",
        "d": "backoff -5 1 T-8 T-8 w",
        "e": "leased -5 1 T-7 T-7 w",
    },
    meta={"backoffs": 1},
)

CASES = [
    *_in_every_state(),
    Case("to an absolute time", _PENDING, reschedule(f"@{NOW + 7}"), "1", _MOVED.but(pending={"a": 7}, wake=1)),
    Case(
        "to an absolute time in the past",
        _PENDING,
        reschedule(f"@{NOW - 7}"),
        "1",
        _MOVED.but(pending={"a": -7}, wake=1),
    ),
    Case("to now", _PENDING, reschedule(0), "1", _MOVED.but(pending={"a": 0}, wake=1)),
    Case(
        "to an absolute time, with a record",
        RESCHEDULED,
        reschedule(f"@{NOW + 7}"),
        "1",
        RESCHEDULED.but(
            pending={"a": 7},
            deliveries={"a": "pending 7 2 T-9 T-7 w"},
            meta={"token": "T-3", "rescheduled": 1},
            wake=1,
        ),
    ),
    Case(
        "behind others: nobody is woken",
        _PENDING + CROWD,
        reschedule(90_001),
        "1",
        (_MOVED + CROWD).but(pending={"a": 90_001, "p": 90_000}),
    ),
    Case(
        "a wake-up that is not taken yet is enough",
        _PENDING.but(wake=1),
        reschedule(1),
        "1",
        _MOVED.but(pending={"a": 1}, wake=1),
    ),
    Case(
        "alive, and dead before",
        PENDING + DEAD,
        reschedule(),
        "1",
        (PENDING + DEAD).but(pending={"a": 70_000}, meta={"token": "T-3", "rescheduled": 1}, wake=1),
    ),
    Case("running, and dead before", LEASED + DEAD, reschedule(), "2", LEASED + DEAD),
    Case("not a message, but remains of one", LEFTOVERS + CROWD, reschedule(), "0", LEFTOVERS + CROWD),
    Case(
        "twice in a batch: the first time counts",
        READY,
        calls.reschedule([("a", 10), ("a", 20)]),
        "10",
        READY.but(
            pending={"a": 10},
            deliveries={"a": "pending 10 0 0 0 -"},
            meta={"rescheduled": 1, "stale_ready": 1},
            wake=1,
        ),
    ),
    Case(
        "several",
        _MANY,
        calls.reschedule([("a", 500), ("b", 400), ("x", 1), ("c", 300), ("d", f"@{NOW + 200}"), ("e", 1)]),
        "110112",
        _MANY.but(
            pending={"a": 500, "b": 400, "c": 300, "d": 200},
            unack={"e": 6},
            deliveries={
                "b": "pending 400 1 T-9 T-9 w",
                "c": "pending 300 0 0 0 -",
                "d": "pending 200 1 T-8 T-8 w",
                "e": "leased -5 1 T-7 T-7 w",
            },
            meta={"stale_ready": 1, "rescheduled": 4},
            wake=1,
        ),
    ),
]
_COLD = World(meta={"schema": 8, "cold": 3})
_NOTED = _COLD.but(cold_changes={"a": f"{NOW + 9} {NOW}"})
CASES += [
    Case("may be cold", _COLD + CROWD, calls.reschedule([("a", 9)]), "4", _NOTED + CROWD),
    Case("may be cold, to an absolute time", _COLD, calls.reschedule([("a", f"@{NOW + 9}")]), "4", _NOTED),
    Case(
        "may be cold, and was rescheduled",
        _COLD.but(cold_changes={"a": "5 5"}),
        calls.reschedule([("a", 9)]),
        "4",
        _NOTED,
    ),
    Case(
        "may be cold, and was cancelled",
        _COLD.but(cold_changes={"a": "- 5"}),
        calls.reschedule([("a", 9)]),
        "0",
        _COLD.but(cold_changes={"a": "- 5"}),
    ),
    Case("nothing is cold", World(meta={"schema": 8}), calls.reschedule([("a", 9)]), "0", World(meta={"schema": 8})),
    Case(
        "twice in a batch, and another may be cold",
        with_meta(READY, _COLD),
        calls.reschedule([("a", 10), ("a", 20)]),
        "10",
        READY.but(
            pending={"a": 10},
            deliveries={"a": "pending 10 0 0 0 -"},
            meta={"rescheduled": 1, "stale_ready": 1} | _COLD.meta,
            wake=1,
        ),
    ),
    Case(
        "dead, and another may be cold",
        with_meta(DEAD, _COLD),
        calls.reschedule([("a", 9)]),
        "3",
        with_meta(DEAD, _COLD),
    ),
]
CASES += logged(
    CASES,
    {
        "gone": [],
        "leased": [],
        "dead": [],
        "backoff": ["rescheduled 0; ids a; dues 70000"],
        "to an absolute time in the past": ["rescheduled 0; ids a; dues -7"],
        "to now": ["rescheduled 0; ids a; dues 0"],
        "not a message, but remains of one": [],
        "twice in a batch: the first time counts": ["rescheduled 0; ids a; dues 10"],
        "several": ["rescheduled 0; ids a b c d; dues 500 400 300 200"],
    },
)
