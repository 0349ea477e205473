"""`recount`: counters that say what there is, and one wake-up at most."""

from __future__ import annotations

from delayq.queue.repairing.repair import recount_call
from tests.lua.cases.states import (
    BACKOFF,
    CROWD,
    GARBAGE,
    KEY,
    LEASED,
    READY,
    RETRY,
    STATES,
    THROTTLED,
)
from tests.support.scripts import LOG, NOW, Case, World, calls


def _counts(world: World, **right: int) -> World:
    return world.but(meta=world.meta | right)


def _mended(name: str, before: World, reply: tuple[int, ...], after: World, limit: int = 5) -> Case:
    return Case(name, before, recount_call(calls, fix=True, limit=limit), reply, after)


_STALE = World(
    ready=["p", "a", "a", "b", "x"],
    retry=["c", "a", "c"],
    unack={"d": 5, "e": 6},
    messages=dict.fromkeys("abcdep", "m"),
    deliveries={
        "a": "ready -5 1 T-9 T-9 w",
        "b": "ready -5 1 T-9 T-9 w",
        "c": "retry -5 1 T-9 T-9 w",
        "d": "backoff -5 1 T-9 T-9 w",
        "e": "leased -5 1 T-9 T-9 w",
    },
    meta={"stale_ready": 3, "stale_retry": 2, "backoffs": 1},
)
_WRONG = _counts(_STALE, stale_ready=7, stale_retry=-1, backoffs=3)
_UNCOUNTED = _STALE.but(meta={})

CASES = [
    *(
        Case(f"right: {name}", world + CROWD, recount_call(calls, fix=True), (0, 0, 0, 0, 0), world + CROWD)
        for name, world in STATES.items()
    ),
    Case("right with stale entries", _STALE, recount_call(calls, fix=True), (0, 0, 0, 0, 0), _STALE),
    _mended("too high and too low", _WRONG, (4, -3, 2, 0, 0), _STALE),
    _mended("none where some should be", _UNCOUNTED, (-3, -2, -1, 0, 0), _STALE),
    _mended(
        "nothing there", World(meta={"stale_ready": 2, "stale_retry": -3, "backoffs": 1}), (2, -3, 1, 0, 0), World()
    ),
    _mended(
        "beyond what is counted, within bounds",
        _counts(_STALE, stale_ready=5),
        (0, 0, 0, 0, 0),
        _counts(_STALE, stale_ready=5),
        1,
    ),
    _mended(
        "beyond what is counted, too high",
        _WRONG,
        (2, -1, 1, 0, 0),
        _counts(_STALE, stale_ready=5, stale_retry=0, backoffs=2),
        1,
    ),
    _mended("beyond what is counted, without a counter", _UNCOUNTED, (0, 0, 0, 0, 0), _UNCOUNTED, 1),
    _mended("just counted", _counts(_STALE, stale_ready=5, backoffs=2), (2, 0, 1, 0, 0), _STALE),
    _mended("one wake-up more than one", READY.but(wake=2), (0, 0, 0, 1, 0), READY.but(wake=1)),
    _mended("wake-ups", READY.but(meta=LOG, wake=3), (0, 0, 0, 2, 0), READY.but(meta=LOG, wake=1)),
    _mended("a backoff that is not counted", BACKOFF.but(meta={}), (0, 0, -1, 0, 0), BACKOFF.but(meta={"backoffs": 1})),
    _mended("a lease that is counted", _counts(LEASED, backoffs=1), (0, 0, 1, 0, 0), LEASED),
    _mended("a stale entry that lives", _counts(RETRY, stale_retry=1), (0, 1, 0, 0, 0), RETRY),
    Case("garbage is no matter", GARBAGE, recount_call(calls, fix=True), (0, 0, 0, 0, 0), GARBAGE),
    _mended("a line without a gate", THROTTLED.but(gates={}), (0, 0, 0, 0, 1), THROTTLED.but(gates={1: -NOW})),
    _mended(
        "lines without gates, and one with",
        THROTTLED.but(throttled={"a": (1, -5), "b": (3, 0), "c": (3, 1), "d": (8000, 2)}),
        (0, 0, 0, 0, 2),
        THROTTLED.but(
            throttled={"a": (1, -5), "b": (3, 0), "c": (3, 1), "d": (8000, 2)}, gates={1: 900, 3: -NOW, 8000: -NOW}
        ),
    ),
    _mended(
        "what is throttled, and no claim looks for it",
        THROTTLED.but(meta={"token": "T-3"}),
        (0, 0, 0, 0, 1),
        THROTTLED.but(meta={"token": "T-3", "limited": "running"}),
    ),
]
_KEYED = World(
    throttled={"a": (8001, -5), "b": (8001, -5), "c": (8001, -5)},
    key_lines={(KEY, -5, "a"), (KEY, -4, "b"), (KEY + 2, -5, "c")},
    limits={"key:k:*": "8001 0 1 1 0 - 0 0 0"},
    meta={"limited": "running k:*", "schema": 2},
)
_OPENED = _KEYED.but(gates={KEY: None, KEY + 2: -NOW})
CASES += [
    _mended(
        "the line of a key without a gate",
        _KEYED.but(gates={KEY: None}),
        (0, 0, 0, 0, 1),
        _KEYED.but(gates={KEY: None, KEY + 2: -NOW}),
    ),
    _mended("lines of keys without gates", _KEYED, (0, 0, 0, 0, 2), _KEYED.but(gates={KEY: -NOW, KEY + 2: -NOW})),
    _mended(
        "what waits for its key, and no claim looks for it",
        _KEYED.but(gates={KEY: None, KEY + 2: None}, meta={}),
        (0, 0, 0, 0, 1),
        _KEYED.but(gates={KEY: None, KEY + 2: None}, meta={"limited": "running k:*"}),
    ),
]
