"""`send`: fresh, existing, replaced, running and spent ids; due times, headers, wake-ups and the limit."""

from __future__ import annotations

from delayq.calls import Call, Outgoing
from delayq.errors import QueueFullError
from tests.lua.cases.states import CROWD, LEFTOVERS, STATES
from tests.support.scripts import NOW, Case, World, calls


def send(*messages: Outgoing, replace: bool = False, max_length: int | None = None) -> Call[str]:
    return calls.send(messages, replace=replace, max_length=max_length)


def out(id: str, due: int | str = 5000, retries: int = 3, payload: bytes = b"new", headers: bytes = b"") -> Outgoing:
    return Outgoing(id, due, retries, payload, headers)


def stored(**pending: int) -> World:
    """Return what messages sent by `out` leave in the queue."""
    return World(pending=pending, retries=dict.fromkeys(pending, 3), messages=dict.fromkeys(pending, "new"))


def _into_the_empty_queue() -> list[Case]:
    after = stored(a=5000).but(meta={"sent": 1}, wake=1)
    return [
        Case("one message", World(), send(out("a")), "1", after),
        Case("due at once", World(), send(out("a", 0)), "1", after.but(pending={"a": 0})),
        Case("due at an absolute time", World(), send(out("a", f"@{NOW + 7}")), "1", after.but(pending={"a": 7})),
        Case("due in the past", World(), send(out("a", f"@{NOW - 7}")), "1", after.but(pending={"a": -7})),
        Case(
            "due in a hundred years, to the millisecond",
            World(),
            send(out("a", 3_162_240_000_001)),
            "1",
            after.but(pending={"a": 3_162_240_000_001}),
        ),
        Case("no retries", World(), send(out("a", retries=0)), "1", after.but(retries={"a": 0})),
        Case("empty payload", World(), send(out("a", payload=b"")), "1", after.but(messages={"a": ""})),
        Case(
            "any bytes as payload and headers",
            World(),
            send(out("a", payload=b"\x00\r\n\xff", headers=b"\xfe\x00 ")),
            "1",
            after.but(messages={"a": "\x00\r\n\xff"}, headers={"a": "\xfe\x00 "}),
        ),
        Case(
            "some with headers",
            World(),
            send(out("a"), out("b", 6000, 4, b"B", b"hb"), out("c", 7000, 5, b"C")),
            "111",
            World(
                pending={"a": 5000, "b": 6000, "c": 7000},
                retries={"a": 3, "b": 4, "c": 5},
                messages={"a": "new", "b": "B", "c": "C"},
                headers={"b": "hb"},
                meta={"sent": 3},
                wake=1,
            ),
        ),
        Case(
            "an id twice in a batch is sent once, as it came first",
            World(),
            send(out("a"), out("b"), out("a", 1, 9, b"other", b"h")),
            "110",
            stored(a=5000, b=5000).but(meta={"sent": 2}, wake=1),
        ),
    ]


def _beside_others() -> list[Case]:
    there = stored(z=5000)
    return [
        Case(
            "one that is due later wakes nobody",
            there,
            send(out("a", 5001)),
            "1",
            stored(z=5000, a=5001).but(meta={"sent": 1}),
        ),
        Case(
            "one that is due at the same time wakes nobody",
            there,
            send(out("a", 5000)),
            "1",
            stored(z=5000, a=5000).but(meta={"sent": 1}),
        ),
        Case(
            "one that is due earlier wakes a consumer",
            there,
            send(out("b", 5001), out("a", 4999)),
            "11",
            stored(z=5000, a=4999, b=5001).but(meta={"sent": 2}, wake=1),
        ),
        Case(
            "a wake-up that is not taken yet is enough",
            there.but(wake=1),
            send(out("a", 4999)),
            "1",
            stored(z=5000, a=4999).but(meta={"sent": 1}, wake=1),
        ),
        Case(
            "counts add up",
            there.but(meta={"sent": 7, "token": "T-9"}),
            send(out("a", 6000), out("z")),
            "10",
            stored(z=5000, a=6000).but(meta={"sent": 8, "token": "T-9"}),
        ),
    ]


def _onto_every_state() -> list[Case]:
    """Send `a` where it is already, without replacing."""
    answers = {"garbage": "4", "dead": "1", "gone": "1"}
    cases = []
    for name, world in STATES.items():
        answer, after = answers.get(name, "0"), world + CROWD
        if answer == "1":
            after += stored(a=5000) + World(meta={"sent": 1}, wake=1)
        cases.append(Case(f"{name} before", world + CROWD, send(out("a")), answer, after))
    return cases


def _replacing_every_state() -> list[Case]:
    sent, new = stored(a=5000), World(wake=1)
    expected = {
        "pending": ("2", sent + new),
        "rescheduled": ("2", sent + new + World(meta={"token": "T-3"})),
        "ready": ("2", sent + new + World(ready=["a"], meta={"stale_ready": 1})),
        "released": ("2", sent + new + World(ready=["a"], meta={"token": "T-3", "stale_ready": 1})),
        "leased": ("3", STATES["leased"]),
        "backoff": ("2", sent + new + World(meta={"token": "T-3"})),
        "retry": ("2", sent + new + World(retry=["a"], meta={"token": "T-3", "stale_retry": 1})),
        "garbage": ("4", STATES["garbage"]),
        "dead": ("1", STATES["dead"] + sent + new + World(meta={"token": "T-3", "sent": 1})),
        "gone": ("1", sent + new + World(meta={"token": "T-3", "sent": 1})),
    }
    return [
        Case(f"replacing, {name} before", world + CROWD, send(out("a"), replace=True), answer, after + CROWD)
        for name, world in STATES.items()
        for answer, after in [expected[name]]
    ]


def _replacing() -> list[Case]:
    there = stored(a=5000, z=8000).but(headers={"a": "old"})
    return [
        Case(
            "replacing brings new headers",
            there,
            send(out("a", 5000, headers=b"new"), replace=True),
            "2",
            there.but(headers={"a": "new"}),
        ),
        Case(
            "replacing by one due later wakes nobody",
            there,
            send(out("a", 5001), replace=True),
            "2",
            stored(a=5001, z=8000),
        ),
        Case(
            "replacing by one due earlier wakes a consumer",
            there,
            send(out("a", 4999), replace=True),
            "2",
            stored(a=4999, z=8000).but(wake=1),
        ),
        Case(
            "replacing changes everything that was sent",
            there,
            send(out("a", 9000, 0, b"other", b"h"), replace=True),
            "2",
            World(
                pending={"a": 9000, "z": 8000},
                retries={"a": 0, "z": 3},
                messages={"a": "other", "z": "new"},
                headers={"a": "h"},
            ),
        ),
        Case(
            "an id twice in a batch is replaced once, as it came first",
            there,
            send(out("a", 6000), out("a", 7000), replace=True),
            "20",
            stored(a=6000, z=8000),
        ),
        Case(
            "replacing the only message there is, and it is running",
            STATES["leased"],
            send(out("a"), replace=True),
            "3",
            STATES["leased"],
        ),
        Case(
            "new, replaced, running and spent in one batch",
            World(
                unack={"r": 500},
                garbage={"g"},
                ready=["b"],
                retries={"r": 1, "g": 0, "b": 1},
                messages={"r": "R", "g": "G", "b": "B"},
                deliveries={"r": "leased -5 1 T-9 T-9 w", "g": "garbage -5 1 T-8 T-8 w", "b": "ready -5 0 0 0 -"},
            ),
            send(out("a"), out("r"), out("g"), out("b", 6000), replace=True),
            "1342",
            World(
                pending={"a": 5000, "b": 6000},
                unack={"r": 500},
                garbage={"g"},
                ready=["b"],
                retries={"r": 1, "g": 0, "a": 3, "b": 3},
                messages={"r": "R", "g": "G", "a": "new", "b": "new"},
                deliveries={"r": "leased -5 1 T-9 T-9 w", "g": "garbage -5 1 T-8 T-8 w"},
                meta={"sent": 1, "stale_ready": 1},
                wake=1,
            ),
        ),
    ]


def _limited() -> list[Case]:
    two = stored(y=1000, z=2000)
    return [
        Case(
            "up to the limit",
            two,
            send(out("a"), max_length=3),
            "1",
            two + stored(a=5000) + World(meta={"sent": 1}),
        ),
        Case("past the limit", two, send(out("a"), max_length=2), QueueFullError, two),
        Case("a batch past the limit, all of it", two, send(out("a"), out("b"), max_length=3), QueueFullError, two),
        Case("an existing id needs no room", two, send(out("z"), max_length=1), "0", two),
        Case(
            "a replaced one needs no room",
            two,
            send(out("z", 3000), replace=True, max_length=1),
            "2",
            stored(y=1000, z=3000),
        ),
        Case(
            "remains of messages take no room",
            two + LEFTOVERS,
            send(out("b"), max_length=3),
            "1",
            two + LEFTOVERS + stored(b=5000) + World(meta={"token": "T-3", "sent": 1}),
        ),
        Case(
            "remains of a message are no message",
            World(retries={"a": 9}, errors={"z": "e"}) + stored(y=1000),
            send(out("a", 500)),
            "1",
            stored(y=1000, a=500).but(errors={"z": "e"}, meta={"sent": 1}, wake=1),
        ),
        Case("a limit of one", World(), send(out("a"), out("b"), max_length=1), QueueFullError, World()),
        Case(
            "an id twice in a batch needs room once",
            two,
            send(out("a"), out("a"), max_length=3),
            "10",
            two + stored(a=5000) + World(meta={"sent": 1}),
        ),
    ]


CASES = [
    *_into_the_empty_queue(),
    *_beside_others(),
    *_onto_every_state(),
    *_replacing_every_state(),
    *_replacing(),
    *_limited(),
]
