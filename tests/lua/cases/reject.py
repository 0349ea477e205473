"""`reject`: to the dead letter at once."""

from __future__ import annotations

from delayq.broker.requests import Rejection, ScriptCall
from tests.lua.cases.states import (
    AFTER,
    CROWD,
    FOLLOWED,
    LEASED,
    PLACED,
    STATES,
    STOPPING,
    logged,
    remembering,
    reserved,
    with_meta,
)
from tests.support.scripts import NOW, Case, Dead, T, World, calls


def reject(token: int = T - 7, error: str = "boom") -> ScriptCall[str]:
    return calls.reject([Rejection("a", token, "no such user", error)])


_DEAD = World(
    dead={"a:T-7": 0},
    # Two attempts and two retries left: it was sent with three.
    dead_messages={"a:T-7": Dead(2, 3, -5, 0, "no such user", "boom", "ha", "A", "name=a")},
    dead_ids={"a": "T-7"},
    meta={"token": "T-3", "dead": 1},
)
_HELD = World(
    unack={"a": 100, "b": 200, "c": 300},
    retries={"a": 3, "b": 0},
    messages={"a": "\x00\nA\xff", "b": "", "c": "C"},
    deliveries={"a": "leased -5 1 T-9 T-9 w", "b": "leased -6 4 T-8 T-6 w", "c": "leased -7 1 T-5 T-5 w"},
    headers={"b": "h\nb"},
    attributes={"b": "name=b"},
    errors={"b": "last"},
    dead={"b:T-99": -50},
    dead_messages={"b:T-99": Dead(1, 0, -60, -50, "r", "", "", "old")},
    dead_ids={"b": "T-99"},
    meta={"dead": 6},
)

CASES = [
    *(Case(name, world + CROWD, reject(), "0", world + CROWD) for name, world in STATES.items() if name != "leased"),
    Case("leased under this token", LEASED + CROWD, reject(), "1", _DEAD + CROWD),
    Case("leased under a later token", LEASED + CROWD, reject(T - 9), "0", LEASED + CROWD),
    Case(
        "no error: the last one is kept",
        LEASED,
        reject(error=""),
        "1",
        _DEAD.but(dead_messages={"a:T-7": Dead(2, 3, -5, 0, "no such user", "oops", "ha", "A", "name=a")}),
    ),
    Case(
        "twice in a batch dies once",
        LEASED,
        calls.reject([Rejection("a", T - 7, "no such user", "boom"), Rejection("a", T - 7, "other", "other")]),
        "10",
        _DEAD,
    ),
    Case(
        "retries not stored",
        LEASED.but(retries={}),
        reject(),
        "1",
        _DEAD.but(dead_messages={"a:T-7": Dead(2, 4, -5, 0, "no such user", "boom", "ha", "A", "name=a")}),
    ),
    Case("a lease without a message", LEASED.but(messages={}), reject(), "0", LEASED.but(messages={})),
    Case(
        "what had expired is counted, too",
        _HELD.but(meta={"dead": 6, "missed": 2}),
        calls.reject(
            [
                Rejection("a", T - 9, "missed", ""),
                Rejection("b", T - 7, "missed", ""),
                Rejection("c", T - 5, "missed by us", ""),
            ]
        ),
        "101",
        World(
            unack={"b": 200},
            retries={"b": 0},
            messages={"b": ""},
            deliveries={"b": "leased -6 4 T-8 T-6 w"},
            headers={"b": "h\nb"},
            attributes={"b": "name=b"},
            errors={"b": "last"},
            dead={"b:T-99": -50, "a:T-9": 0, "c:T-5": 0},
            dead_messages={
                "b:T-99": Dead(1, 0, -60, -50, "r", "", "", "old"),
                "a:T-9": Dead(1, 3, -5, 0, "missed", "", "", "\x00\nA\xff"),
                "c:T-5": Dead(1, 3, -7, 0, "missed by us", "", "", "C"),
            },
            dead_ids={"a": "T-9", "b": "T-99", "c": "T-5"},
            meta={"dead": 8, "missed": 3},
        ),
    ),
    Case(
        "several; a second death leaves the first alone",
        _HELD,
        calls.reject(
            [
                Rejection("a", T - 9, "ra", ""),
                Rejection("x", T - 9, "rx", ""),
                Rejection("b", T - 6, "r b", ""),
                Rejection("c", T - 6, "rc", ""),
            ]
        ),
        "1010",
        World(
            unack={"c": 300},
            messages={"c": "C"},
            deliveries={"c": "leased -7 1 T-5 T-5 w"},
            dead={"b:T-99": -50, "a:T-9": 0, "b:T-6": 0},
            dead_messages={
                "b:T-99": Dead(1, 0, -60, -50, "r", "", "", "old"),
                "a:T-9": Dead(1, 3, -5, 0, "ra", "", "", "\x00\nA\xff"),
                "b:T-6": Dead(4, 3, -6, 0, "r b", "last", "h\nb", "", "name=b"),
            },
            dead_ids={"a": "T-9", "b": "T-99 T-6"},
            meta={"dead": 8},
        ),
    ),
]
CASES += logged(
    CASES,
    {
        "gone": [],
        "backoff": [],
        "leased under this token": [
            "dead 0; ids a; tokens T-7; attempts 2; dues -5; reasons no such user; errors boom",
        ],
        "leased under a later token": [],
        "no error: the last one is kept": [
            "dead 0; ids a; tokens T-7; attempts 2; dues -5; reasons no such user; errors oops",
        ],
        "twice in a batch dies once": [
            "dead 0; ids a; tokens T-7; attempts 2; dues -5; reasons no such user; errors boom",
        ],
        "a lease without a message": [],
        "what had expired is counted, too": [
            "missed 0; ids a; tokens T-9",
            "dead 0; ids a c; tokens T-9 T-5; attempts 1 1; dues -5 -7; reasons missed\nmissed by us; errors \n",
        ],
        "several; a second death leaves the first alone": [
            "dead 0; ids a b; tokens T-9 T-6; attempts 1 4; dues -5 -6; reasons ra\nr b; errors \nlast",
        ],
    },
)
CASES += [
    Case(
        "remembered for the dedupe window",
        LEASED + remembering(1000, y=-3000, z=-2000),
        reject(),
        "1",
        _DEAD + remembering(1000, a=0),
    ),
]
CASES += [
    Case("what waits follows", LEASED + AFTER + CROWD, reject(), "1", FOLLOWED.but(wake=1) + _DEAD + CROWD),
    Case("what waits stays under a later token", LEASED + AFTER, reject(T - 9), "0", LEASED + AFTER),
    Case(
        "what waits is not looked at while the schema is 1",
        LEASED + AFTER.but(meta={"schema": 1}),
        reject(),
        "1",
        _DEAD + AFTER.but(meta={"schema": 1}),
    ),
    Case(
        "twice in a batch: what waits follows once",
        LEASED + AFTER,
        calls.reject([Rejection("a", T - 7, "no such user", "boom"), Rejection("a", T - 7, "other", "other")]),
        "10",
        FOLLOWED + _DEAD,
    ),
]
CASES += logged(
    CASES,
    {
        "what waits follows": [
            "dead 0; ids a; tokens T-7; attempts 2; dues -5; reasons no such user; errors boom",
            "sent 0; ids a; dues 7000; retries 3",
        ]
    },
)
CASES += [
    Case(
        "held from its end",
        with_meta(LEASED.but(attributes={"a": "unique_after=600"}), reserved(z=-1)),
        reject(),
        "1",
        with_meta(
            _DEAD.but(dead_messages={"a:T-7": _DEAD.dead_messages["a:T-7"]._replace(attributes="unique_after=600")}),
            reserved(a=600.5),
        ),
    ),
    Case(
        "whoever waits for it is told",
        LEASED + World(waited={"a": 900, "b": 900}),
        reject(),
        "1",
        _DEAD + World(waited={"b": 900}, ends=["a"]),
    ),
    Case(
        "its place is free, and the next of the line may start",
        with_meta(LEASED, PLACED),
        reject(),
        "1",
        with_meta(_DEAD, PLACED).but(running={}, gates={1: -NOW}, wake=1),
    ),
]
_CANCELLED = World(meta={"token": "T-3", "cancelled": 1})
_BESIDE = World(unack={"b": 9}, retries={"b": 0}, messages={"b": "B"}, deliveries={"b": "leased -6 1 T-8 T-8 w"})
CASES += [
    Case("asked to stop", STOPPING + CROWD, reject(), "1", _CANCELLED + CROWD),
    Case(
        "asked to stop, and had expired",
        STOPPING.but(meta=STOPPING.meta | {"cancelled": 2, "missed": 2}),
        calls.reject([Rejection("a", T - 7, "missed", "")]),
        "1",
        World(meta={"token": "T-3", "cancelled": 3, "missed": 2}),
    ),
    Case("asked to stop, under a later token", STOPPING + CROWD, reject(T - 9), "0", STOPPING + CROWD),
    Case(
        "asked to stop, beside one that is not",
        STOPPING + _BESIDE + remembering(1000),
        calls.reject([Rejection("a", T - 7, "no", ""), Rejection("b", T - 8, "no", "")]),
        "11",
        World(
            dead={"b:T-8": 0},
            dead_messages={"b:T-8": Dead(1, 0, -6, 0, "no", "", "", "B")},
            dead_ids={"b": "T-8"},
            meta={"token": "T-3", "cancelled": 1, "dead": 1},
        )
        + remembering(1000, a=0, b=0),
    ),
    Case(
        "asked to stop, and its place is free",
        with_meta(STOPPING, PLACED),
        reject(),
        "1",
        with_meta(_CANCELLED, PLACED).but(running={}, gates={1: -NOW}, wake=1),
    ),
    Case("asked to stop, and followed", STOPPING + AFTER, reject(), "1", with_meta(_CANCELLED, FOLLOWED)),
]
CASES += logged(CASES, {"asked to stop": ["cancelled 0; ids a"]})
