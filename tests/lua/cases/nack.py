"""`nack`: back after a delay with the error kept, or spent."""

from __future__ import annotations

from delayq.broker.requests import Failure, ScriptCall
from tests.lua.cases.states import (
    BACKOFF,
    CROWD,
    GARBAGE,
    KEPT,
    KEY,
    LEASED,
    PLACED,
    STATES,
    STOPPED,
    STOPPING,
    in_new_queues,
    keyed,
    logged,
    with_meta,
)
from tests.support.scripts import NOW, Case, T, World, calls


def nack(token: int = T - 7, delay: int = 500, error: str = "boom", span: str = "") -> ScriptCall[str]:
    return calls.nack([Failure("a", token, delay, error, span)])


_FAILED = BACKOFF.but(retries={"a": 1}, errors={"a": "boom"}, meta={"token": "T-3", "backoffs": 1, "nacked": 1}, wake=1)
_SPENT = GARBAGE.but(errors={"a": "boom"}, meta={"token": "T-3", "nacked": 1})
_HELD = World(
    unack={"a": 500, "b": 600, "c": 700, "d": 800},
    retries={"a": 3, "b": 0, "c": 2, "d": 1},
    deliveries={
        "a": "leased -5 1 T-9 T-9 w",
        "b": "leased -5 1 T-8 T-8 w",
        "c": "leased -5 1 T-7 T-7 w",
        "d": "backoff -5 1 T-6 T-6 w",
    },
    errors={"b": "first"},
    meta={"backoffs": 1, "nacked": 5},
)

CASES = [
    *(Case(name, world + CROWD, nack(), "0", world + CROWD) for name, world in STATES.items() if name != "leased"),
    Case("leased under this token", LEASED + CROWD, nack(), "1", _FAILED + CROWD),
    Case(
        "one that failed before its start was reported",
        LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w ?"}) + CROWD,
        nack(),
        "1",
        _FAILED + CROWD,
    ),
    Case("leased under a later token", LEASED + CROWD, nack(T - 9), "0", LEASED + CROWD),
    Case("leased under an earlier token", LEASED + CROWD, nack(T - 6), "0", LEASED + CROWD),
    Case("no delay", LEASED, nack(delay=0), "1", _FAILED.but(unack={"a": 0})),
    Case("no error: the last one is kept", LEASED, nack(error=""), "1", _FAILED.but(errors={"a": "oops"})),
    Case("the last retry", LEASED.but(retries={"a": 1}), nack(), "1", _FAILED.but(retries={"a": 0})),
    Case(
        "not the next thing to happen: nobody is woken",
        LEASED + CROWD,
        nack(delay=90_001),
        "1",
        (_FAILED + CROWD).but(unack={"a": 90_001, "r": 90_000}, wake=0),
    ),
    Case("a wake-up that is not taken yet is enough", LEASED.but(wake=1), nack(), "1", _FAILED),
    Case(
        "spent",
        LEASED.but(retries={"a": 0}) + CROWD,
        nack(),
        "2",
        (_SPENT + CROWD).but(retries=GARBAGE.retries | CROWD.retries),
    ),
    Case("spent, no error", LEASED.but(retries={"a": 0}), nack(error=""), "2", _SPENT.but(errors={"a": "oops"})),
    Case("retries not stored yet", LEASED.but(retries={}), nack(), "1", _FAILED.but(retries={"a": 2})),
    Case(
        "twice in a batch is charged once",
        LEASED,
        calls.nack([Failure("a", T - 7, 500, "boom"), Failure("a", T - 7, 900, "again")]),
        "10",
        _FAILED,
    ),
    Case(
        "several",
        _HELD,
        calls.nack(
            [
                Failure("a", T - 9, 9000, "ea"),
                Failure("x", T - 9, 10, "ex"),
                Failure("b", T - 8, 10, ""),
                Failure("c", T - 7, 800, "ec"),
                Failure("d", T - 6, 10, "ed"),
            ]
        ),
        "10210",
        World(
            unack={"a": 9000, "c": 800, "d": 800},
            garbage={"b"},
            retries={"a": 2, "b": 0, "c": 1, "d": 1},
            deliveries={
                "a": "backoff -5 1 T-9 T-9 w",
                "b": "garbage -5 1 T-8 T-8 w",
                "c": "backoff -5 1 T-7 T-7 w",
                "d": "backoff -5 1 T-6 T-6 w",
            },
            errors={"a": "ea", "b": "first", "c": "ec"},
            meta={"backoffs": 3, "nacked": 8},
            wake=1,
        ),
    ),
]
CASES += logged(
    CASES,
    {
        "gone": [],
        "retry": [],
        "leased under this token": ["nacked 0; ids a; tokens T-7; retries 1; errors boom"],
        "leased under a later token": [],
        "no error: the last one is kept": ["nacked 0; ids a; tokens T-7; retries 1; errors "],
        "the last retry": ["nacked 0; ids a; tokens T-7; retries 0; errors boom"],
        "spent": ["nacked 0; ids a; tokens T-7; retries -; errors boom"],
        "retries not stored yet": ["nacked 0; ids a; tokens T-7; retries 2; errors boom"],
        "twice in a batch is charged once": ["nacked 0; ids a; tokens T-7; retries 1; errors boom"],
        "several": ["nacked 0; ids a b c; tokens T-9 T-8 T-7; retries 2 - 1; errors ea\n\nec"],
    },
)
_BOTH = STOPPING + World(
    unack={"b": 600}, retries={"b": 1}, messages={"b": "B"}, deliveries={"b": "leased -6 1 T-8 T-8 w"}
)
CASES += [
    Case("asked to stop", STOPPING + CROWD, nack(), "2", STOPPED + CROWD),
    Case("asked to stop, under a later token", STOPPING + CROWD, nack(T - 9), "0", STOPPING + CROWD),
    Case("asked to stop, twice in a batch", STOPPING, calls.nack([Failure("a", T - 7, 5, "x")] * 2), "20", STOPPED),
    Case(
        "asked to stop, beside one that is not",
        _BOTH,
        calls.nack([Failure("a", T - 7, 500, "boom"), Failure("b", T - 8, 500, "boom")]),
        "21",
        STOPPED
        + World(
            unack={"b": 500},
            retries={"b": 0},
            messages={"b": "B"},
            deliveries={"b": "backoff -6 1 T-8 T-8 w"},
            errors={"b": "boom"},
            meta={"backoffs": 1, "nacked": 1, "token": "T-3"},
            wake=1,
        ),
    ),
]
CASES += logged(CASES, {"asked to stop": []})
CASES += [
    Case(
        "its place is free, and the next of the line may start",
        with_meta(LEASED, PLACED),
        nack(),
        "1",
        with_meta(_FAILED, PLACED).but(running={}, gates={1: -NOW}),
    ),
    Case(
        "nobody waits for its place",
        with_meta(LEASED, PLACED).but(gates={}),
        nack(),
        "1",
        with_meta(_FAILED, PLACED).but(running={}, gates={}),
    ),
    Case(
        "spent, and its place is free",
        with_meta(LEASED, PLACED).but(retries={"a": 0}),
        nack(),
        "2",
        with_meta(_SPENT, PLACED).but(running={}, gates={1: -NOW}, wake=1),
    ),
    Case(
        "asked to stop, and its place is free",
        with_meta(STOPPING, PLACED),
        nack(),
        "2",
        with_meta(STOPPED, PLACED).but(running={}, gates={1: -NOW}, wake=1),
    ),
    Case("another holds it, and its place", with_meta(LEASED, PLACED), nack(T - 8), "0", with_meta(LEASED, PLACED)),
]
_TRACED = _FAILED.but(attributes={"a": "span=5 name=a"}, meta=_FAILED.meta | {"schema": 2})
_TWO = World(
    unack={"a": 500, "b": 600},
    retries={"a": 1, "b": 1},
    deliveries={"a": "leased -5 1 T-9 T-9 w", "b": "leased -5 1 T-8 T-8 w"},
    attributes={"a": "name=a", "b": "name=b"},
    meta={"token": "T-3"},
)
CASES += [
    Case("with a span", LEASED + CROWD, nack(span="5"), "1", _TRACED + CROWD),
    Case("with a span, under a later token", LEASED + CROWD, nack(T - 9, span="5"), "0", LEASED + CROWD),
    Case("with a span, asked to stop", STOPPING, nack(span="5"), "2", STOPPED),
    Case(
        "with a span, spent",
        LEASED.but(retries={"a": 0}),
        nack(span="5"),
        "2",
        _SPENT.but(retries={"a": 0}, attributes={"a": "span=5 name=a"}, meta=_SPENT.meta | {"schema": 2}),
    ),
    *(
        Case(
            f"with a span, beside {name}",
            LEASED.but(attributes={"a": before}),
            nack(span="5"),
            "1",
            _TRACED.but(attributes={"a": after}),
        )
        for name, before, after in (
            ("nothing", "", "span=5"),
            ("others", "name=x priority=2", "span=5 name=x priority=2"),
            ("that of the attempt before", "span=4", "span=5"),
            ("that of the attempt before and others", "span=4 name=x progress=eA==", "span=5 name=x progress=eA=="),
            ("one that stands last", "name=x span=4", "span=5 name=x"),
            ("what only ends like it", "lifespan=4 name=x", "span=5 lifespan=4 name=x"),
        )
    ),
    Case(
        "without a span: that of an attempt before stays",
        LEASED.but(attributes={"a": "span=4 name=x"}),
        nack(),
        "1",
        _FAILED.but(attributes={"a": "span=4 name=x"}),
    ),
    Case(
        "several, of which one has a span",
        _TWO,
        calls.nack([Failure("a", T - 9, 10, ""), Failure("b", T - 8, 20, "", "5")]),
        "11",
        World(
            unack={"a": 10, "b": 20},
            retries={"a": 0, "b": 0},
            deliveries={"a": "backoff -5 1 T-9 T-9 w", "b": "backoff -5 1 T-8 T-8 w"},
            attributes={"a": "name=a", "b": "span=5 name=b"},
            meta={"token": "T-3", "backoffs": 2, "nacked": 2, "schema": 2},
            wake=1,
        ),
    ),
    Case(
        "several with spans, of which the first has used up the bytes that a call reads",
        _TWO.but(attributes={"a": "x" * (1 << 20), "b": "name=b"}),
        calls.nack([Failure("a", T - 9, 10, "", "5"), Failure("b", T - 8, 20, "", "6")]),
        "11",
        World(
            unack={"a": 10, "b": 20},
            retries={"a": 0, "b": 0},
            deliveries={"a": "backoff -5 1 T-9 T-9 w", "b": "backoff -5 1 T-8 T-8 w"},
            attributes={"a": "span=5 " + "x" * (1 << 20), "b": "name=b"},
            meta={"token": "T-3", "backoffs": 2, "nacked": 2, "schema": 2},
            wake=1,
        ),
    ),
]
CASES += keyed(CASES)
CASES += [
    Case(
        "in order: it keeps the place of its key",
        with_meta(LEASED, KEPT),
        nack(),
        "1",
        with_meta(_FAILED, KEPT),
    ),
    Case(
        "in order: spent, and the place of its key is free",
        with_meta(LEASED, KEPT).but(retries={"a": 0}),
        nack(),
        "2",
        with_meta(_SPENT, KEPT).but(running={}, gates={KEY: -NOW}, wake=1),
    ),
    Case(
        "in order: it keeps the place of its key, and gives back that of its name",
        with_meta(LEASED, PLACED, KEPT).but(running={"a": 1, " a": KEY + 1}, gates={1: None, KEY: None}),
        nack(),
        "1",
        with_meta(_FAILED, PLACED, KEPT).but(running={" a": KEY + 1}, gates={1: -NOW, KEY: None}, wake=1),
    ),
]
CASES += in_new_queues(CASES)
