"""`ack`: the first receipt of this life wins, late or not."""

from __future__ import annotations

from delayq.broker.requests import Receipt
from tests.lua.cases.states import (
    AFTER,
    BACKOFF,
    CROWD,
    FOLLOWED,
    KEPT,
    KEY,
    LEASED,
    LIMITED,
    PLACED,
    READY,
    RETRY,
    STATES,
    keyed,
    logged,
    remembering,
    reserved,
    with_meta,
)
from tests.support.scripts import NOW, After, Case, T, World, calls

_DONE = World(meta={"token": "T-3", "acked": 1})


def _in_every_state() -> list[Case]:
    """Ack `a` with the receipt of its last delivery."""
    settled = {
        "rescheduled": _DONE,
        "released": _DONE + World(ready=["a"], meta=_DONE.meta | {"stale_ready": 1}),
        "leased": _DONE,
        "backoff": _DONE,
        "retry": _DONE + World(retry=["a"], meta=_DONE.meta | {"stale_retry": 1}),
        "ranked": _DONE.but(meta=_DONE.meta | {"priority_step": 60_000}),
        "throttled": with_meta(_DONE, LIMITED),
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
        calls.ack([Receipt("a", T - 9), Receipt("b", T - 8)], outcome="discarded"),
        "11",
        World(
            unack={"c": 700},
            retries={"c": 1},
            messages={"c": "m"},
            deliveries={"c": "backoff -5 1 T-7 T-7 w"},
            meta={"backoffs": 1, "acked": 4, "discarded": 3},
        ),
    ),
    Case(
        "discarded because it has expired, counted as both",
        LEASED.but(meta={"token": "T-3", "discarded": 1, "missed": 2}),
        calls.ack([Receipt("a", T - 7)], outcome="missed"),
        "1",
        World(meta={"token": "T-3", "discarded": 2, "missed": 3}),
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
        "discarded because it has expired, counted as both": [
            "missed 0; ids a; tokens T-7",
            "discarded 0; ids a; tokens T-7",
        ],
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
        calls.ack([Receipt("a", T - 7)], outcome="discarded"),
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
CASES += [
    *(
        Case(f"what waits follows: {name}", world + AFTER, calls.ack([Receipt("a", T - 7)]), "1", FOLLOWED + after)
        for name, world, after in (
            ("leased", LEASED, _DONE),
            ("backoff", BACKOFF, _DONE),
            ("retry", RETRY, _DONE + World(retry=["a"], meta=_DONE.meta | {"stale_retry": 1})),
        )
    ),
    Case(
        "what waits stays beside an earlier receipt",
        LEASED + AFTER,
        calls.ack([Receipt("a", T - 10)]),
        "0",
        LEASED + AFTER,
    ),
    Case(
        "what waits is not looked at while the schema is 1",
        LEASED.but(attributes={}) + AFTER.but(meta={"schema": 1}),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        _DONE + AFTER.but(meta={"schema": 1}),
    ),
    Case(
        "a receipt twice in a batch: what waits follows once",
        LEASED + AFTER,
        calls.ack([Receipt("a", T - 7), Receipt("a", T - 7)]),
        "10",
        FOLLOWED + _DONE,
    ),
    Case(
        "several, some of them followed, and what is due first wakes",
        _TWO + AFTER + World(pending={"p": 7000}, successors={"c": After(9000, 0, "", ""), "b": After(1, 1, "", "B")}),
        calls.ack([Receipt("a", T - 9), Receipt("c", T - 7), Receipt("b", T - 7)]),
        "110",
        World(
            pending={"p": 7000, "a": 7000, "c": 9000},
            unack={"b": 600},
            retries={"a": 3, "b": 1, "c": 0},
            messages={"a": "new", "b": "m", "c": ""},
            headers={"a": "hn"},
            attributes={"a": "name=n"},
            deliveries={"b": "backoff -5 1 T-8 T-8 w"},
            successors={"b": After(1, 1, "", "B")},
            meta={"schema": 2, "backoffs": 1, "acked": 6, "discarded": 1, "sent": 2},
        ),
    ),
    Case(
        "what waits is due before all others",
        LEASED + AFTER + World(pending={"p": 7001}),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        FOLLOWED + _DONE + World(pending={"p": 7001}),
    ),
    Case(
        "what waits follows, and the id is remembered",
        LEASED + AFTER + remembering(1000),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        FOLLOWED + _DONE + remembering(1000, a=0),
    ),
    Case(
        "what waits for another stays",
        LEASED + AFTER.but(successors={"b": After(5, 1, "", "B")}),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        _DONE + AFTER.but(successors={"b": After(5, 1, "", "B")}),
    ),
]
CASES += logged(
    CASES,
    {
        "what waits follows: leased": ["acked 0; ids a; tokens T-7", "sent 0; ids a; dues 7000; retries 3"],
        "several, some of them followed, and what is due first wakes": [
            "acked 0; ids a c; tokens T-9 T-7",
            "sent 0; ids a c; dues 7000 9000; retries 3 0",
        ],
    },
)

_RESERVED = LEASED.but(attributes={"a": "name=a unique_after=600"})
CASES += [
    Case(
        "held from its end",
        with_meta(_RESERVED, reserved()),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        with_meta(_DONE, reserved(a=600.5)),
    ),
    Case(
        "discarded, held until the later of two ends",
        with_meta(_RESERVED, reserved(a=601.5)),
        calls.ack([Receipt("a", T - 7)], outcome="discarded"),
        "1",
        with_meta(World(meta={"token": "T-3", "discarded": 1}), reserved(a=601.5)),
    ),
    Case(
        "held from its end: the earlier end is forgotten",
        with_meta(_RESERVED, reserved(a=599.5)),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        with_meta(_DONE, reserved(a=600.5)),
    ),
    Case(
        "held from the send, and its time is over",
        with_meta(LEASED, reserved(a=-5.5)),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        with_meta(_DONE, reserved()),
    ),
    Case(
        "held from the send, beyond its end",
        with_meta(LEASED, reserved(a=5.5, y=-3.5, z=1.5)),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        with_meta(_DONE, reserved(a=5.5, z=1.5)),
    ),
    Case(
        "ends of their own, where none ever had one, are not looked at",
        _RESERVED,
        calls.ack([Receipt("a", T - 7)]),
        "1",
        _DONE,
    ),
    Case(
        "the dedupe window is longer than its own end",
        with_meta(_RESERVED, remembering(1000), reserved(a=700.5)),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        with_meta(_DONE, remembering(1000), reserved(a=0)),
    ),
    Case(
        "its own end is longer than the dedupe window",
        with_meta(_RESERVED, remembering(500), reserved(a=-3)),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        with_meta(_DONE, remembering(500), reserved(a=600.5)),
    ),
    Case(
        "whose own ends are to come do not count for the maximum",
        with_meta(LEASED, remembering(1000, 2, x=-20, y=-30), reserved(x=-20, y=-30, u=7.5, v=8.5, w=9.5)),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        with_meta(_DONE, remembering(1000, 2), reserved(x=-20, u=7.5, v=8.5, w=9.5, a=0)),
    ),
]
CASES += [
    Case(
        "its place is free, and the next of the line may start",
        with_meta(LEASED, PLACED),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        with_meta(_DONE, PLACED).but(running={}, gates={1: -NOW}, wake=1),
    ),
    Case(
        "a place of the whole queue",
        with_meta(LEASED, PLACED).but(running={}, gates={0: None}),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        with_meta(_DONE, PLACED).but(running={}, gates={0: -NOW}, wake=1),
    ),
    Case(
        "places of several names, one of which is open",
        with_meta(_TWO, PLACED).but(
            unack={"a": 5, "b": 6, "c": 7},
            deliveries=dict.fromkeys("abc", "leased -5 1 T-9 T-9 w"),
            running={"a": 3, "b": 1, "c": 3, "d": 1},
            gates={1: None, 2: None, 3: 500},
        ),
        calls.ack([Receipt(id, T - 9) for id in "abc"]),
        "111",
        with_meta(World(meta={"backoffs": 2, "acked": 7, "discarded": 1}), PLACED).but(
            running={"d": 1}, gates={1: -NOW, 2: None, 3: -NOW}, wake=1
        ),
    ),
    Case(
        "nobody waits for its place",
        with_meta(LEASED, PLACED).but(gates={}),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        with_meta(_DONE, PLACED).but(running={}, gates={}),
    ),
]
CASES += keyed(CASES)
CASES += [
    Case(
        "in order: its place of the key is free, also from its backoff",
        with_meta(BACKOFF, KEPT),
        calls.ack([Receipt("a", T - 7)]),
        "1",
        with_meta(_DONE, KEPT, World(meta={"backoffs": 0})).but(running={}, gates={KEY: -NOW}, wake=1),
    ),
]
