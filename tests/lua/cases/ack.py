"""`ack`: the first receipt of this life wins, late or not."""

from __future__ import annotations

from delayq.broker.requests import Receipt
from tests.lua.cases.states import BACKOFF, CROWD, LEASED, READY, RETRY, STATES, logged, remembering
from tests.support.scripts import Case, T, World, calls

_DONE = World(meta={"token": "T-3", "acked": 1})


def _in_every_state() -> list[Case]:
    """Ack `a` with the receipt of its last delivery."""
    settled = {
        "rescheduled": _DONE,
        "released": _DONE + World(ready=["a"], meta=_DONE.meta | {"stale_ready": 1}),
        "leased": _DONE,
        "backoff": _DONE,
        "retry": _DONE + World(retry=["a"], meta=_DONE.meta | {"stale_retry": 1}),
    }
    return [
        Case(
            name,
            world + CROWD,
            calls.ack([Receipt("a", T - 7)]),
            "1" if name in settled else "0",
            settled.get(name, world) + CROWD,
        )
        for name, world in STATES.items()
    ]


def _by_every_token() -> list[Case]:
    def case(name: str, world: World, token: int, reply: str) -> Case:
        after = _DONE if reply == "1" else world
        return Case(name, world + CROWD, calls.ack([Receipt("a", token)]), reply, after + CROWD)

    return [
        case("the first receipt of this life", LEASED, T - 9, "1"),
        case("a receipt of an earlier life", LEASED, T - 10, "0"),
        case("a receipt that was never given", LEASED, T - 6, "0"),
        case("a receipt of an earlier life, in backoff", BACKOFF, T - 10, "0"),
        case("a receipt for a life not yet delivered", READY, 0, "0"),
        case("any receipt for a life not yet delivered", READY, T, "0"),
    ]


_TWO = World(
    unack={"a": 500, "b": 600, "c": 700},
    retries=dict.fromkeys("abc", 1),
    messages=dict.fromkeys("abc", "m"),
    deliveries={
        "a": "leased -5 1 T-9 T-9 w",
        "b": "backoff -5 1 T-8 T-8 w",
        "c": "backoff -5 1 T-7 T-7 w",
    },
    meta={"backoffs": 2, "acked": 4, "discarded": 1},
)

CASES = [
    *_in_every_state(),
    *_by_every_token(),
    Case(
        "a receipt twice in a batch is counted once",
        LEASED + CROWD,
        calls.ack([Receipt("a", T - 7), Receipt("a", T - 7)]),
        "10",
        _DONE + CROWD,
    ),
    Case(
        "two receipts of one life: the first of them",
        RETRY,
        calls.ack([Receipt("a", T - 10), Receipt("a", T - 9), Receipt("a", T - 7)]),
        "010",
        _DONE + World(retry=["a"], meta=_DONE.meta | {"stale_retry": 1}),
    ),
    Case(
        "several, some of them held",
        _TWO,
        calls.ack([Receipt("a", T - 9), Receipt("x", T - 9), Receipt("b", T - 7), Receipt("c", T - 7)]),
        "1001",
        World(
            unack={"b": 600},
            retries={"b": 1},
            messages={"b": "m"},
            deliveries={"b": "backoff -5 1 T-8 T-8 w"},
            meta={"backoffs": 1, "acked": 6, "discarded": 1},
        ),
    ),
    Case(
        "discarded, counted apart",
        _TWO,
        calls.ack([Receipt("a", T - 9), Receipt("b", T - 8)], discarded=True),
        "11",
        World(
            unack={"c": 700},
            retries={"c": 1},
            messages={"c": "m"},
            deliveries={"c": "backoff -5 1 T-7 T-7 w"},
            meta={"backoffs": 1, "acked": 4, "discarded": 3},
        ),
    ),
]
CASES += logged(
    CASES,
    {
        "gone": [],
        "pending": [],
        "garbage": [],
        "backoff": ["acked 0; ids a; tokens T-7"],
        "the first receipt of this life": ["acked 0; ids a; tokens T-9"],
        "a receipt of an earlier life": [],
        "a receipt twice in a batch is counted once": ["acked 0; ids a; tokens T-7"],
        "two receipts of one life: the first of them": ["acked 0; ids a; tokens T-9"],
        "several, some of them held": ["acked 0; ids a c; tokens T-9 T-7"],
        "discarded, counted apart": ["discarded 0; ids a b; tokens T-9 T-8"],
    },
)
CASES += [
    Case(
        "remembered for the dedupe window",
        _TWO + remembering(1000, b=-7),
        calls.ack([Receipt("a", T - 9), Receipt("b", T - 9), Receipt("c", T - 7)]),
        "101",
        World(
            unack={"b": 600},
            retries={"b": 1},
            messages={"b": "m"},
            deliveries={"b": "backoff -5 1 T-8 T-8 w"},
            meta={"backoffs": 1, "acked": 6, "discarded": 1},
        )
        + remembering(1000, a=0, b=-7, c=0),
    ),
    Case(
        "discarded, and remembered anew after an earlier life",
        LEASED + remembering(1000, a=-900),
        calls.ack([Receipt("a", T - 7)], discarded=True),
        "1",
        World(meta={"token": "T-3", "discarded": 1}) + remembering(1000, a=0),
    ),
    Case(
        "not settled, not remembered",
        LEASED + remembering(1000),
        calls.ack([Receipt("a", T - 6)]),
        "0",
        LEASED + remembering(1000),
    ),
    Case(
        "twice as many are forgotten as are settled: those out of the window",
        LEASED + remembering(1000, u=-5000, v=-4000, w=-3000, x=-1000, y=-999),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        _DONE + remembering(1000, w=-3000, x=-1000, y=-999, a=0),
    ),
    Case(
        "what is in the window is not forgotten",
        LEASED + remembering(1000, x=-1000, y=-999),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        _DONE + remembering(1000, y=-999, a=0),
    ),
    Case(
        "no more are remembered than may be: the oldest are forgotten",
        LEASED + remembering(1000, 3, w=-40, x=-20, y=-30),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        _DONE + remembering(1000, 3, x=-20, y=-30, a=0),
    ),
]
