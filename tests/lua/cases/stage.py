"""`stage`: claims for a reader of batches, stored under its next number. It claims as `ready_to_unack` does."""

from __future__ import annotations

from delayq.broker.requests import ScriptCall
from delayq.broker.staged import StageReply, stage_call
from tests.lua.cases.ready_to_unack import LEASE, ranked, waiting
from tests.lua.cases.states import logged
from tests.support.scripts import NOW, Case, World, calls

BEGUN = World(readers={"r run": "this"})


def stage(wanted: int = 9, *, run: str = "this", after: int = 0) -> ScriptCall[StageReply]:
    return stage_call(calls, wanted, lease=LEASE, consumer_id="me", reader="r", run=run, after=after)


def readers(text: str) -> dict[str, str]:
    return {"r run": "this", "r": text}


def _leased(ids: str, *, attempt: int = 1, first: str = "T+0", **others: object) -> World:
    """Return what is claimed of messages with one letter each."""
    return World(
        unack=dict.fromkeys(ids, LEASE),
        retries=dict.fromkeys(ids, 3),
        messages={id: id.upper() for id in ids},
        deliveries={
            id: f"leased -5 {attempt} {first if attempt > 1 else f'T+{n}'} T+{n} me" for n, id in enumerate(ids)
        },
        meta={"token": f"T+{len(ids) - 1}", "delivered": len(ids)},
    ).but(**others)


_AB = "1 T+0 -5 1 3 1 0 0; 1 T+1 -5 1 3 1 0 0|ab"
_PAUSED = {"paused": "0 lunch"}

_PLAIN = [
    Case(
        "all that is ready",
        waiting("ab") + BEGUN,
        stage(),
        StageReply(1, 2, 0, NOW),
        _leased("ab", readers=readers(f"1 1 0 {LEASE}"), staged={"r 1": _AB, "r 1 texts": "AB"}),
    ),
    Case(
        "a message again, with headers and attributes",
        waiting(retry="a", headers={"a": "ha"}, attributes={"a": "name=n"}) + BEGUN,
        stage(),
        StageReply(1, 1, 0, NOW),
        _leased(
            "a",
            attempt=2,
            first="T-9",
            headers={"a": "ha"},
            attributes={"a": "name=n"},
            readers=readers(f"1 1 0 {LEASE}"),
            staged={"r 1": "1 T+0 -5 2 3 1 2 6|a", "r 1 texts": "Ahaname=n"},
        ),
    ),
    *(
        Case(
            f"a message that may not start: {text}",
            waiting("a", attributes={"a": text}) + BEGUN,
            stage(),
            StageReply(1, 1, 0, NOW, unsure),
            _leased(
                "a",
                attributes={"a": text},
                readers=readers(f"1 1 0 {LEASE}"),
                staged={"r 1": f"1 T+0 -5 1 3 1 0 {len(text)}|a", "r 1 texts": f"A{text}"},
            ),
        )
        for text, unsure in {
            "expires=+5": 1,
            "name=n hours=09:00-10:00": 1,
            "joins=g": 1,
            "name=hours/joins:expires": 0,
        }.items()
    ),
    Case(
        "the next number, with others before it and another reader",
        waiting("ab") + BEGUN.but(readers=readers("3 4 -50 7") | {"s": "1 9 -5 7"}, staged={"r 4": "x", "s 9": "y"}),
        stage(),
        StageReply(5, 2, 0, NOW),
        _leased(
            "ab",
            readers=readers(f"3 5 0 {LEASE}") | {"s": "1 9 -5 7"},
            staged={"r 4": "x", "s 9": "y", "r 5": _AB, "r 5 texts": "AB"},
        ),
    ),
    Case(
        "a number after those of a checkpoint that knows more than the server",
        waiting("ab") + BEGUN.but(readers=readers("3 4 -50 7")),
        stage(after=6),
        StageReply(7, 2, 0, NOW),
        _leased("ab", readers=readers(f"3 7 0 {LEASE}"), staged={"r 7": _AB, "r 7 texts": "AB"}),
    ),
    Case(
        "a reader that the server has forgotten",
        waiting("ab") + BEGUN,
        stage(after=6),
        StageReply(7, 2, 0, NOW),
        _leased("ab", readers=readers(f"7 7 0 {LEASE}"), staged={"r 7": _AB, "r 7 texts": "AB"}),
    ),
    Case(
        "a state whose first number is beyond the last",
        waiting("ab") + BEGUN.but(readers=readers("9 4 -50 7")),
        stage(),
        StageReply(5, 2, 0, NOW),
        _leased("ab", readers=readers(f"5 5 0 {LEASE}"), staged={"r 5": _AB, "r 5 texts": "AB"}),
    ),
    Case(
        "texts that are no state of a reader",
        waiting("ab") + BEGUN.but(readers=readers("gibberish")),
        stage(),
        StageReply(1, 2, 0, NOW),
        _leased("ab", readers=readers(f"1 1 0 {LEASE}"), staged={"r 1": _AB, "r 1 texts": "AB"}),
    ),
]

_NOTHING = [
    Case(
        "nothing is due",
        BEGUN.but(readers=readers("3 4 -50 7")),
        stage(),
        StageReply(4, 0, 0, NOW),
        BEGUN.but(readers=readers(f"3 4 0 {LEASE}")),
    ),
    Case(
        "in a pause",
        waiting("a", meta=_PAUSED) + BEGUN,
        stage(after=2),
        StageReply(2, 0, 0, NOW),
        waiting("a", meta=_PAUSED) + BEGUN.but(readers=readers(f"3 2 0 {LEASE}")),
    ),
    Case(
        "a run that another has followed",
        waiting("a") + BEGUN,
        stage(run="former"),
        StageReply(-1, 0, 0, NOW),
        waiting("a") + BEGUN,
    ),
    Case("a reader that has not begun", waiting("a"), stage(), StageReply(-1, 0, 0, NOW), waiting("a")),
]

_LEFT = [
    Case(
        "as many as are wanted, by rank",
        ranked(a=-60_005, b=-60_004) + BEGUN,
        stage(1),
        StageReply(1, 1, 1, NOW),
        World(
            ranked={"b": -60_004},
            unack={"a": LEASE},
            retries={"a": 3, "b": 3},
            messages={"a": "A", "b": "B"},
            attributes={"a": "priority=1", "b": "priority=1"},
            deliveries={"a": "leased -5 1 T+0 T+0 me", "b": "ranked -5 0 0 0 -"},
            meta={"priority_step": 60_000, "token": "T+0", "delivered": 1},
            wake=1,
            readers=readers(f"1 1 0 {LEASE}"),
            staged={"r 1": "1 T+0 -5 1 3 1 0 10|a", "r 1 texts": "Apriority=1"},
        ),
    ),
]

CASES = [
    *_PLAIN,
    *_NOTHING,
    *_LEFT,
    *logged(
        _PLAIN[:1],
        {
            "all that is ready": [
                "delivered 0; holder me; ids a b; tokens T+0 T+1; dues -5 -5; attempts 1 1; retries 3 3"
            ]
        },
    ),
]
