"""`cancel`: out of everything, unless somebody is processing it."""

from __future__ import annotations

from tests.lua.cases.states import (
    AFTER,
    BACKOFF,
    CROWD,
    DEAD,
    GARBAGE,
    KEPT,
    KEY,
    LEASED,
    LEFTOVERS,
    LIMITED,
    PENDING,
    READY,
    RESCHEDULED,
    STATES,
    STOPPED,
    STOPPING,
    logged,
    remembering,
    reserved,
    with_meta,
)
from tests.support.scripts import NOW, After, Case, World, calls

_OUT = World(meta={"token": "T-3", "cancelled": 1})


def _in_every_state() -> list[Case]:
    replies = {"leased": "2", "garbage": "3", "dead": "3", "gone": "0"}
    left = {
        "pending": World(meta={"cancelled": 1}),
        "rescheduled": _OUT,
        "ready": World(ready=["a"], meta={"cancelled": 1, "stale_ready": 1}),
        "released": _OUT + World(ready=["a"], meta=_OUT.meta | {"stale_ready": 1}),
        "backoff": _OUT,
        "retry": _OUT + World(retry=["a"], meta=_OUT.meta | {"stale_retry": 1}),
        "ranked": _OUT.but(meta=_OUT.meta | {"priority_step": 60_000}),
        "throttled": with_meta(_OUT, LIMITED),
    }
    return [
        Case(name, world + CROWD, calls.cancel(["a"]), replies.get(name, "1"), left.get(name, world) + CROWD)
        for name, world in STATES.items()
    ]


_MANY = World(
    pending={"a": 50, "b": 60},
    ready=["c", "y", "d"],
    retry=["z", "e", "f"],
    unack={"g": 5, "h": 6, "i": 7},
    retries=dict.fromkeys("abcdefghi", 3),
    messages=dict.fromkeys("abcdefghi", "m"),
    deliveries={
        "b": "pending 60 1 T-9 T-9 w",
        "c": "ready -5 0 0 0 -",
        "d": "ready -5 0 0 0 -",
        "e": "retry -5 1 T-8 T-8 w",
        "f": "retry -5 1 T-7 T-7 w",
        "g": "backoff -5 1 T-6 T-6 w",
        "h": "backoff -5 1 T-5 T-5 w",
        "i": "leased -5 1 T-4 T-4 w",
    },
    meta={"backoffs": 2, "stale_ready": 1, "stale_retry": 1, "cancelled": 3},
)

CASES = [
    *_in_every_state(),
    Case(
        "alive, and dead before",
        PENDING + DEAD,
        calls.cancel(["a"]),
        "1",
        DEAD.but(meta={"token": "T-3", "cancelled": 1}),
    ),
    Case("running, and dead before", LEASED + DEAD, calls.cancel(["a"]), "2", LEASED + DEAD),
    Case("not a message, but remains of one", LEFTOVERS + CROWD, calls.cancel(["a"]), "0", LEFTOVERS + CROWD),
    Case(
        "twice in a batch is counted once",
        READY,
        calls.cancel(["a", "a"]),
        "10",
        World(ready=["a"], meta={"cancelled": 1, "stale_ready": 1}),
    ),
    Case(
        "several",
        _MANY,
        calls.cancel([*"abcdefgxhi"]),
        "1111111012",
        World(
            ready=["c", "y", "d"],
            retry=["z", "e", "f"],
            unack={"i": 7},
            retries={"i": 3},
            messages={"i": "m"},
            deliveries={"i": "leased -5 1 T-4 T-4 w"},
            meta={"stale_ready": 3, "stale_retry": 3, "cancelled": 11},
        ),
    ),
]
CASES += logged(
    CASES,
    {
        "gone": [],
        "leased": [],
        "garbage": [],
        "dead": [],
        "pending": ["cancelled 0; ids a"],
        "not a message, but remains of one": [],
        "twice in a batch is counted once": ["cancelled 0; ids a"],
        "several": ["cancelled 0; ids a b c d e f g h"],
    },
)
CASES += [
    Case(
        "remembered for the dedupe window",
        PENDING + CROWD + remembering(1000, x=-2000),
        calls.cancel(["r", "a", "a", "c", "t"]),
        "21003",
        CROWD + remembering(1000, a=0) + World(meta={"cancelled": 1}),
    ),
]
_SCHEMA = World(meta={"schema": 2})
CASES += [
    Case("what waits after what runs", LEASED + AFTER + CROWD, calls.cancel(["a"]), "4", LEASED + _SCHEMA + CROWD),
    Case("what waits, twice", LEASED + AFTER, calls.cancel(["a", "a"]), "42", LEASED + _SCHEMA),
    Case("what waits after what is about to be dead", GARBAGE + AFTER, calls.cancel(["a"]), "4", GARBAGE + _SCHEMA),
    Case("with what waits", BACKOFF + AFTER, calls.cancel(["a", "a"]), "10", _OUT + _SCHEMA),
    Case(
        "what waits for another stays",
        LEASED + AFTER.but(successors={"b": After(5, 1, "", "B")}),
        calls.cancel(["a"]),
        "2",
        LEASED + AFTER.but(successors={"b": After(5, 1, "", "B")}),
    ),
    Case(
        "what waits is not looked at while the schema is 1",
        LEASED + AFTER.but(meta={"schema": 1}),
        calls.cancel(["a"]),
        "2",
        LEASED + AFTER.but(meta={"schema": 1}),
    ),
]
CASES += [
    Case(
        "held from its end, which is the cancel",
        with_meta(PENDING.but(attributes={"a": "unique_after=600"}), reserved()),
        calls.cancel(["a"]),
        "1",
        with_meta(World(meta={"cancelled": 1}), reserved(a=600.5)),
    ),
    Case(
        "whoever waits for it is told",
        BACKOFF + World(waited={"a": 900, "b": 900}),
        calls.cancel(["a"]),
        "1",
        _OUT + World(waited={"b": 900}, ends=["a"]),
    ),
    Case(
        "whoever waits is told of a successor, once",
        BACKOFF + AFTER + World(waited={"a": 900}),
        calls.cancel(["a"]),
        "1",
        _OUT + _SCHEMA + World(ends=["a"]),
    ),
    Case(
        "whoever waits is told of the successor of a running one",
        LEASED + AFTER + World(waited={"a": 900}),
        calls.cancel(["a"]),
        "4",
        LEASED + _SCHEMA + World(ends=["a"]),
    ),
]
_ASKED = World(meta={"token": "T-3", "stopping": 1, "schema": 2})
_RUNNING = {"none": "", "one that reports its start": " +", "one that has not started": " ?", "one recalled": " -"}
CASES += [
    *(
        Case(f"asks to stop: {case.name}", case.before, calls.cancel(["a"], stop=True), case.reply, case.after)
        for case in _in_every_state()
        if case.name != "leased"
    ),
    *(
        Case(
            f"asks to stop, a consumer with the mark of {what}",
            LEASED.but(deliveries={"a": f"leased -5 2 T-9 T-7 w{mark}"}) + CROWD,
            calls.cancel(["a"], stop=True),
            "5",
            STOPPING.but(meta=_ASKED.meta) + CROWD,
        )
        for what, mark in _RUNNING.items()
    ),
    Case("asked to stop before", STOPPING + CROWD, calls.cancel(["a"], stop=True), "5", STOPPING + CROWD),
    Case("asked to stop by another", STOPPING + CROWD, calls.cancel(["a"]), "5", STOPPING + CROWD),
    Case("has stopped already", STOPPED + CROWD, calls.cancel(["a"]), "5", STOPPED + CROWD),
    Case("garbage is not asked to stop", GARBAGE + CROWD, calls.cancel(["a"], stop=True), "3", GARBAGE + CROWD),
    Case(
        "asks to stop and cancels what waits, twice in a call, which counts once",
        LEASED + AFTER,
        calls.cancel(["a", "a", "x"], stop=True),
        "550",
        STOPPING.but(meta=_ASKED.meta),
    ),
    Case(
        "asks several to stop, beside one that waits",
        _MANY,
        calls.cancel(["i", "b"], stop=True),
        "51",
        _MANY.but(
            pending={"a": 50},
            retries=dict.fromkeys("acdefghi", 3),
            messages=dict.fromkeys("acdefghi", "m"),
            deliveries={id: text for id, text in _MANY.deliveries.items() if id not in "bi"}
            | {"i": "leased -5 1 T-4 T-4 w *"},
            meta=_MANY.meta | {"cancelled": 4, "stopping": 1, "schema": 2},
        ),
    ),
    Case(
        "was asked to stop, and waits again since a repair",
        RESCHEDULED.but(deliveries={"a": "pending -5 2 T-9 T-7 w *"}) + CROWD,
        calls.cancel(["a"], stop=True),
        "1",
        _OUT + CROWD,
    ),
]
_COLD = World(meta={"schema": 8, "cold": 3})
CASES += [
    Case("may be cold", _COLD + CROWD, calls.cancel(["a"]), "6", _COLD.but(cold_changes={"a": f"- {NOW}"}) + CROWD),
    Case("may be cold, twice", _COLD, calls.cancel(["a", "a"]), "66", _COLD.but(cold_changes={"a": f"- {NOW}"})),
    Case(
        "brought back from the cold tier early",
        _COLD.but(cold_changes={"a": "- 5 done"}),
        calls.cancel(["a"]),
        "6",
        _COLD.but(cold_changes={"a": "- 5 done"}),
    ),
    Case("nothing is cold", World(meta={"schema": 8}), calls.cancel(["a"]), "0", World(meta={"schema": 8})),
    Case(
        "one that waits, and another may be cold",
        with_meta(PENDING, _COLD),
        calls.cancel(["a"]),
        "1",
        _COLD.but(meta=_COLD.meta | {"cancelled": 1}, cold_changes={"a": f"- {NOW}"}),
    ),
    Case(
        "one that waits, named twice, and another may be cold",
        with_meta(PENDING, _COLD),
        calls.cancel(["a", "a"]),
        "10",
        _COLD.but(meta=_COLD.meta | {"cancelled": 1}, cold_changes={"a": f"- {NOW}"}),
    ),
    Case(
        "one that is dead, and another may be cold",
        with_meta(DEAD, _COLD),
        calls.cancel(["a"]),
        "3",
        with_meta(DEAD, _COLD).but(cold_changes={"a": f"- {NOW}"}),
    ),
    Case("one that runs", with_meta(LEASED, _COLD), calls.cancel(["a"]), "2", with_meta(LEASED, _COLD)),
    Case(
        "in order: the place of its key is free",
        with_meta(BACKOFF, KEPT),
        calls.cancel(["a"]),
        "1",
        with_meta(_OUT, KEPT).but(running={}, gates={KEY: -NOW}, wake=1),
    ),
]
