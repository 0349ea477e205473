"""`edit`: what waits is changed where it is, if it is still what was read."""

from __future__ import annotations

from typing import Any

from delayq.broker.replies import GetReply
from delayq.broker.requests import ScriptCall
from delayq.queue.sweeps.editing import Edit, edit_call
from tests.lua.cases.groups import Group, gathering
from tests.lua.cases.states import (
    BACKOFF,
    CROWD,
    DEAD,
    GARBAGE,
    KEPT,
    LEASED,
    LEFTOVERS,
    LIMITED,
    PENDING,
    RANKED,
    READY,
    RETRY,
    STATES,
    STOPPED,
    STOPPING,
    THROTTLED,
    logged,
    with_meta,
)
from tests.support.scripts import NOW, Case, World, calls

_NEW = Edit(b"new", None, None, None, None)
_NOTHING = GetReply(b"", "", "", "", "", b"", b"", "", "", b"", "", b"", NOW)
_STATUSES = {"leased": "2", "garbage": "3", "dead": "3", "gone": "0"}
_READ = {"record": "backoff 0 2 0 0 w", "payload": b"A", "headers": b"ha"}


def edit(change: Edit = _NEW, before: str = "name=a", after: str | None = None, **how: Any) -> ScriptCall[str]:
    """Return the call for `a`, whose attributes were read."""
    reading = {name: how.pop(name) for name in ("record", "payload", "headers") if name in how}
    read = _NOTHING._replace(attributes=before.encode(), **reading)
    return edit_call(calls, "a", change, read, (before if after is None else after).encode(), **how)


def _text(world: World) -> str:
    return world.attributes.get("a", "name=a")


def _with(world: World, **parts: Any) -> World:
    return world.but(**{part: {**getattr(world, part), "a": value} for part, value in parts.items()})


_UNRANKED = RANKED.but(attributes={"a": "name=a"})
_HIGH = {"change": Edit(None, None, None, 2, None), "after": "name=a priority=2", "reranks": 2}
_OTHER = {"change": Edit(None, None, "b", None, None), "after": "name=b", "reranks": 1}
_STEP = World(meta={"schema": 2, "priority_step": 60_000})


def _ranked(world: World, mark: str = "", attempts: str = "2 T-9 T-7 w", text: str = "name=a priority=2") -> World:
    """Return what is ranked by the priority 2 then, and was in another place."""
    ranked = -120_005 if "priority" in text else -5
    return with_meta(
        world.but(
            ranked={"a": ranked},
            throttled={},
            attributes={"a": text},
            deliveries={"a": f"ranked -5 {attempts}{mark}"},
            wake=1,
        ),
        _STEP,
    )


_FRESH = READY.but(meta={"stale_ready": 1})

CASES = [
    *(
        Case(
            name,
            world + CROWD,
            edit(before=_text(world)),
            _STATUSES.get(name, "1"),
            world + CROWD if name in _STATUSES else _with(world + CROWD, messages="new"),
        )
        for name, world in STATES.items()
    ),
    Case("running, and dead before", LEASED + DEAD, edit(), "2", LEASED + DEAD),
    Case("alive, and dead before", PENDING + DEAD, edit(), "1", _with(PENDING, messages="new") + DEAD),
    Case("stopping", STOPPING, edit(), "2", STOPPING),
    Case("has stopped", STOPPED, edit(), "3", STOPPED),
    Case("not a message, but remains of one", LEFTOVERS + CROWD, edit(), "0", LEFTOVERS + CROWD),
    Case("other attributes than were read", PENDING, edit(before="name=b"), "4", PENDING),
    Case("attributes where none were read", PENDING, edit(before=""), "4", PENDING),
    Case(
        "no attributes, with a record or without",
        World(pending={"a": 5}, messages={"a": "A"}),
        edit(before=""),
        "1",
        World(pending={"a": 5}, messages={"a": "new"}),
    ),
    Case(
        "the first attributes",
        World(pending={"a": 5}, messages={"a": "A"}, meta={"schema": 3}),
        edit(Edit(None, None, "b", None, None), "", "name=b", reranks=1),
        "1",
        World(pending={"a": 5}, messages={"a": "A"}, attributes={"a": "name=b"}, meta={"schema": 4}),
    ),
    Case(
        "the first priority",
        World(pending={"a": 5}, messages={"a": "A"}, meta={"schema": 1}),
        edit(Edit(None, None, None, -1, None), "", "priority=-1", reranks=2),
        "1",
        World(
            pending={"a": 5},
            messages={"a": "A"},
            attributes={"a": "priority=-1"},
            meta={"schema": 2, "priority_step": 60_000},
        ),
    ),
    Case(
        "no attributes any more",
        BACKOFF.but(attributes={"a": "priority=3"}),
        edit(Edit(None, None, None, 0, None), "priority=3", "", reranks=2),
        "1",
        BACKOFF.but(attributes={}),
    ),
    Case(
        "payload and headers",
        PENDING,
        edit(Edit(b"", b"hn", None, None, None)),
        "1",
        _with(PENDING, messages="", headers="hn"),
    ),
    Case(
        "the first headers",
        PENDING.but(headers={}),
        edit(Edit(None, b"hn", None, None, None)),
        "1",
        _with(PENDING, headers="hn"),
    ),
    Case("no headers any more", PENDING, edit(Edit(None, b"", None, None, None)), "1", PENDING.but(headers={})),
    Case("all is as it was read", BACKOFF, edit(compares=True, **_READ), "1", _with(BACKOFF, messages="new")),
    Case(
        "never delivered, as it was read",
        PENDING,
        edit(compares=True, payload=b"A", headers=b"ha"),
        "1",
        _with(PENDING, messages="new"),
    ),
    Case("another payload than was read", BACKOFF, edit(compares=True, **_READ | {"payload": b"B"}), "4", BACKOFF),
    Case("other headers than were read", BACKOFF, edit(compares=True, **_READ | {"headers": b""}), "4", BACKOFF),
    Case(
        "delivered since it was read",
        BACKOFF,
        edit(compares=True, **_READ | {"record": "backoff 0 1 0 0 w"}),
        "4",
        BACKOFF,
    ),
    Case(
        "delivered since, which does not matter",
        BACKOFF,
        edit(**_READ | {"record": "pending 0 0 0 0 -"}),
        "1",
        _with(BACKOFF, messages="new"),
    ),
    Case(
        "no headers, as was read",
        PENDING.but(headers={}),
        edit(compares=True, payload=b"A"),
        "1",
        _with(PENDING, messages="new").but(headers={}),
    ),
    Case(
        "a group keeps what it gathers",
        gathering(Group()),
        edit(
            Edit(None, b"hn", "b", None, None),
            Group().text(),
            f"name=b {Group().text()}",
            reranks=1,
            compares=True,
            payload=b"[0]",
        ),
        "1",
        gathering(Group()).but(attributes={"a": f"name=b {Group().text()}"}, headers={"a": "hn"}),
    ),
    Case(
        "pending, with a priority",
        PENDING,
        edit(**_HIGH),
        "1",
        with_meta(_with(PENDING, attributes="name=a priority=2"), _STEP),
    ),
    Case("ready, with a priority", READY + CROWD, edit(**_HIGH), "1", _ranked(_FRESH, attempts="0 0 0 -") + CROWD),
    Case(
        "retry, with a priority", RETRY, edit(**_HIGH), "1", _ranked(with_meta(RETRY, World(meta={"stale_retry": 1})))
    ),
    Case(
        "retry, to be claimed alone",
        RETRY.but(deliveries={"a": "retry -5 2 T-9 T-7 w ?"}),
        edit(**_HIGH),
        "1",
        _ranked(with_meta(RETRY, World(meta={"stale_retry": 1})), " !"),
    ),
    Case(
        "backoff, with a priority",
        BACKOFF,
        edit(**_HIGH),
        "1",
        with_meta(_with(BACKOFF, attributes="name=a priority=2"), _STEP),
    ),
    Case("ranked, with another priority", RANKED, edit(before="name=a priority=1", **_HIGH), "1", _ranked(RANKED)),
    Case(
        "ranked, with another step",
        RANKED.but(meta={"priority_step": 1000, "token": "T-3"}),
        edit(before="name=a priority=1", **_HIGH),
        "1",
        _ranked(RANKED).but(ranked={"a": -2005}, meta={"priority_step": 1000, "token": "T-3", "schema": 2}),
    ),
    Case(
        "ranked, without a priority",
        RANKED,
        edit(Edit(None, None, None, 0, None), "name=a priority=1", "name=a", reranks=2),
        "1",
        _ranked(RANKED, text="name=a"),
    ),
    Case(
        "ranked, with another name",
        _UNRANKED,
        edit(**_OTHER),
        "1",
        with_meta(_with(_UNRANKED, attributes="name=b"), World(meta={"schema": 2})),
    ),
    Case("throttled, with a priority", THROTTLED + CROWD, edit(**_HIGH), "1", _ranked(THROTTLED) + CROWD),
    Case("throttled, with another name", THROTTLED, edit(**_OTHER), "1", _ranked(THROTTLED, text="name=b")),
    Case(
        "throttled, with another payload",
        with_meta(THROTTLED, LIMITED),
        edit(),
        "1",
        _with(THROTTLED, messages="new"),
    ),
    Case(
        "ready, with another name",
        READY,
        edit(**_OTHER),
        "1",
        with_meta(_with(READY, attributes="name=b"), World(meta={"schema": 2})),
    ),
    Case(
        "a wake-up that is not taken yet is enough",
        THROTTLED.but(wake=1),
        edit(**_OTHER),
        "1",
        _ranked(THROTTLED, text="name=b"),
    ),
    Case(
        "throttled, and not what was read",
        THROTTLED,
        edit(Edit(None, None, "b", None, None), "name=x", "name=b", reranks=1),
        "4",
        THROTTLED,
    ),
    Case(
        "throttled, with a mark that does not matter",
        THROTTLED.but(deliveries={"a": "throttled -5 2 T-9 T-7 w ?"}),
        edit(**_OTHER),
        "1",
        _ranked(THROTTLED, " ?", text="name=b"),
    ),
    Case(
        "only the attributes are others than were read",
        BACKOFF,
        edit(before="name=x", compares=True, **_READ),
        "4",
        BACKOFF,
    ),
    Case(
        "all at once",
        READY,
        edit(Edit(b"new", b"hn", "b", 1, None), after="name=b priority=1", reranks=2),
        "1",
        _with(_ranked(_FRESH, attempts="0 0 0 -", text="name=b priority=1"), messages="new", headers="hn").but(
            ranked={"a": -60_005}
        ),
    ),
    Case(
        "payload and name of what a limit holds back",
        THROTTLED,
        edit(Edit(b"new", b"", "b", None, None), after="name=b", reranks=1),
        "1",
        _with(_ranked(THROTTLED, text="name=b"), messages="new").but(headers={}),
    ),
    Case("garbage, with a priority", GARBAGE, edit(**_HIGH), "3", GARBAGE),
    Case(
        "in order: the place of its key stays",
        with_meta(BACKOFF, KEPT),
        edit(),
        "1",
        _with(with_meta(BACKOFF, KEPT), messages="new"),
    ),
]
CASES += logged(
    CASES,
    {
        "gone": [],
        "leased": [],
        "dead": [],
        "other attributes than were read": [],
        "pending": ["edited 0; ids a"],
        "ready, with a priority": ["edited 0; ids a"],
    },
)
