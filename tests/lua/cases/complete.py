"""`complete`: the first receipt of this life wins, late or not, and its result is kept."""

from __future__ import annotations

from delayq.broker.results import Completed
from tests.lua.cases.states import (
    AFTER,
    CROWD,
    FOLLOWED,
    LEASED,
    LIMITED,
    PLACED,
    READY,
    RETRY,
    STATES,
    logged,
    remembering,
    reserved,
    with_meta,
)
from tests.support.scripts import NOW, Case, Kept, T, World, calls


def _by(token: int, id: str = "a", ending: str = "returned", note: str = "", result: bytes = b"7") -> Completed:
    return Completed(id, token, "60000", ending, b"name=a retention=60000", note, result)


def _done(token: str = "T-7", **changes: object) -> World:
    kept = Kept("returned", 2, -5, 0, token, "7", "", "name=a retention=60000")
    total = {"discarded": 1} if changes.get("ending") == "discarded" else {"acked": 1}
    return World(completed={"a": 60_000}, results={"a": kept._replace(**changes)}, meta={"token": "T-3"} | total)


def _in_every_state() -> list[Case]:
    """Complete `a` with the receipt of its last delivery."""
    settled = {
        "rescheduled": _done(),
        "throttled": with_meta(_done(), LIMITED),
        "ranked": _done() + World(meta=_done().meta | {"priority_step": 60_000}),
        "released": _done() + World(ready=["a"], meta=_done().meta | {"stale_ready": 1}),
        "leased": _done(),
        "backoff": _done(),
        "retry": _done() + World(retry=["a"], meta=_done().meta | {"stale_retry": 1}),
    }
    return [
        Case(
            name,
            world + CROWD,
            calls.complete([_by(T - 7)]),
            "1" if name in settled else "0",
            settled.get(name, world) + CROWD,
        )
        for name, world in STATES.items()
    ]


def _by_every_token() -> list[Case]:
    def case(name: str, world: World, token: int, reply: str) -> Case:
        after = _done(f"T{token - T}") if reply == "1" else world
        return Case(name, world + CROWD, calls.complete([_by(token)]), reply, after + CROWD)

    return [
        case("the first receipt of this life", LEASED, T - 9, "1"),
        case("a receipt of an earlier life", LEASED, T - 10, "0"),
        case("a receipt that was never given", LEASED, T - 6, "0"),
        case("any receipt for a life not yet delivered", READY, T, "0"),
    ]


_OLD = World(completed={"a": 500}, results={"a": Kept("nothing", 1, -900, -800, "T-90", "")})
_WAITED = World(waited={"a": 900, "b": 900}, ends=["z"])

CASES = [
    *_in_every_state(),
    *_by_every_token(),
    Case(
        "of two receipts of one life the first one's result is kept",
        RETRY,
        calls.complete([_by(T - 10, result=b"1"), _by(T - 9, result=b"2"), _by(T - 7, result=b"3")]),
        "010",
        _done("T-9", result="2") + World(retry=["a"], meta=_done().meta | {"stale_retry": 1}),
    ),
    Case("it replaces the result of an earlier life", LEASED + _OLD, calls.complete([_by(T - 7)]), "1", _done()),
    Case(
        "a discarded one says why",
        LEASED,
        calls.complete([_by(T - 7, ending="discarded", note="no need", result=b"")]),
        "1",
        _done(ending="discarded", note="no need", result=""),
    ),
    Case(
        "discarded because it has expired, counted as both",
        LEASED.but(meta={"token": "T-3", "discarded": 1, "missed": 2}),
        calls.complete([_by(T - 7, ending="discarded", note="missed", result=b"")]),
        "1",
        _done(ending="discarded", note="missed", result="").but(meta={"token": "T-3", "discarded": 2, "missed": 3}),
    ),
    Case(
        "several, acked and discarded",
        LEASED
        + World(
            unack={"b": 500, "c": 500},
            retries={"b": 1, "c": 1},
            messages={"b": "B", "c": "C"},
            deliveries={"b": "leased -9 1 T-6 T-6 w", "c": "leased -8 1 T-5 T-5 w"},
        ),
        calls.complete(
            [
                _by(T - 6, "b", "discarded", "why", b""),
                _by(T - 9, "x"),
                _by(T - 7),
                _by(T - 5, "c", "unkept", "missed", b""),
            ]
        ),
        "1011",
        World(
            completed=dict.fromkeys("abc", 60_000),
            results={
                "a": _done().results["a"],
                "b": Kept("discarded", 1, -9, 0, "T-6", "", "why", "name=a retention=60000"),
                "c": Kept("unkept", 1, -8, 0, "T-5", "", "missed", "name=a retention=60000"),
            },
            meta={"token": "T-3", "acked": 2, "discarded": 1},
        ),
    ),
    Case(
        "what waits takes its place",
        LEASED + AFTER + CROWD,
        calls.complete([_by(T - 7)]),
        "1",
        (FOLLOWED + CROWD).but(
            completed={"a": 60_000},
            results=_done().results,
            meta={"token": "T-3", "acked": 1, "schema": 2, "sent": 1},
        ),
    ),
    Case(
        "whoever waits is told",
        (LEASED + _WAITED).but(meta=LEASED.meta | {"schema": 2}),
        calls.complete([_by(T - 7)]),
        "1",
        (_done() + World(waited={"b": 900}, ends=["z", "a"])).but(meta=_done().meta | {"schema": 2}),
    ),
    Case(
        "who waits for others is not told",
        (LEASED + World(waited={"b": 900})).but(meta=LEASED.meta | {"schema": 2}),
        calls.complete([_by(T - 7)]),
        "1",
        (_done() + World(waited={"b": 900})).but(meta=_done().meta | {"schema": 2}),
    ),
    Case(
        "its id is remembered where the window is on",
        LEASED + remembering(1000),
        calls.complete([_by(T - 7)]),
        "1",
        _done() + remembering(1000, a=0),
    ),
    Case(
        "held from its end",
        with_meta(LEASED.but(attributes={"a": "unique_after=600"}), reserved(z=-1)),
        calls.complete([_by(T - 7)]),
        "1",
        with_meta(_done(), reserved(a=600.5)),
    ),
    Case(
        "its place is free, and the next of the line may start",
        with_meta(LEASED, PLACED),
        calls.complete([_by(T - 7)]),
        "1",
        with_meta(_done(), PLACED).but(running={}, gates={1: -NOW}, wake=1),
    ),
]
CASES += logged(
    CASES,
    {
        "leased": ["acked 0; ids a; tokens T-7"],
        "gone": [],
        "discarded because it has expired, counted as both": [
            "missed 0; ids a; tokens T-7",
            "discarded 0; ids a; tokens T-7",
        ],
        "several, acked and discarded": [
            "acked 0; ids a c; tokens T-7 T-5",
            "discarded 0; ids b; tokens T-6",
        ],
        "what waits takes its place": ["acked 0; ids a; tokens T-7", "sent 0; ids a; dues 7000; retries 3"],
    },
)
