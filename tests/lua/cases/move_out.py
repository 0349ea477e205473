"""`move_out`: all that is stored of an id leaves a partition, unless somebody is processing it."""

from __future__ import annotations

from typing import Any

from delayq.broker.partition_calls import SentOff, move_out_call
from delayq.broker.requests import ScriptCall
from tests.lua.cases.moving import ON_ITS_WAY, TARGET, message, packed, record, sent_off
from tests.lua.cases.states import (
    AFTER,
    BACKOFF,
    CROWD,
    DEAD,
    GONE,
    KEPT,
    KEY,
    LEASED,
    LEFTOVERS,
    LIMITED,
    PENDING,
    RESCHEDULED,
    STATES,
    STOPPED,
    STOPPING,
    with_meta,
)
from tests.support.scripts import NOW, After, Case, Kept, T, World, calls

_SENT = "7000 3 2 6\nhnname=nnew"


def out(*ids: str) -> ScriptCall[SentOff]:
    return move_out_call(calls, TARGET, ids)


def _into_every_state() -> list[Case]:
    now = f"{NOW - 5}"
    batches = {
        "pending": message(),
        "rescheduled": message(record=record("pending"), error="oops"),
        "ready": message(at=now, record=f"pending {now} 0 0 0 -"),
        "released": message(at=now, record=record("pending"), error="oops"),
        "backoff": message(at=NOW + 500, record=record("backoff"), error="oops"),
        "retry": message(at=now, record=record("pending"), error="oops"),
        "ranked": message(at=now, record=record("pending"), error="oops", text="name=a priority=1"),
        "throttled": message(at=now, record=record("pending"), error="oops"),
        "garbage": message(at=now, record=record("garbage"), error="oops", left="0"),
    }
    batches["rescheduled"] = message(record=record("pending", 60_000), error="oops")
    left = {
        "pending": World(),
        "ready": World(ready=["a"], meta={"stale_ready": 1}),
        "released": World(ready=["a"], meta={"token": "T-3", "stale_ready": 1}),
        "retry": World(retry=["a"], meta={"token": "T-3", "stale_retry": 1}),
        "ranked": World(meta={"token": "T-3", "priority_step": 60_000}),
        "throttled": with_meta(LIMITED, GONE),
    }
    cases = [
        Case(name, STATES[name] + CROWD, out("a"), ON_ITS_WAY, _beside(left.get(name, GONE), sent_off(batch)))
        for name, batch in batches.items()
    ]
    stays = {"leased": "2", "dead": "0", "gone": "0"}
    return cases + [
        Case(name, STATES[name] + CROWD, out("a"), SentOff(status, []), STATES[name] + CROWD)
        for name, status in stays.items()
    ]


def _beside(left: World, moving: World) -> World:
    """Return what is left, and the crowd: its entries of lists come after that of `a`."""
    return left + CROWD + moving


_RESULT = World(completed={"a": 500}, results={"a": Kept("nothing", 1, -900, -800, "T-90", "")})
_GROUP = World(
    pending={"a": 500},
    retries={"a": 2},
    messages={"a": ""},
    attributes={"a": f"collect=9 gathers={T}:3:2:2:5:{NOW}:{NOW + 500}:1000"},
    gathered={"a 3": ",1", "a 4": ",2", "b 3": ",3"},
    meta={"schema": 6},
)
_GROUP_TEXT = _GROUP.attributes["a"]
_ENTRIES = {f"a\n{T}\n3": ",1", f"a\n{T}\n4": ",2"}
_BOTH = PENDING + World(pending={"b": 70_000}, retries={"b": 2}, messages={"b": "B"})
_B = message("b", NOW + 70_000, payload="B", headers="", text="")


def _plain(**fields: Any) -> World:
    return World(meta=fields)


CASES = [
    *_into_every_state(),
    Case(
        "one that has stopped",
        STOPPED,
        out("a"),
        ON_ITS_WAY,
        GONE + sent_off(message(at=NOW - 5, record=record("garbage") + " *", error="oops")),
    ),
    Case("one that is asked to stop stays", STOPPING, out("a"), SentOff("2", []), STOPPING),
    Case(
        "a leased one with a successor stays",
        with_meta(LEASED, AFTER),
        out("a"),
        SentOff("2", []),
        with_meta(LEASED, AFTER),
    ),
    Case(
        "a successor goes along",
        with_meta(RESCHEDULED, AFTER),
        out("a"),
        ON_ITS_WAY,
        with_meta(GONE, _plain(schema=2))
        + sent_off(message(record=record("pending", 60_000), error="oops", after=f"{NOW + 7000} 3 2 6\nhnname=nnew")),
    ),
    Case(
        "the place of its key goes along",
        with_meta(BACKOFF, KEPT),
        out("a"),
        ON_ITS_WAY,
        with_meta(GONE, KEPT).but(running={}, gates={KEY: -NOW}, wake=1)
        + sent_off(message(at=NOW + 500, record=record("backoff"), error="oops", place=str(KEY + 1))),
    ),
    Case(
        "a group",
        _GROUP,
        out("a"),
        ON_ITS_WAY,
        World(gathered={"b 3": ",3"}, meta={"schema": 6})
        + sent_off(message(at=NOW + 500, payload="", headers="", text=_GROUP_TEXT, entries=_ENTRIES)),
    ),
    Case(
        "a successor that gathers",
        PENDING
        + World(
            successors={"a": After(7000, 3, "", "", _GROUP_TEXT)},
            gathered=_GROUP.gathered,
            meta={"schema": 6},
        ),
        out("a"),
        ON_ITS_WAY,
        World(gathered={"b 3": ",3"}, meta={"schema": 6})
        + sent_off(message(after=f"{NOW + 7000} 3 0 {len(_GROUP_TEXT)}\n{_GROUP_TEXT}", entries=_ENTRIES)),
    ),
    Case(
        "a reserved id",
        World(done={"a": -100}, meta={"dedupe": "1000 9"}),
        out("a"),
        ON_ITS_WAY,
        World(meta={"dedupe": "1000 9"}) + sent_off(packed("reserved", "a", NOW - 100)),
    ),
    Case(
        "an id with an end of its own",
        World(done={"a": 100.5}, meta={"unique": 1}),
        out("a"),
        ON_ITS_WAY,
        World(meta={"unique": 1}) + sent_off(packed("reserved", "a", f"{NOW + 100}.5")),
    ),
    Case(
        "a result",
        _RESULT,
        out("a"),
        ON_ITS_WAY,
        sent_off(packed("result", "a", NOW + 500, f"nothing 1 {NOW - 900} {NOW - 800} {T - 90} 0 0\n")),
    ),
    Case(
        "all of it",
        _RESULT + PENDING + World(done={"a": -5}, meta={"dedupe": "1000 9"}),
        out("a"),
        ON_ITS_WAY,
        World(meta={"dedupe": "1000 9"})
        + sent_off(
            message()
            + packed("reserved", "a", NOW - 5)
            + packed("result", "a", NOW + 500, f"nothing 1 {NOW - 900} {NOW - 800} {T - 90} 0 0\n")
        ),
    ),
    Case("what is left of another message", LEFTOVERS, out("a"), SentOff("0", []), LEFTOVERS),
    Case("several, one of them twice", _BOTH, out("b", "x", "a", "b"), SentOff("1010", [T]), sent_off(_B + message())),
    Case("a dead one of the same id stays", with_meta(PENDING, DEAD), out("a"), ON_ITS_WAY, DEAD + sent_off(message())),
    Case(
        "behind another batch",
        PENDING + sent_off("x", number=T - 9),
        out("a"),
        SentOff("1", [T - 9, T]),
        sent_off("x", number=T - 9).but(moving={})
        + World(moving=sent_off("x", number=T - 9).moving | sent_off(message(), before=(T - 9,)).moving),
    ),
    Case(
        "the clock was set back",
        PENDING + World(moving={"last": str(T + 9)}),
        out("a"),
        SentOff("1", [T + 10]),
        sent_off(message(), number=T + 10),
    ),
    Case("another batch alone is told", sent_off("x"), out("a"), SentOff("0", [T]), sent_off("x")),
]
