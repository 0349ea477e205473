"""`release`: back to the head of ready, in order, or after a delay; uncharged."""

from __future__ import annotations

from delayq.broker.requests import Release
from tests.lua.cases.states import CROWD, LEASED, PLACED, RELEASED, STATES, STOPPED, STOPPING, logged, with_meta
from tests.support.scripts import NOW, Case, T, World, calls

_BACK = RELEASED.but(deliveries={"a": "ready -5 1 T-9 T-7 w"}, meta={"token": "T-3", "released": 1}, wake=1)
_HELD = World(
    ready=["y", "z"],
    unack={"a": 500, "b": 500, "c": 500, "d": 500},
    retries=dict.fromkeys("abcd", 3),
    deliveries={
        "a": "leased -5 1 T-9 T-9 w",
        "b": "leased -4 1 T-8 T-8 w",
        "c": "leased -3 3 T-7 T-6 w",
        "d": "leased -2 1 T-5 T-5 w",
    },
    meta={"released": 2},
)

_PRIOR = LEASED.but(attributes={"a": "name=a priority=1"}, meta={"token": "T-3", "priority_step": 60_000})

CASES = [
    *(
        Case(name, world + CROWD, calls.release([Release("a", T - 7)]), "0", world + CROWD)
        for name, world in STATES.items()
        if name != "leased"
    ),
    Case(
        "with a priority, back among what is ranked",
        _PRIOR.but(deliveries={"a": "leased -5 2 T-9 T-7 w ?"}) + CROWD,
        calls.release([Release("a", T - 7)]),
        "1",
        _PRIOR.but(
            unack={},
            ranked={"a": -60_005},
            deliveries={"a": "ranked -5 1 T-9 T-7 w ?"},
            meta={"token": "T-3", "released": 1, "priority_step": 60_000},
            wake=1,
        )
        + CROWD,
    ),
    Case(
        "after a delay, behind others: nobody is woken",
        LEASED + CROWD,
        calls.release([Release("a", T - 7, 100_000)]),
        "1",
        LEASED.but(
            unack={"a": 100_000},
            deliveries={"a": "backoff -5 1 T-9 T-7 w"},
            meta={"token": "T-3", "released": 1, "backoffs": 1},
        )
        + CROWD,
    ),
    Case(
        "with a priority from now on, in a queue without a step",
        LEASED,
        calls.release([Release("a", T - 7, 0, b"priority=2")]),
        "1",
        _BACK.but(attributes={"a": "priority=2"}, meta={"token": "T-3", "released": 1, "schema": 2}),
    ),
    Case(
        "several, each with the priority that it has from now on",
        World(
            unack=dict.fromkeys("abc", 90),
            deliveries=dict.fromkeys("abc", "leased -5 1 T-7 T-7 w"),
            attributes={"a": "priority=1", "b": "priority=2", "c": "priority=3"},
            meta={"priority_step": 60_000},
        ),
        calls.release([Release("a", T - 7), Release("b", T - 7, 0, b"priority=5"), Release("c", T - 7)]),
        "111",
        World(
            ranked={"a": -60_005, "b": -300_005, "c": -180_005},
            deliveries=dict.fromkeys("abc", "ranked -5 0 T-7 T-7 w"),
            attributes={"a": "priority=1", "b": "priority=5", "c": "priority=3"},
            meta={"priority_step": 60_000, "released": 3, "schema": 2},
            wake=1,
        ),
    ),
    Case(
        "with a priority from now on",
        _PRIOR.but(attributes={"a": "name=a"}),
        calls.release([Release("a", T - 7, 0, b"name=a priority=2")]),
        "1",
        _PRIOR.but(
            unack={},
            ranked={"a": -120_005},
            attributes={"a": "name=a priority=2"},
            deliveries={"a": "ranked -5 1 T-9 T-7 w"},
            meta={"token": "T-3", "released": 1, "priority_step": 60_000, "schema": 2},
            wake=1,
        ),
    ),
    Case(
        "with a priority, after a delay",
        _PRIOR,
        calls.release([Release("a", T - 7, 1, b"name=a priority=1 snoozes=1")]),
        "1",
        _PRIOR.but(
            unack={"a": 1},
            attributes={"a": "name=a priority=1 snoozes=1"},
            deliveries={"a": "backoff -5 1 T-9 T-7 w"},
            meta={"token": "T-3", "released": 1, "backoffs": 1, "priority_step": 60_000, "schema": 2},
            wake=1,
        ),
    ),
    Case("leased under this token", LEASED + CROWD, calls.release([Release("a", T - 7)]), "1", _BACK + CROWD),
    Case(
        "asked for by another process",
        LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w -"}) + CROWD,
        calls.release([Release("a", T - 7)]),
        "1",
        LEASED.but(
            unack={"a": 1000},
            deliveries={"a": "backoff -5 1 T-9 T-7 w"},
            meta={"token": "T-3", "released": 1, "backoffs": 1},
            wake=1,
        )
        + CROWD,
    ),
    Case(
        "after a delay",
        LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w +"}) + CROWD,
        calls.release([Release("a", T - 7, 60_000)]),
        "1",
        LEASED.but(
            unack={"a": 60_000},
            deliveries={"a": "backoff -5 1 T-9 T-7 w"},
            meta={"token": "T-3", "released": 1, "backoffs": 1},
            wake=1,
        )
        + CROWD,
    ),
    Case(
        "asked for by another process, and after a delay",
        LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w -"}) + CROWD,
        calls.release([Release("a", T - 7, 50)]),
        "1",
        LEASED.but(
            unack={"a": 1000},
            deliveries={"a": "backoff -5 1 T-9 T-7 w"},
            meta={"token": "T-3", "released": 1, "backoffs": 1},
            wake=1,
        )
        + CROWD,
    ),
    Case(
        "after a delay, before all others that wait",
        _HELD,
        calls.release([Release("a", T - 9, 1), Release("b", T - 8)]),
        "11",
        _HELD.but(
            ready=["b", "y", "z"],
            unack={"a": 1, "c": 500, "d": 500},
            deliveries=_HELD.deliveries | {"a": "backoff -5 0 T-9 T-9 w", "b": "ready -4 0 T-8 T-8 w"},
            meta={"released": 4, "backoffs": 1},
            wake=1,
        ),
    ),
    Case(
        "asked for among others",
        _HELD.but(
            deliveries=_HELD.deliveries | {"b": "leased -4 1 T-8 T-8 w -", "c": "leased -3 3 T-7 T-6 w ?"},
            meta={"released": 2, "backoffs": 4},
        ),
        calls.release([Release("a", T - 9), Release("b", T - 8), Release("c", T - 6)]),
        "111",
        _HELD.but(
            ready=["a", "c", "y", "z"],
            unack={"b": 1000, "d": 500},
            deliveries={
                "a": "ready -5 0 T-9 T-9 w",
                "b": "backoff -4 0 T-8 T-8 w",
                "c": "ready -3 2 T-7 T-6 w ?",
                "d": "leased -2 1 T-5 T-5 w",
            },
            meta={"released": 5, "backoffs": 5},
            wake=1,
        ),
    ),
    Case(
        "with other attributes, of some",
        _HELD.but(attributes={"a": "name=n", "c": "name=n snoozes=1"}),
        calls.release(
            [
                Release("a", T - 9, 50, b"name=n snoozes=1"),
                Release("b", T - 8, 0, b"snoozes=1"),
                Release("c", T - 6),
                Release("d", T - 6, 0, b"snoozes=1"),
            ]
        ),
        "1110",
        World(
            ready=["b", "c", "y", "z"],
            unack={"a": 50, "d": 500},
            retries=dict.fromkeys("abcd", 3),
            deliveries={
                "a": "backoff -5 0 T-9 T-9 w",
                "b": "ready -4 0 T-8 T-8 w",
                "c": "ready -3 2 T-7 T-6 w",
                "d": "leased -2 1 T-5 T-5 w",
            },
            attributes={"a": "name=n snoozes=1", "b": "snoozes=1", "c": "name=n snoozes=1"},
            meta={"released": 5, "backoffs": 1, "schema": 2},
            wake=1,
        ),
    ),
    Case("leased under a later token", LEASED + CROWD, calls.release([Release("a", T - 9)]), "0", LEASED + CROWD),
    Case(
        "a wake-up that is not taken yet is enough",
        LEASED.but(wake=1),
        calls.release([Release("a", T - 7)]),
        "1",
        _BACK,
    ),
    Case(
        "twice in a batch is released once",
        LEASED,
        calls.release([Release("a", T - 7), Release("a", T - 7)]),
        "10",
        _BACK,
    ),
    Case(
        "several keep their order, before those that wait",
        _HELD,
        calls.release(
            [Release("a", T - 9), Release("x", T), Release("b", T - 8), Release("d", T), Release("c", T - 6)]
        ),
        "10101",
        _HELD.but(
            ready=["a", "b", "c", "y", "z"],
            unack={"d": 500},
            deliveries={
                "a": "ready -5 0 T-9 T-9 w",
                "b": "ready -4 0 T-8 T-8 w",
                "c": "ready -3 2 T-7 T-6 w",
                "d": "leased -2 1 T-5 T-5 w",
            },
            meta={"released": 5},
            wake=1,
        ),
    ),
]
CASES += logged(
    CASES,
    {
        "gone": [],
        "backoff": [],
        "leased under this token": ["released 0; ids a; tokens T-7"],
        "leased under a later token": [],
        "after a delay": ["released 0; ids a; tokens T-7"],
        "asked for by another process, and after a delay": ["released 0; ids a; tokens T-7"],
        "after a delay, before all others that wait": ["released 0; ids b a; tokens T-8 T-9"],
        "asked for by another process": ["released 0; ids a; tokens T-7"],
        "asked for among others": ["released 0; ids c b a; tokens T-6 T-8 T-9"],
        "twice in a batch is released once": ["released 0; ids a; tokens T-7"],
        "several keep their order, before those that wait": ["released 0; ids c b a; tokens T-6 T-8 T-9"],
    },
)
_BOTH = STOPPING + World(unack={"b": 600}, retries={"b": 1}, deliveries={"b": "leased -6 1 T-8 T-8 w"})
CASES += [
    *(
        Case(
            f"asked to stop, {how}",
            STOPPING + CROWD,
            calls.release([Release("a", T - 7, delay, b"snoozes=1")]),
            "2",
            STOPPED + CROWD,
        )
        for how, delay in [("at once", 0), ("after a delay", 500)]
    ),
    Case("asked to stop, later token", STOPPING + CROWD, calls.release([Release("a", T)]), "0", STOPPING + CROWD),
    Case("asked to stop, twice in a batch", STOPPING, calls.release([Release("a", T - 7)] * 2), "20", STOPPED),
    Case(
        "asked to stop, beside one that is not",
        _BOTH,
        calls.release([Release("a", T - 7), Release("b", T - 8)]),
        "21",
        STOPPED
        + World(
            ready=["b"],
            retries={"b": 1},
            deliveries={"b": "ready -6 0 T-8 T-8 w"},
            meta={"released": 1, "token": "T-3"},
            wake=1,
        ),
    ),
]
CASES += logged(CASES, {"asked to stop, at once": []})
CASES += [
    Case(
        "its place is free, and the next of the line may start",
        with_meta(LEASED, PLACED),
        calls.release([Release("a", T - 7)]),
        "1",
        with_meta(_BACK, PLACED).but(running={}, gates={1: -NOW}),
    ),
    Case(
        "asked to stop, and its place is free",
        with_meta(STOPPING, PLACED),
        calls.release([Release("a", T - 7)]),
        "2",
        with_meta(STOPPED, PLACED).but(running={}, gates={1: -NOW}, wake=1),
    ),
]
