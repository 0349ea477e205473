"""`join`: what is leased is done, and its payload is one of its group's, in one step."""

from __future__ import annotations

from delayq.broker.requests import ScriptCall
from delayq.worker.delivery.joining import Joined, join_call
from tests.lua.cases.groups import ROOM, SPECIAL, Group, following, gathering
from tests.lua.cases.states import (
    AFTER,
    CROWD,
    FOLLOWED,
    FREED,
    GONE,
    LEASED,
    PLACED,
    STATES,
    keyed,
    logged,
    remembering,
    reserved,
    with_meta,
)
from tests.support.scripts import Case, T, World, calls


def row(
    id: str = "a",
    token: int = T - 7,
    group: str = "g",
    *,
    at_most: int | str = "",
    headers: bytes = b"",
    attributes: bytes = b"collect=3",
    entry: bytes = b",0",
) -> Joined:
    return Joined(id, token, group, 5000, at_most, 3, headers, attributes, entry)


def join(*rows: Joined) -> ScriptCall[str]:
    return join_call(calls, ROOM, rows or (row(),))


_DONE = World(meta={"token": "T-3", "acked": 1})
_NEW = with_meta(gathering(Group(), id="g"), World(meta={"sent": 1}, wake=1))
_JOINED = with_meta(_DONE, _NEW)
_TWO = World(
    unack={"a": 500, "b": 600},
    retries={"a": 1, "b": 1},
    messages={"a": "m", "b": "m"},
    deliveries={"a": "leased -5 1 T-9 T-9 w", "b": "leased -5 1 T-8 T-8 w"},
    meta={"acked": 4},
)
_NEITHER = World(meta={"acked": 6})


def _left(id: str) -> World:
    """Return what is left of the two when the other one is done."""
    parts = ("unack", "retries", "messages", "deliveries")
    return World(meta={"acked": 5}, **{part: {id: getattr(_TWO, part)[id]} for part in parts})


_BUSY = World(
    unack={"g": 700}, retries={"g": 1}, messages={"g": "m"}, deliveries={"g": "leased -5 1 T-6 T-6 w"}, meta=GONE.meta
)
"""The group is being delivered, and gathers no more."""
_DYING = World(garbage={"g"}, messages={"g": "m"}, deliveries={"g": "garbage -5 1 T-6 T-6 w"}, meta=GONE.meta)

CASES = [
    *(
        Case(
            name,
            world + CROWD,
            join(),
            "1" if name == "leased" else "0",
            (_JOINED if name == "leased" else world) + CROWD,
        )
        for name, world in STATES.items()
    ),
    Case("an earlier receipt of this life", LEASED, join(row(token=T - 9)), "0", LEASED),
    Case("a receipt that was never given", LEASED, join(row(token=T - 6)), "0", LEASED),
    Case("a receipt twice", LEASED, join(row(), row()), "10", _JOINED),
    Case(
        "with headers and other attributes",
        LEASED,
        join(row(headers=b"h", attributes=b"name=n collect=3")),
        "1",
        with_meta(_DONE, gathering(Group(more="name=n "), id="g"), World(headers={"g": "h"}, meta={"sent": 1}, wake=1)),
    ),
    Case(
        "due earlier",
        LEASED,
        join(row(at_most=4000)),
        "1",
        with_meta(_DONE, gathering(Group(due=4000), id="g"), World(meta={"sent": 1}, wake=1)),
    ),
    Case(
        "two of one group",
        _TWO,
        join(row("a", T - 9), row("b", T - 8, entry=b",1")),
        "11",
        with_meta(_NEITHER, gathering(Group(2), id="g"), World(meta={"sent": 1}, wake=1)),
    ),
    Case(
        "two of two groups",
        _TWO,
        join(row("a", T - 9), row("b", T - 8, "h")),
        "11",
        with_meta(_NEITHER, gathering(Group(), id="g"), World(meta={"sent": 2}, wake=1))
        + gathering(Group(), id="h").but(meta={}),
    ),
    Case(
        "one of two",
        _TWO,
        join(row("a", T - 9), row("b", T - 7)),
        "10",
        with_meta(
            _left("b"),
            _NEW,
        ),
    ),
    Case(
        "the group of another, for the next call",
        _TWO,
        join(row("a", T - 9, "b"), row("b", T - 8)),
        "1",
        with_meta(
            _left("b"),
            following(Group(), id="b"),
        ),
    ),
    Case(
        "to the group of one that has joined another, for the next call",
        _TWO,
        join(row("b", T - 8), row("a", T - 9, "b")),
        "1",
        with_meta(
            _left("a"),
            _NEW,
        ),
    ),
    Case(
        "to what gathers",
        with_meta(LEASED, gathering(Group(due=4000, since=-1000), id="g")),
        join(row(entry=b",1", headers=b"h", attributes=b"collect=9")),
        "1",
        with_meta(_DONE, gathering(Group(2, since=-1000), id="g")),
    ),
    Case(
        "the last of a batch",
        with_meta(LEASED, gathering(Group(2, due=4000, since=-1000), id="g")),
        join(row(entry=b",2")),
        "1",
        with_meta(_DONE, gathering(Group(3, due=0, since=-1000), id="g"), World(wake=1)),
    ),
    Case(
        "beside what is delivered",
        with_meta(LEASED, _BUSY).but(unack={"a": 30_000, "g": 700}),
        join(),
        "1",
        with_meta(_DONE, _BUSY, following(Group(), id="g")),
    ),
    Case(
        "beside what is about to die",
        with_meta(LEASED, _DYING),
        join(),
        "1",
        with_meta(_DONE, _DYING, following(Group(), id="g")),
    ),
    Case(
        "what waits follows",
        LEASED + AFTER,
        join(),
        "1",
        with_meta(FOLLOWED, _JOINED, World(meta={"sent": 2})).but(wake=1),
    ),
    Case(
        "its place is free",
        with_meta(LEASED, PLACED),
        join(),
        "1",
        with_meta(_JOINED, FREED, World(meta=SPECIAL)).but(wake=1),
    ),
    Case(
        "remembered for the dedupe window",
        LEASED + remembering(1000),
        join(),
        "1",
        with_meta(_JOINED, remembering(1000, a=0)),
    ),
    Case(
        "held from its end",
        with_meta(LEASED.but(attributes={"a": "unique_after=600"}), reserved()),
        join(),
        "1",
        with_meta(_JOINED, reserved(a=600.5)),
    ),
]
CASES += keyed(CASES)
CASES += logged(
    CASES,
    {
        "gone": [],
        "leased": ["acked 0; ids a; tokens T-7", "sent 0; ids g; dues 5000; retries 3"],
        "the last of a batch": ["acked 0; ids a; tokens T-7", "replaced 0; ids g; dues 0; retries 3"],
        "what waits follows": [
            "acked 0; ids a; tokens T-7",
            "sent 0; ids a; dues 7000; retries 3",
            "sent 0; ids g; dues 5000; retries 3",
        ],
        "beside what is about to die": ["acked 0; ids a; tokens T-7"],
    },
)
