"""`extend`: a longer lease for those that hold it."""

from __future__ import annotations

from delayq.broker.requests import Receipt
from tests.lua.cases.states import CROWD, LEASED, STATES, STOPPING, logged
from tests.support.scripts import Case, T, World, calls

_HELD = World(
    unack={"a": 100, "b": 200, "c": 300},
    deliveries={"a": "leased -5 1 T-9 T-9 w", "b": "leased -5 1 T-8 T-8 w", "c": "leased -5 1 T-7 T-7 w"},
)

CASES = [
    *(
        Case(name, world + CROWD, calls.extend([Receipt("a", T - 7)], lease=45_000), "0", world + CROWD)
        for name, world in STATES.items()
        if name != "leased"
    ),
    Case(
        "leased under this token",
        LEASED + CROWD,
        calls.extend([Receipt("a", T - 7)], lease=45_000),
        "1",
        LEASED.but(unack={"a": 45_000}) + CROWD,
    ),
    *(
        Case(
            f"{what} that has started, of a consumer that reports it",
            LEASED.but(deliveries={"a": f"leased -5 2 T-9 T-7 w{mark}"}) + CROWD,
            calls.start([Receipt("a", T - 7)]),
            "1",
            LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w +"}) + CROWD,
        )
        for what, mark in [
            ("one claimed with others", " ?"),
            ("one claimed alone", " !"),
            ("one reported before", " +"),
        ]
    ),
    Case(
        "a renewal does not mean that the callback has started",
        LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w ?"}),
        calls.extend([Receipt("a", T - 7)], lease=45_000),
        "1",
        LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w ?"}, unack={"a": 45_000}),
    ),
    Case(
        "leased under a later token",
        LEASED + CROWD,
        calls.extend([Receipt("a", T - 9)], lease=45_000),
        "0",
        LEASED + CROWD,
    ),
    Case(
        "a lease that is over, but not yet moved",
        LEASED.but(unack={"a": -10}),
        calls.extend([Receipt("a", T - 7)], lease=45_000),
        "1",
        LEASED.but(unack={"a": 45_000}),
    ),
    Case(
        "several",
        _HELD,
        calls.extend([Receipt("a", T - 9), Receipt("b", T), Receipt("x", T), Receipt("c", T - 7)], lease=50),
        "1001",
        _HELD.but(unack={"a": 50, "b": 200, "c": 50}),
    ),
]
CASES += logged(CASES, {"leased under this token": []})
CASES += [
    Case(
        "asked to stop",
        STOPPING + CROWD,
        calls.extend([Receipt("a", T - 7)], lease=45_000),
        "2",
        STOPPING.but(unack={"a": 45_000}) + CROWD,
    ),
    Case("asked to stop before its start", STOPPING + CROWD, calls.start([Receipt("a", T - 7)]), "2", STOPPING + CROWD),
    Case("asked to stop, under a later token", STOPPING, calls.start([Receipt("a", T)]), "0", STOPPING),
]
