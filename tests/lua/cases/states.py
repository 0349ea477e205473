"""One message, `a`, in each state it can be in, and a crowd of others that nothing done to it may touch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from delayq.queue.control.limit_calls import key_number
from tests.support.scripts import LOG, NOW, After, Case, Dead, World

DEFAULT_RETRIES = 3
"""How often a message is retried if its send does not say."""


def _sent(**places: Any) -> World:
    return World(retries={"a": 2}, messages={"a": "A"}, headers={"a": "ha"}, attributes={"a": "name=a"}, **places)


def _delivered(state: str, **places: Any) -> World:
    """`a` after its second delivery, by w under T-7; its first one in this life had T-9."""
    meta = {"token": "T-3"} | places.pop("meta", {})
    return _sent(deliveries={"a": f"{state} -5 2 T-9 T-7 w"}, errors={"a": "oops"}, meta=meta, **places)


PENDING = _sent(pending={"a": 60_000})
RESCHEDULED = _delivered("pending", pending={"a": 60_000})
READY = _sent(ready=["a"], deliveries={"a": "ready -5 0 0 0 -"})
RELEASED = _delivered("ready", ready=["a"])
LEASED = _delivered("leased", unack={"a": 30_000})
BACKOFF = _delivered("backoff", unack={"a": 500}, meta={"backoffs": 1})
RETRY = _delivered("retry", retry=["a"])
RANKED = _delivered("ranked", ranked={"a": -60_005}, meta={"priority_step": 60_000}).but(
    attributes={"a": "name=a priority=1"}
)
LIMITED = World(
    gates={1: 900}, limits={"name:a": "1 1000 1 0 0 - +900000 0 0"}, meta={"limited": "starts", "schema": 2}
)
"""A limit of the name `a`, which lets nothing start for a while."""
THROTTLED = _delivered("throttled", throttled={"a": (1, -5)}, gates={1: 900}, limits=LIMITED.limits, meta=LIMITED.meta)
PLACED = World(
    running={"a": 1}, gates={1: None}, limits={"name:a": "1 0 1 1 0 - 0 0 0"}, meta={"limited": "running", "schema": 2}
)
"""A limit by which one of the name `a` may run, which is `a`; others wait for its place."""
FREED = PLACED.but(running={}, gates={1: -NOW}, wake=1)
"""The same limit once that place is free."""
KEY = key_number("k:1")
"""The number of the key `k:1`."""
KEYED = World(
    running={" a": KEY},
    gates={KEY: None},
    limits={"key:k:*": "8001 0 1 1 0 - 0 0 0"},
    meta={"limited": "running k:*", "schema": 6},
)
"""A template by which one of each key may run: `a` has the place of `k:1`, and others wait for it."""
KEPT = KEYED.but(running={" a": KEY + 1}, limits={"key:k:*": "8001 0 1 1 0 - 0 0 0 in_order"})
"""The same with `in_order`: `a` keeps the place until it ends."""
GARBAGE = _delivered("garbage", garbage={"a"}).but(retries={"a": 0})
STOPPING = LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w *"})
"""It runs, and was asked to stop."""
STOPPED = _delivered("garbage", garbage={"a"}).but(deliveries={"a": "garbage -5 2 T-9 T-7 w *"})
"""It has stopped, and is to be collected."""
DEAD = World(
    dead={"a:T-7": -100},
    dead_messages={"a:T-7": Dead(2, 1, -500, -100, "no such user", "oops", "ha", "A", "name=a")},
    dead_ids={"a": "T-7"},
    meta={"token": "T-3"},
)
GONE = World(meta={"token": "T-3"})

STATES = {
    "pending": PENDING,
    "rescheduled": RESCHEDULED,
    "ready": READY,
    "released": RELEASED,
    "leased": LEASED,
    "backoff": BACKOFF,
    "retry": RETRY,
    "ranked": RANKED,
    "throttled": THROTTLED,
    "garbage": GARBAGE,
    "dead": DEAD,
    "gone": GONE,
}

LEFTOVERS = World(
    retries={"a": 9},
    headers={"a": "old"},
    errors={"a": "old"},
    deliveries={"a": "ready -5 1 T-9 T-7 w"},
    meta={"token": "T-3"},
)
"""What is no message, for it has no payload: the remains of `a` that somebody deleted by hand."""

_OTHERS = ["p", "q", "r", "s", "t"]

CROWD = World(
    pending={"p": 90_000},
    ready=["q"],
    unack={"r": 90_000},
    retry=["s"],
    garbage={"t"},
    retries=dict.fromkeys(_OTHERS, 5),
    messages={id: id.upper() for id in _OTHERS},
    deliveries={
        "q": "ready -50 0 0 0 -",
        "r": "leased -50 1 T-90 T-90 w",
        "s": "retry -50 1 T-80 T-80 w",
        "t": "garbage -50 1 T-70 T-70 w",
    },
    headers={id: f"h{id}" for id in _OTHERS},
    attributes={"q": "name=q"},
    errors={id: f"e{id}" for id in _OTHERS},
    dead={"u:T-60": -90},
    dead_messages={"u:T-60": Dead(1, 5, -50, -90, "retries spent", "eu", "hu", "U")},
    dead_ids={"u": "T-60"},
)
"""A message in every other place."""


def logged(cases: Iterable[Case], told: dict[str, list[str]]) -> list[Case]:
    """Return the named cases once more with the event log on, and with what it tells."""
    named = {case.name: case for case in cases}
    return [
        Case(
            f"logged: {name}",
            named[name].before + World(meta=LOG),
            named[name].call,
            named[name].reply,
            named[name].after + World(meta=LOG, events=events),
        )
        for name, events in told.items()
    ]


def keyed(cases: Iterable[Case]) -> list[Case]:
    """Return the cases in which `a` has the one place of its name, once more with that of its key."""
    return [
        Case(f"keyed: {case.name}", _keyed(case.before), case.call, case.reply, _keyed(case.after))
        for case in cases
        if case.before.running == {"a": 1} and case.before.limits == PLACED.limits
    ]


def _keyed(world: World) -> World:
    return world.but(
        running={f" {id}": KEY for id in world.running},
        gates={KEY if number == 1 else number: at for number, at in world.gates.items()},
        limits=KEYED.limits,
        meta={**world.meta, **KEYED.meta},
    )


def in_new_queues(cases: Iterable[Case]) -> list[Case]:
    """Return the cases as they are where no retries are stored that are the default: in a queue of this version."""
    return [
        Case(f"new: {case.name}", _new(case.before), case.call, case.reply, _new(case.after, case.before))
        for case in cases
        if not isinstance(case.reply, type) and case.before.meta.get("schema") != 1
        if case.before.retries.keys() <= case.before.messages.keys()  # what is left of another message may be found
    ]


def _new(world: World, before: World | None = None) -> World:
    used = any(
        one.attributes or one.successors or one.results or one.waited or one.limits or one.meta.get("schema") == 2
        for one in (world, before or world)
    )
    stored = {id: left for id, left in world.retries.items() if left != DEFAULT_RETRIES}
    schema = world.meta.get("schema")
    return world.but(retries=stored, meta={**world.meta, "schema": schema if schema == 6 else 4 if used else 3})


def remembering(window: int, most: int = 100, **done: float) -> World:
    """Return a dedupe window, and ids with the times at which they were settled."""
    return World(meta={"dedupe": f"{window} {most}"}, done=done)


def reserved(**done: float) -> World:
    """Return ids with ends of their own, or with the times at which they were settled, and no dedupe window."""
    return World(meta={"unique": 1}, done=done)


AFTER = World(successors={"a": After(7000, 3, "hn", "new", "name=n")}, meta={"schema": 2})
"""What waits to follow `a`."""
FOLLOWED = World(
    pending={"a": 7000},
    retries={"a": 3},
    messages={"a": "new"},
    headers={"a": "hn"},
    attributes={"a": "name=n"},
    meta={"schema": 2, "sent": 1},
    wake=1,
)
"""What has taken the place of `a`."""


def with_meta(*worlds: World) -> World:
    """Return the contents of several worlds, and of the fields of all their `meta`."""
    whole = World()
    for world in worlds:
        whole = (whole + world).but(meta={**whole.meta, **world.meta})
    return whole
