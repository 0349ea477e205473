"""`repair`: what is wrong with a message, and how it is mended."""

from __future__ import annotations

from collections.abc import Iterable

from delayq.broker.requests import ScriptCall
from delayq.queue.repairing.repair import repair_call
from tests.lua.cases.states import (
    AFTER,
    BACKOFF,
    CROWD,
    FOLLOWED,
    GARBAGE,
    KEY,
    LEASED,
    LEFTOVERS,
    PENDING,
    RANKED,
    READY,
    RELEASED,
    RESCHEDULED,
    RETRY,
    STATES,
    THROTTLED,
    logged,
)
from tests.support.scripts import NOW, Case, World, calls

_EVERY = {"repaired": 1}
_PROMOTED = {"ready": "7", "released": "7", "retry": "8"}
_CROWD = [b"p", b"q", b"r", b"s", b"t"]


def _repair(ids: Iterable[bytes] = (b"a",), *, look: bool = False) -> ScriptCall[str]:
    return repair_call(calls, ids, fix=True, search=look, retries=4)


def _counted(world: World, **meta: int) -> World:
    """Return a world in which one message was repaired."""
    return world.but(meta={**world.meta, "repaired": 1, **meta})


def _lost(world: World, record: str = "", **meta: int) -> World:
    """Return the world in which a message that had lost its place is due at once."""
    record = record or "pending 0 2 T-9 T-7 w"
    gone = world.but(unack={}, garbage=set(), pending={"a": 0}, deliveries={"a": record})
    return _counted(gone, **meta)


def _mended(name: str, before: World, reply: str, after: World, *, look: bool = False) -> Case:
    return Case(name, before + CROWD, _repair(look=look), reply, after + CROWD)


_GONE = {"messages": {}, "retries": {}, "headers": {}, "attributes": {}, "errors": {}, "deliveries": {}}


_TORN = {"a": "lost 60000 2 T-9 T-7 w"}
_DUE = PENDING.but(pending={"a": 0})


def _without_payload(world: World) -> World:
    return world.but(messages={})


def _emptied(world: World, **meta: int) -> World:
    return _counted(world.but(pending={}, unack={}, garbage=set(), **_GONE), **meta)


CASES = [
    # well
    *(
        Case(f"well: {name}", world + CROWD, _repair(), _PROMOTED.get(name, "0"), world + CROWD)
        for name, world in STATES.items()
    ),
    Case("a crowd", CROWD, _repair(_CROWD), "07080", CROWD),
    Case("a crowd that is looked for", CROWD, _repair(_CROWD, look=True), "00000", CROWD),
    # places without payload
    _mended("pending without payload", _without_payload(PENDING), "1", _emptied(PENDING)),
    _mended("leased without payload", _without_payload(LEASED), "1", _emptied(LEASED)),
    _mended("backoff without payload", _without_payload(BACKOFF), "1", _emptied(BACKOFF, backoffs=0)),
    _mended("garbage without payload", _without_payload(GARBAGE), "1", _emptied(GARBAGE)),
    _mended("ready without payload", _without_payload(READY), "4", _emptied(READY, stale_ready=1)),
    _mended("retry without payload", _without_payload(RETRY), "4", _emptied(RETRY, stale_retry=1)),
    _mended(
        "throttled without payload",
        _without_payload(THROTTLED),
        "1",
        _emptied(THROTTLED).but(throttled={}),
    ),
    _mended("a mere place in a line", World(throttled={"a": (1, 5)}), "1", World(meta=_EVERY)),
    _mended("a mere place among those that run", World(running={"a": 1}), "9", World(meta=_EVERY)),
    _mended("a mere place in pending", World(pending={"a": 5}), "1", World(meta=_EVERY)),
    _mended("a mere place in unack", World(unack={"a": 5}), "1", World(meta=_EVERY)),
    _mended("ranked without payload", _without_payload(RANKED), "1", _emptied(RANKED.but(ranked={}))),
    _mended("a mere place in ranked", World(ranked={"a": 5}), "1", World(meta=_EVERY)),
    _mended("ranked is missing", RANKED.but(ranked={}), "2", _lost(RANKED.but(ranked={}))),
    _mended("ranked and pending", RANKED.but(pending={"a": 5}), "3", _counted(RANKED)),
    _mended("pending and ranked", PENDING.but(ranked={"a": 5}), "3", _counted(PENDING)),
    _mended("a mere place in garbage", World(garbage={"a"}), "1", World(meta=_EVERY)),
    _mended(
        "places without payload everywhere",
        _without_payload(LEASED).but(pending={"a": 5}, garbage={"a"}),
        "1",
        _emptied(LEASED),
    ),
    Case(
        "an entry of a list is no place",
        World(ready=["a"], meta={"stale_ready": 1}),
        _repair(),
        "0",
        World(ready=["a"], meta={"stale_ready": 1}),
    ),
    # remains
    _mended("leftovers", LEFTOVERS, "4", _counted(World(meta=LEFTOVERS.meta), stale_ready=1)),
    _mended("mere retries", World(retries={"a": 3}), "4", World(meta=_EVERY)),
    _mended("mere headers", World(headers={"a": "h"}), "4", World(meta=_EVERY)),
    _mended("mere attributes", World(attributes={"a": "name=n"}), "4", World(meta=_EVERY)),
    _mended("a mere error", World(errors={"a": "e"}), "4", World(meta=_EVERY)),
    _mended("a mere record", World(deliveries={"a": "pending 5 1 T-9 T-9 w"}), "4", World(meta=_EVERY)),
    # payloads without place
    _mended("never promoted", PENDING.but(pending={}), "2", _counted(_DUE)),
    _mended("leased", LEASED.but(unack={}), "2", _lost(LEASED)),
    _mended("backoff", BACKOFF.but(unack={}), "2", _lost(BACKOFF, backoffs=0)),
    _mended("throttled", THROTTLED.but(throttled={}), "2", _lost(THROTTLED.but(throttled={}))),
    _mended("garbage goes back there", GARBAGE.but(garbage=set()), "2", _counted(GARBAGE)),
    _mended(
        "rescheduled keeps its time",
        RESCHEDULED.but(pending={}, deliveries={"a": "pending 60000 2 T-9 T-7 w"}),
        "2",
        _counted(RESCHEDULED.but(deliveries={"a": "pending 60000 2 T-9 T-7 w"})),
    ),
    _mended(
        "rescheduled to what has passed",
        RESCHEDULED.but(pending={}),
        "2",
        _counted(RESCHEDULED.but(pending={"a": 0}, deliveries={"a": "pending 0 2 T-9 T-7 w"})),
    ),
    _mended("ready", READY.but(ready=["b"]), "2", _lost(READY.but(ready=["b"]), "pending 0 0 0 0 -"), look=True),
    _mended("released", RELEASED.but(ready=[]), "2", _lost(RELEASED.but(ready=[])), look=True),
    _mended("retry", RETRY.but(retry=[]), "2", _lost(RETRY.but(retry=[])), look=True),
    Case("ready is not missed where nobody looks", READY.but(ready=[]), _repair(), "7", READY.but(ready=[])),
    Case("retry is not missed where nobody looks", RETRY.but(retry=[]), _repair(), "8", RETRY.but(retry=[])),
    _mended(
        "a place in the list of another state is none",
        READY.but(ready=[], retry=["a"]),
        "2",
        _lost(READY.but(ready=[], retry=["a"]), "pending 0 0 0 0 -"),
        look=True,
    ),
    _mended(
        "leased without a record",
        LEASED.but(deliveries={}),
        "2",
        _counted(LEASED.but(unack={}, pending={"a": 0}, deliveries={})),
    ),
    _mended(
        "in garbage without a record",
        GARBAGE.but(deliveries={}),
        "2",
        _counted(GARBAGE.but(garbage=set(), pending={"a": 0}, deliveries={})),
    ),
    _mended(
        "ready without a record", READY.but(deliveries={}), "2", _counted(READY.but(deliveries={}, pending={"a": 0}))
    ),
    _mended(
        "in unack, though its record says pending",
        RESCHEDULED.but(pending={}, unack={"a": 5}),
        "2",
        _counted(RESCHEDULED.but(pending={"a": 0}, deliveries={"a": "pending 0 2 T-9 T-7 w"})),
    ),
    _mended("in pending, though its record says leased", LEASED.but(unack={}, pending={"a": 9}), "2", _lost(LEASED)),
    _mended(
        "in pending, though its record says garbage",
        GARBAGE.but(garbage=set(), pending={"a": 9}),
        "2",
        _counted(GARBAGE),
    ),
    _mended(
        "in pending, though its record says ready",
        READY.but(ready=[], pending={"a": 9}),
        "2",
        _lost(READY.but(ready=[]), "pending 0 0 0 0 -"),
    ),
    # second places
    _mended("in pending and unack", LEASED.but(pending={"a": 5}), "3", _counted(LEASED)),
    _mended("in pending and throttled", THROTTLED.but(pending={"a": 5}), "3", _counted(THROTTLED)),
    _mended("pending, and in a line", PENDING.but(throttled={"a": (1, 5)}), "3", _counted(PENDING)),
    _mended("leased, and in a line", LEASED.but(throttled={"a": (1, 5)}), "3", _counted(LEASED)),
    _mended(
        "throttled, and takes a place: its line goes on",
        THROTTLED.but(running={"a": 1}),
        "9",
        _counted(THROTTLED).but(gates={1: -NOW}, wake=1),
    ),
    _mended("ready, and takes a place", READY.but(running={"a": 1}), "9", _counted(READY)),
    Case("leased, and takes a place", LEASED.but(running={"a": 1}), _repair(), "0", LEASED.but(running={"a": 1})),
    _mended("in pending and backoff", BACKOFF.but(pending={"a": 5}), "3", _counted(BACKOFF)),
    _mended("in unack and pending, never promoted", PENDING.but(unack={"a": 5}), "3", _counted(PENDING)),
    _mended("in garbage and pending, never promoted", PENDING.but(garbage={"a"}), "3", _counted(PENDING)),
    _mended("in garbage and unack", LEASED.but(garbage={"a"}), "3", _counted(LEASED)),
    _mended("in pending and garbage", GARBAGE.but(pending={"a": 5}), "3", _counted(GARBAGE)),
    _mended("in pending and ready", READY.but(pending={"a": 5}), "3", _counted(READY)),
    _mended("in unack and retry", RETRY.but(unack={"a": 5}), "3", _counted(RETRY)),
    _mended("in three places", LEASED.but(pending={"a": 5}, garbage={"a"}), "3", _counted(LEASED)),
    # what another program has written
    _mended(
        "due at a time that never comes", PENDING.but(pending={"a": 9e12}), "b", _counted(PENDING.but(pending={"a": 0}))
    ),
    _mended(
        "due at a time that never comes, by its record too",
        PENDING.but(pending={"a": 9e12}, deliveries={"a": "pending 9000000000000 2 T-9 T-7 w"}),
        "b",
        _counted(PENDING.but(pending={"a": 0}, deliveries={"a": "pending 0 2 T-9 T-7 w"})),
    ),
    _mended("leased for ever", LEASED.but(unack={"a": 9e12}), "b", _counted(LEASED.but(unack={"a": 0}))),
    # the rest
    Case("retries not stored", LEASED.but(retries={}), _repair(), "0", LEASED.but(retries={})),
    Case("pending, retries not stored", PENDING.but(retries={}), _repair(), "0", PENDING.but(retries={})),
    _mended("in no place, retries not stored", LEASED.but(retries={}, unack={}), "2", _lost(LEASED.but(retries={}))),
    _mended("in pending with a record that cannot be read", PENDING.but(deliveries=_TORN), "6", _counted(PENDING)),
    _mended(
        "a record that cannot be read says neither place nor time",
        LEASED.but(deliveries=_TORN),
        "2",
        _counted(LEASED.but(unack={}, pending={"a": 0}, deliveries={})),
    ),
    _mended("repairs are added up", PENDING.but(pending={}, meta={"repaired": 3}), "2", _DUE.but(meta={"repaired": 4})),
    Case(
        "twice in a call is mended once",
        LEASED.but(pending={"a": 5}),
        _repair([b"a", b"a"]),
        "30",
        _counted(LEASED),
    ),
    Case(
        "several at a time",
        PENDING.but(pending={}) + World(pending={"b": 5}, retries={"c": 1}) + CROWD,
        _repair([b"b", *_CROWD, b"a", b"c"]),
        "10708024",
        PENDING.but(pending={"a": 0}, meta={"repaired": 3}) + CROWD,
    ),
]
CASES += logged(
    CASES,
    {
        "well: leased": [],
        "leased without payload": [],
        "leftovers": [],
        "in pending and unack": [],
        "garbage goes back there": [],
        "leased": ["rescheduled 0; ids a; dues 0"],
        "rescheduled keeps its time": ["rescheduled 0; ids a; dues 60000"],
        "several at a time": ["rescheduled 0; ids a; dues 0"],
    },
)
CASES += [
    Case("well: followed", LEASED + AFTER, _repair(), "0", LEASED + AFTER),
    Case(
        "what waits follows a message that is gone",
        LEASED.but(messages={}) + AFTER,
        _repair(),
        "1",
        FOLLOWED + World(meta={"token": "T-3", **_EVERY}),
    ),
    Case("what waits and cannot be read is deleted", World(successors={"a": "?"}), _repair(), "4", World(meta=_EVERY)),
    Case("what waits after nothing is stored", AFTER, _repair(), "4", FOLLOWED + World(meta=_EVERY)),
]
CASES += logged(CASES, {"what waits after nothing is stored": ["sent 0; ids a; dues 7000; retries 3"]})
_KEY_TEXT = {"a": "name=a key=k:1"}
_WAITING = THROTTLED.but(
    throttled={"a": (8001, -5)}, key_lines={(KEY, -5, "a")}, gates={KEY: None}, attributes=_KEY_TEXT, limits={}, meta={}
)
_FOR_NAME = THROTTLED.but(attributes=_KEY_TEXT, running={" a": KEY})
_KEEPS = BACKOFF.but(attributes=_KEY_TEXT, running={" a": KEY + 1})


def _right(name: str, world: World) -> Case:
    return Case(name, world, _repair(), "0", world)


CASES += [
    _right("waits in the line of its key", _WAITING),
    _right("waits for its name, with the place of its key", _FOR_NAME),
    _right("leased, with the place of its key", LEASED.but(attributes=_KEY_TEXT, running={" a": KEY})),
    _right("in order: keeps the place of its key in its backoff", _KEEPS),
    _mended(
        "waits for its key, and is not in its line",
        _WAITING.but(key_lines=set()),
        "2",
        _counted(_WAITING).but(
            throttled={},
            key_lines=set(),
            pending={"a": 0},
            deliveries={"a": "pending 0 2 T-9 T-7 w"},
        ),
    ),
    _mended(
        "in backoff, with a place that it does not keep: the line goes on",
        _KEEPS.but(running={" a": KEY}, gates={KEY: None}),
        "9",
        _counted(_KEEPS.but(running={}, gates={KEY: -NOW}, wake=1)),
    ),
    _mended(
        "spent, with the place of its key",
        GARBAGE.but(running={" a": KEY + 1}),
        "9",
        _counted(GARBAGE),
    ),
    _mended("a mere place of a key", World(running={" a": KEY + 1}), "9", World(meta=_EVERY)),
]
