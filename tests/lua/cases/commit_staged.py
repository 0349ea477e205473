"""`commit_staged`: acknowledges what is staged under a number, if it is still leased under its token."""

from __future__ import annotations

from delayq.broker.requests import ScriptCall
from delayq.broker.staged import CommitReply, commit_staged_call
from tests.lua.cases.states import BACKOFF, CROWD, LEASED, READY, RETRY, STATES, STOPPING, logged
from tests.support.scripts import Case, World, calls

READER = World(
    readers={"r run": "this", "r": "4 6 -50 7", "s": "4 4 -50 7"},
    staged={
        "r 4": "1 T-7 -5 2 2 1 2 6|a",
        "r 4 texts": "Ahaname=a",
        "r 4 withheld": "3",
        "r 5": "1 T-1 -5 2 2 1 0 0|x",
        "r 5 texts": "X",
        "s 4": "1 T-2 -5 2 2 1 0 0|y",
        "s 4 texts": "Y",
    },
)


def _left(*numbers: int, reader: str = "5 6 -50 7") -> World:
    """Return what is left of the reader without these numbers."""
    gone = {f"r {number}{what}" for number in numbers for what in ("", " texts", " withheld")}
    return World(
        readers=READER.readers | {"r": reader},
        staged={name: text for name, text in READER.staged.items() if name not in gone},
    )


def commit(number: int = 4, *, run: str = "this") -> ScriptCall[CommitReply]:
    return commit_staged_call(calls, number, reader="r", run=run)


_DONE = World(meta={"token": "T-3", "acked": 1})
_ACKED = Case("leased", LEASED + READER + CROWD, commit(), CommitReply(1, 0, 0), _DONE + _left(4) + CROWD)
_HELD = {"leased", "stopping"}
"""States in which the token of the reader is that of a lease."""


def _in_every_state() -> list[Case]:
    return [
        Case(name, world + READER + CROWD, commit(), CommitReply(0, 0, 0), world + _left(4) + CROWD)
        for name, world in STATES.items()
        if name not in _HELD
    ]


def _again(record: str) -> World:
    return LEASED.but(deliveries={"a": record})


CASES = [
    _ACKED,
    *_in_every_state(),
    Case("asked to stop", STOPPING + READER, commit(), CommitReply(1, 0, 0), _DONE + _left(4)),
    *(
        Case(f"claimed again, {name}", world + READER, commit(), CommitReply(0, 1, 0), world + _left(4))
        for name, world in {
            "leased": _again("leased -5 3 T-9 T-4 v"),
            "waiting": RETRY.but(deliveries={"a": "retry -5 3 T-9 T-4 v"}),
            "in this life alone": _again("leased -5 3 T-7 T-6 v"),
            "failed": BACKOFF.but(deliveries={"a": "backoff -5 3 T-9 T-4 v"}),
        }.items()
    ),
    Case(
        "another life of the id, which was not delivered",
        READY.but(deliveries={"a": "ready -5 0 0 T-4 v"}) + READER,
        commit(),
        CommitReply(0, 0, 0),
        READY.but(deliveries={"a": "ready -5 0 0 T-4 v"}) + _left(4),
    ),
    Case(
        "another life of the id",
        _again("leased -5 3 T-6 T-4 v") + READER,
        commit(),
        CommitReply(0, 0, 0),
        _again("leased -5 3 T-6 T-4 v") + _left(4),
    ),
    Case(
        "a number that is not the first",
        LEASED + READER,
        commit(5),
        CommitReply(0, 0, 0),
        LEASED + _left(5, reader="4 6 -50 7"),
    ),
    Case("a number without anything", LEASED + READER, commit(6), CommitReply(0, 0, 0), LEASED + READER),
    Case(
        "a run that another has followed", LEASED + READER, commit(run="former"), CommitReply(-1, 0, 0), LEASED + READER
    ),
    Case("a reader that the server has forgotten", LEASED, commit(), CommitReply(-1, 0, 0), LEASED),
    Case(
        "texts that are no state of a reader",
        LEASED + READER.but(readers={"r run": "this", "r": "gibberish"}),
        commit(),
        CommitReply(1, 0, 0),
        _DONE + _left(4).but(readers={"r run": "this", "r": "gibberish"}),
    ),
    *logged([_ACKED], {"leased": ["acked 0; ids a; tokens T-7"]}),
]
