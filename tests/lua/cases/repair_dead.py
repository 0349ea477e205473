"""`repair_dead`: the parts of the dead letter, in step again."""

from __future__ import annotations

from collections.abc import Iterable

from delayq.broker.requests import ScriptCall
from delayq.queue.repairing.repair import repair_dead_call
from tests.lua.cases.states import CROWD, DEAD, LEASED
from tests.support.scripts import Case, T, World, calls


def _repair(entries: Iterable[bytes] = (b"a:%d" % (T - 7),)) -> ScriptCall[str]:
    return repair_dead_call(calls, entries, fix=True)


def _counted(world: World, number: int = 1) -> World:
    return world.but(meta=world.meta | {"repaired": number})


def _mended(name: str, before: World, reply: str, after: World) -> Case:
    return Case(name, before + CROWD, _repair(), reply, _counted(after) + CROWD)


_EMPTY = World(meta=DEAD.meta)
_TWICE = DEAD.but(
    dead=DEAD.dead | {"a:T-5": -50},
    dead_messages=DEAD.dead_messages | {"a:T-5": DEAD.dead_messages["a:T-7"]._replace(died=-50)},
    dead_ids={"a": "T-7 T-5"},
)
_MOVED = DEAD.but(dead={"a:T-7": -99})

CASES = [
    Case("well", DEAD + CROWD, _repair(), "0", DEAD + CROWD),
    Case("an unknown entry", CROWD, _repair(), "0", CROWD),
    Case("one that lives", LEASED + CROWD, _repair(), "0", LEASED + CROWD),
    _mended("an entry without message", DEAD.but(dead_messages={}), "1", _EMPTY),
    _mended("a mere entry", World(dead={"a:T-7": -100}), "1", World()),
    _mended("a message without entry", DEAD.but(dead={}), "2", DEAD),
    _mended("a mere message", DEAD.but(dead={}, dead_ids={}), "2", DEAD),
    _mended("an id that does not know its token", DEAD.but(dead_ids={}), "3", DEAD),
    _mended("a token of nothing", World(dead_ids={"a": "T-7"}), "3", World()),
    _mended(
        "the message of one of two deaths is gone",
        _TWICE.but(dead_messages={"a:T-5": _TWICE.dead_messages["a:T-5"]}),
        "1",
        _TWICE.but(dead={"a:T-5": -50}, dead_messages={"a:T-5": _TWICE.dead_messages["a:T-5"]}, dead_ids={"a": "T-5"}),
    ),
    _mended("the token of an earlier death comes before the last", _TWICE.but(dead_ids={"a": "T-5"}), "3", _TWICE),
    _mended("one without entry beside one with", _TWICE.but(dead={"a:T-5": -50}), "2", _TWICE),
    Case(
        "the token of a later death comes after the first",
        _TWICE.but(dead_ids={"a": "T-7"}) + CROWD,
        _repair([b"a:%d" % (T - 5)]),
        "3",
        _counted(_TWICE) + CROWD,
    ),
    Case(
        "an id that knows none of its tokens",
        _TWICE.but(dead_ids={}) + CROWD,
        _repair([b"a:%d" % (T - 5), b"a:%d" % (T - 7)]),
        "33",
        _counted(_TWICE, 2) + CROWD,
    ),
    Case("the time of an entry is not judged", _MOVED + CROWD, _repair(), "0", _MOVED + CROWD),
    _mended("an id that does not know its token, at another time", _MOVED.but(dead_ids={}), "3", _MOVED),
    Case(
        "repairs are added up",
        DEAD.but(dead={}, meta={"repaired": 3}),
        _repair(),
        "2",
        DEAD.but(meta={"repaired": 4}),
    ),
    Case("twice in a call is mended once", DEAD.but(dead={}), _repair([b"a:%d" % (T - 7)] * 2), "20", _counted(DEAD)),
    Case(
        "several at a time",
        DEAD.but(dead=DEAD.dead | {"b:T-5": -5}) + CROWD,
        _repair([b"b:%d" % (T - 5), b"u:%d" % (T - 60), b"a:%d" % (T - 7)]),
        "100",
        _counted(DEAD) + CROWD,
    ),
]
