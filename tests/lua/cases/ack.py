"""`ack`: the first receipt of this life wins, late or not."""

from __future__ import annotations

from delayq.calls import Receipt
from tests.lua.cases.states import BACKOFF, CROWD, LEASED, READY, RETRY, STATES
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
    def case(name: str, world: World, token: int, answer: str) -> Case:
        after = _DONE if answer == "1" else world
        return Case(name, world + CROWD, calls.ack([Receipt("a", token)]), answer, after + CROWD)

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
