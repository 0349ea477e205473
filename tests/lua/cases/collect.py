"""`collect`: payloads of one id gather in one message, until it is full or due; then in its successor."""

from __future__ import annotations

from delayq.broker.calls import Debounced
from delayq.broker.message.same_id import Debounce
from delayq.broker.requests import Outgoing, ScriptCall
from delayq.errors import QueueFullError
from delayq.queue.sending.collecting import collect_call
from tests.lua.cases.groups import ROOM, Group, following, gathering
from tests.lua.cases.states import (
    BACKOFF,
    CROWD,
    GARBAGE,
    LEASED,
    LEFTOVERS,
    PENDING,
    READY,
    RETRY,
    logged,
    remembering,
    with_meta,
)
from tests.support.scripts import NOW, After, Case, World, calls


def row(payload: bytes = b",0", id: str = "a", *, headers: bytes = b"", attributes: bytes = b"collect=3") -> Outgoing:
    return Outgoing(id, 0, 3, payload, headers, attributes)


def collect(*rows: Outgoing, at_most: int | None = None, max_length: int | None = None) -> ScriptCall[list[Debounced]]:
    how = Debounce(5000, at_most, 3)
    return collect_call(calls, rows or (row(),), how, max_length=max_length, max_payload=ROOM)


def found(*statuses: str) -> list[Debounced]:
    """Return what a call replies: "1 5000" for a new one that is due in 5 s."""
    texts = [status.split(" ") for status in statuses]
    return [Debounced(text, f"@{NOW + int(due[0])}" if due else 0, 1, unstarted=False) for text, *due in texts]


_FIRST = with_meta(gathering(Group()), World(meta={"sent": 1}, wake=1))
_WIDE = b"," + b"9" * 27

CASES = [
    Case("the first", World(), collect(), found("1 5000"), _FIRST),
    Case("the first, among others", CROWD, collect(), found("1 5000"), _FIRST + CROWD),
    Case(
        "the first, over leftovers",
        LEFTOVERS,
        collect(),
        found("1 5000"),
        LEFTOVERS.but(
            **{
                name: getattr(_FIRST, name)
                for name in ("pending", "retries", "messages", "attributes", "gathered", "wake")
            },
            meta=LEFTOVERS.meta | _FIRST.meta,
        ),
    ),
    Case(
        "the first, with headers and other attributes",
        World(),
        collect(row(headers=b"h", attributes=b"name=n collect=3")),
        found("1 5000"),
        with_meta(gathering(Group(more="name=n ")), World(headers={"a": "h"}, meta={"sent": 1}, wake=1)),
    ),
    Case(
        "the first, due earlier",
        World(),
        collect(at_most=4000),
        found("1 4000"),
        with_meta(gathering(Group(due=4000)), World(meta={"sent": 1}, wake=1)),
    ),
    Case(
        "the only one of its batch",
        World(),
        collect(row(attributes=b"collect=1")),
        found("1 0"),
        with_meta(gathering(Group(due=0, most=1)), World(meta={"sent": 1}, wake=1)),
    ),
    Case(
        "added, with other options, which do not count",
        gathering(Group(due=4000, since=-1000)),
        collect(row(b",1", headers=b"h", attributes=b"name=n collect=9")),
        found("7 5000"),
        gathering(Group(2, due=5000, since=-1000)),
    ),
    Case(
        "added, at the latest to the limit",
        gathering(Group(due=4000, since=-1000)),
        collect(row(b",1"), at_most=5500),
        found("7 4500"),
        gathering(Group(2, due=4500, since=-1000)),
    ),
    Case(
        "added, and full",
        gathering(Group(2, due=4000, since=-1000)),
        collect(row(b",2")),
        found("7 0"),
        with_meta(gathering(Group(3, due=0, since=-1000)), World(wake=1)),
    ),
    Case(
        "added behind a full batch",
        gathering(Group(3, due=-5, since=-1000)),
        collect(row(b",3")),
        found("7 5000"),
        gathering(Group(4, last=1), due=-5),
    ),
    Case(
        "added behind a batch that is full of bytes, and so due",
        gathering(Group(2, due=4000, since=-1000)),
        collect(row(_WIDE)),
        found("7 5000"),
        with_meta(gathering(Group(3, last=1, size=29), due=0), World(wake=1)).but(
            gathered={"a 0": ",0", "a 1": ",1", "a 2": _WIDE.decode()}
        ),
    ),
    Case(
        "larger than a batch",
        World(),
        collect(row(_WIDE + b"999")),
        found("1 5000"),
        _FIRST.but(attributes={"a": Group(size=32).text()}, gathered={"a 0": _WIDE.decode() + "999"}),
    ),
    Case(
        "several of two groups",
        World(),
        collect(row(), row(b",0", "b"), row(b",1"), row(b",1", "b"), row(b",2"), row(b",3")),
        found("1 5000", "1 5000", "7 5000", "7 5000", "7 0", "7 5000"),
        World(
            pending={"a": 0, "b": 5000},
            retries={"a": 3, "b": 3},
            messages={"a": "", "b": ""},
            attributes={"a": Group(4, last=1).text(), "b": Group(2).text()},
            gathered={"a 0": ",0", "a 1": ",1", "a 2": ",2", "a 3": ",3", "b 0": ",0", "b 1": ",1"},
            meta={"schema": 6, "priority_step": 60_000, "sent": 2},
            wake=1,
        ),
    ),
    *(
        Case(
            f"beside one that gathers no more: {name}",
            world + CROWD,
            collect(),
            found("6 5000"),
            with_meta(world, following(Group())) + CROWD,
        )
        for name, world in {
            "pending": PENDING,
            "ready": READY,
            "backoff": BACKOFF,
            "retry": RETRY,
            "leased": LEASED,
            "about to die": GARBAGE,
        }.items()
    ),
    Case(
        "to the successor",
        with_meta(LEASED, following(Group(due=4000, since=-1000))),
        collect(row(b",1", headers=b"h")),
        found("6 5000"),
        with_meta(LEASED, following(Group(2, due=5000, since=-1000))),
    ),
    Case(
        "to the successor, and full",
        with_meta(LEASED, following(Group(2, due=4000, since=-1000))),
        collect(row(b",2")),
        found("6 0"),
        with_meta(LEASED, following(Group(3, due=0, since=-1000))),
    ),
    Case(
        "to the successor, behind a full batch",
        with_meta(LEASED, following(Group(3, due=-5, since=-1000))),
        collect(row(b",3"), row(b",4")),
        found("6 5000", "6 5000"),
        with_meta(LEASED, following(Group(5, last=2), due=-5)),
    ),
    Case(
        "in place of a successor that gathers nothing",
        with_meta(LEASED, World(successors={"a": After(9, 2, "h", "old", "name=b")}, meta={"schema": 2})),
        collect(),
        found("6 5000"),
        with_meta(LEASED, following(Group())),
    ),
    Case(
        "settled within the dedupe window: what is new is not refused",
        remembering(1000, a=-1),
        collect(),
        found("1 5000"),
        with_meta(remembering(1000, a=-1), _FIRST),
    ),
    Case(
        "no room",
        PENDING.but(messages={"b": "B"}),
        collect(max_length=1),
        QueueFullError,
        PENDING.but(messages={"b": "B"}),
    ),
    Case(
        "added: no room needed",
        gathering(Group(due=4000)),
        collect(row(b",1"), max_length=1),
        found("7 5000"),
        gathering(Group(2)),
    ),
]
CASES += logged(
    CASES,
    {
        "the first": ["sent 0; ids a; dues 5000; retries 3"],
        "added, and full": ["replaced 0; ids a; dues 0; retries 3"],
        "added behind a full batch": [],
        "to the successor": [],
        "no room": [],
    },
)
