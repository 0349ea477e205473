"""`limit`: rates, places and pauses of the queue and of names; they count at once, also for what waits."""

from __future__ import annotations

from delayq.errors import ConfigurationError
from delayq.queue.control.limit_calls import LimitChange, limit_call
from delayq.values.rates import Pace
from tests.lua.cases.states import BACKOFF, CROWD, KEY, LEASED, LIMITED, PLACED, THROTTLED, logged, with_meta
from tests.support.scripts import NOW, Case, World, calls

_META = {"limited": "starts", "schema": 2}
_RUNNING = {"limited": "running", "schema": 2}
_OPEN = {1: -NOW}
_NOTHING = Pace()
_BOTH = World(limits={"name:a": "1 1000 3 2 0 - 0 0 0"}, meta=_RUNNING)
_PAUSED = World(limits={"name:a": "1 0 1 0 0 0 0 0 0 deploy now"}, meta=_META)


class _Templates(str):
    """The setting of two templates, which are told in any order."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and sorted(other.split()) == sorted(self.split())

    __hash__ = str.__hash__


def _limits(text: str, scope: str = "name:a", **others: object) -> World:
    return World(limits={scope: text}, meta=_META, wake=1).but(**others)


CASES = [
    Case(
        "a rate of a name",
        CROWD,
        limit_call(calls, "a", pace=Pace(1000, 3)),
        LimitChange(0, -1),
        _limits("1 1000 3 0 0 - 0 0 0") + CROWD,
    ),
    Case(
        "a rate of the queue",
        CROWD,
        limit_call(calls, None, pace=Pace(14.286, 3)),
        LimitChange(0, -1),
        _limits("0 14.286 3 0 0 - 0 0 0", "queue") + CROWD,
    ),
    Case(
        "places of the queue",
        CROWD,
        limit_call(calls, None, places=7),
        LimitChange(0, -1),
        _limits("0 0 1 7 0 - 0 0 0", "queue", meta=_RUNNING) + CROWD,
    ),
    Case(
        "places of a name: who runs has one",
        LEASED + CROWD,
        limit_call(calls, "a", places=7),
        LimitChange(0, -1),
        with_meta(LEASED, CROWD, _limits("1 0 1 7 0 - 0 0 0", running={"a": 1}, meta=_RUNNING)),
    ),
    Case(
        "places of a name: what waits for another attempt has none",
        with_meta(BACKOFF, CROWD),
        limit_call(calls, "a", places=7),
        LimitChange(0, -1),
        with_meta(BACKOFF, CROWD, _limits("1 0 1 7 0 - 0 0 0", meta=_RUNNING)),
    ),
    Case(
        "places of a name: its attributes may begin with others, and what has no record is passed over",
        LEASED.but(unack={"a": 30_000, "x": 5}, attributes={"a": "delay=1 name=a", "x": "name=a"}),
        limit_call(calls, "a", places=7),
        LimitChange(0, -1),
        with_meta(LEASED, _limits("1 0 1 7 0 - 0 0 0", running={"a": 1}, meta=_RUNNING)).but(
            unack={"a": 30_000, "x": 5}, attributes={"a": "delay=1 name=a", "x": "name=a"}
        ),
    ),
    Case(
        "a rate of a name: what runs takes no place",
        LEASED,
        limit_call(calls, "a", pace=Pace(1000, 3)),
        LimitChange(0, -1),
        with_meta(LEASED, _limits("1 1000 3 0 0 - 0 0 0")),
    ),
    Case(
        "places of the queue: what runs is counted as leased",
        LEASED.but(attributes={"a": "priority=1"}),
        limit_call(calls, None, places=7),
        LimitChange(0, -1),
        with_meta(LEASED, _limits("0 0 1 7 0 - 0 0 0", "queue", meta=_RUNNING)).but(attributes={"a": "priority=1"}),
    ),
    Case(
        "more places: what runs and waits stays, and its gate opens",
        with_meta(LEASED, PLACED).but(throttled={"b": (1, -5)}),
        limit_call(calls, "a", places=2),
        LimitChange(1, -1),
        with_meta(LEASED, PLACED).but(
            throttled={"b": (1, -5)}, limits={"name:a": "1 0 1 2 0 - 0 0 0"}, gates=_OPEN, wake=1
        ),
    ),
    Case(
        "a rate beside places",
        _BOTH,
        limit_call(calls, "a", pace=Pace(500, 1)),
        LimitChange(1, -1),
        _BOTH.but(limits={"name:a": "1 500 1 2 0 - 0 0 0"}, wake=1),
    ),
    Case(
        "no start is given back that was made before",
        _BOTH.but(limits={"name:a": "1 1000 3 2 0 - +1400/-9/-5/1500 0 0"}),
        limit_call(calls, "a", pace=Pace(500, 3)),
        LimitChange(1, -1),
        _BOTH.but(limits={"name:a": "1 500 3 2 0 - +1400 0 0"}, wake=1),
    ),
    Case(
        "no places any more, the rate stays",
        _BOTH.but(running={"x": 1, "y": 2}),
        limit_call(calls, "a", places=0),
        LimitChange(1, -1),
        _BOTH.but(running={"y": 2}, limits={"name:a": "1 1000 3 0 0 - 0 0 0"}, meta=_META, wake=1),
    ),
    Case(
        "removed",
        _BOTH.but(running={"x": 1}),
        limit_call(calls, "a", pace=_NOTHING, places=0),
        LimitChange(1, -1),
        World(meta={"schema": 2}, wake=1),
    ),
    Case(
        "removed while some wait: they are let go first",
        THROTTLED,
        limit_call(calls, "a", pace=_NOTHING, places=0),
        LimitChange(1, -1),
        THROTTLED.but(limits={"name:a": "1 0 1 0 0 - +900000 0 0"}, gates=_OPEN, wake=1),
    ),
    Case(
        "one of several is removed",
        with_meta(_BOTH, World(limits={"name:b": "2 5 1 0 0 - 0 0 0"})),
        limit_call(calls, "a", pace=_NOTHING, places=0),
        LimitChange(1, -1),
        World(limits={"name:b": "2 5 1 0 0 - 0 0 0"}, meta=_META, wake=1),
    ),
    Case(
        "that of the queue is removed while it is closed",
        World(limits={"queue": "0 5 1 0 0 - +900000 0 0"}, gates={0: 900}, meta=_META),
        limit_call(calls, None, pace=_NOTHING, places=0),
        LimitChange(1, -1),
        World(meta={"schema": 2}, wake=1),
    ),
    Case(
        "none was there", CROWD, limit_call(calls, "a", pace=_NOTHING, places=0), LimitChange(0, -1), CROWD.but(wake=1)
    ),
    Case(
        "a pause without an end",
        THROTTLED,
        limit_call(calls, "a", paused="0", reason="deploy now"),
        LimitChange(0, 0),
        THROTTLED.but(limits={"name:a": "1 1000 1 0 0 0 +1000 0 0 deploy now"}, gates=_OPEN, wake=1),
    ),
    Case(
        "a pause for a time",
        CROWD,
        limit_call(calls, "a", paused="+70", reason=""),
        LimitChange(0, NOW + 70),
        _limits("1 0 1 0 0 70 0 0 0") + CROWD,
    ),
    Case(
        "another end of a pause",
        _PAUSED,
        limit_call(calls, "a", paused=f"{NOW + 9}", reason="why"),
        LimitChange(1, NOW + 9),
        _PAUSED.but(limits={"name:a": "1 0 1 0 0 9 0 0 0 why"}, wake=1),
    ),
    Case(
        "a rate of a name that is paused",
        _PAUSED,
        limit_call(calls, "a", pace=Pace(1000, 3)),
        LimitChange(0, 0),
        _PAUSED.but(limits={"name:a": "1 1000 3 0 0 0 0 0 0 deploy now"}, wake=1),
    ),
    Case(
        "a rate of a name whose pause is over",
        _PAUSED.but(limits={"name:a": "1 500 1 0 0 -7 0 0 0 deploy now"}),
        limit_call(calls, "a", pace=Pace(1000, 3)),
        LimitChange(1, -1),
        _PAUSED.but(limits={"name:a": "1 1000 3 0 0 -7 0 0 0 deploy now"}, wake=1),
    ),
    Case(
        "resumed, and the only one that waits is let go over a time",
        THROTTLED,
        limit_call(calls, "a", paused="-", spread=600),
        LimitChange(0, -1),
        THROTTLED.but(limits={"name:a": "1 1000 1 0 0 - +0 600000 600"}, gates=_OPEN, wake=1),
    ),
    Case("an end that has passed", _PAUSED, limit_call(calls, "a", paused=f"{NOW}"), LimitChange(-1, -1), _PAUSED),
    Case("resumed", _PAUSED, limit_call(calls, "a", paused="-"), LimitChange(1, -1), World(meta={"schema": 2}, wake=1)),
    Case("resumed, and not paused", CROWD, limit_call(calls, "a", paused="-"), LimitChange(0, -1), CROWD.but(wake=1)),
    Case(
        "resumed, and let go over a time",
        THROTTLED.but(throttled={"a": (1, -5), "b": (1, 0), "c": (2, 0)}),
        limit_call(calls, "a", paused="-", spread=600),
        LimitChange(0, -1),
        THROTTLED.but(
            throttled={"a": (1, -5), "b": (1, 0), "c": (2, 0)},
            limits={"name:a": "1 1000 1 0 0 - +0 300000 600"},
            gates=_OPEN,
            wake=1,
        ),
    ),
    Case(
        "a queue that lets go what waits over a time",
        CROWD,
        limit_call(calls, None, paused="-", spread=600, waiting=3),
        LimitChange(0, -1),
        _limits("0 0 1 0 0 - +0 200000 600", "queue") + CROWD,
    ),
    Case(
        "a spread ends, and what waits starts at the rate of its limit",
        THROTTLED.but(limits={"name:a": "1 1000 4 0 0 - +600000 300000 600"}),
        limit_call(calls, "a", paused="-"),
        LimitChange(1, -1),
        THROTTLED.but(limits={"name:a": "1 1000 4 0 0 - +4000 0 0"}, gates=_OPEN, wake=1),
    ),
    Case(
        "a spread ends with a pause, and nothing is left",
        _limits("1 0 1 0 0 0 +600000 300000 600 why", wake=0),
        limit_call(calls, "a", paused="-"),
        LimitChange(1, -1),
        World(meta={"schema": 2}, wake=1),
    ),
    Case(
        "another spread takes the place of one",
        _limits("0 0 1 0 0 - +600000 300000 600", "queue", wake=0),
        limit_call(calls, None, paused="-", spread=60, waiting=3),
        LimitChange(1, -1),
        _limits("0 0 1 0 0 - +0 20000 60", "queue"),
    ),
    Case(
        "one that is over is none",
        _limits("0 1000 4 0 0 - +0 300000 -1", "queue", wake=0),
        limit_call(calls, None, paused="-"),
        LimitChange(0, -1),
        _limits("0 1000 4 0 0 - +0 0 0", "queue"),
    ),
    Case(
        "a pause leaves a spread as it is",
        _limits("1 0 1 0 0 - +0 300000 600", wake=0),
        limit_call(calls, "a", paused="0"),
        LimitChange(0, 0),
        _limits("1 0 1 0 0 0 +0 300000 600"),
    ),
    Case(
        "and so does a limit that is removed",
        _limits("1 1000 1 0 0 - +0 300000 600", wake=0),
        limit_call(calls, "a", pace=_NOTHING, places=0),
        LimitChange(1, -1),
        _limits("1 0 1 0 0 - +0 300000 600"),
    ),
]
CASES += logged(
    CASES,
    {
        "a rate of a name": [],
        "a rate of a name that is paused": [],
        "a pause without an end": ["paused 0; name a; reasons deploy now"],
        "a pause for a time": ["paused 0; name a; dues 70"],
        "an end that has passed": [],
        "resumed": ["resumed 0; name a"],
        "resumed, and not paused": [],
    },
)
_FULL = World(
    limits={f"name:n{number}": f"{number} 1000 1 0 0 - 0 0 0" for number in range(1, 8001)}, meta=LIMITED.meta
)
CASES += [
    Case(
        "as many as a queue may have",
        _FULL,
        limit_call(calls, "n5", places=1),
        LimitChange(1, -1),
        _FULL.but(limits=_FULL.limits | {"name:n5": "5 1000 1 1 0 - 0 0 0"}, meta=_RUNNING, wake=1),
    ),
]
_KEYED = {"limited": "running k:*", "schema": 6}
_ONE, _ORDERED, _ALL = "8001 0 1 1 0 - 0 0 0", "8001 0 1 1 0 - 0 0 0 in_order", "8001 0 1 0 0 - 0 0 0"
_BESIDE = {"limited": _Templates("running k:* k*"), "schema": 6}
_RUNS = LEASED.but(attributes={"a": "name=a key=k:1"})
_WAITS = World(throttled={"b": (8001, -5)}, key_lines={(KEY, -5, "b")}, gates={KEY: None})
CASES += [
    Case(
        "a template: what runs has the place of its key",
        _RUNS,
        limit_call(calls, "k:*", places=1),
        LimitChange(0, -1),
        with_meta(_RUNS, _limits(_ONE, "key:k:*", running={" a": KEY}, meta=_KEYED)),
    ),
    Case(
        "a template in order: what runs keeps the place of its key",
        _RUNS,
        limit_call(calls, "k:*", places=1, reason="in_order"),
        LimitChange(0, -1),
        with_meta(_RUNS, _limits(_ORDERED, "key:k:*", running={" a": KEY + 1}, meta=_KEYED)),
    ),
    Case(
        "a template that nothing which runs begins with",
        LEASED,
        limit_call(calls, "k:*", places=1),
        LimitChange(0, -1),
        with_meta(LEASED, _limits(_ONE, "key:k:*", meta=_KEYED)),
    ),
    Case(
        "a template beside another, and beside a limit of a name",
        _BOTH + World(limits={"key:j:*": _ONE}),
        limit_call(calls, "k:*", places=1),
        LimitChange(0, -1),
        with_meta(_BOTH, World(limits={"key:j:*": _ONE}), _limits("8002 0 1 1 0 - 0 0 0", "key:k:*")).but(
            meta={"limited": _Templates("running j:* k:*"), "schema": 6}
        ),
    ),
    *(
        Case(
            f"a template that {what} is refused",
            World(limits={"key:k:*": _ONE}, meta=_KEYED),
            limit_call(calls, template, places=1),
            ConfigurationError,
            World(limits={"key:k:*": _ONE}, meta=_KEYED),
        )
        for what, template in (("another begins with", "k*"), ("begins with another", "k:1*"), ("begins all", "*"))
    ),
    Case(
        "a template that is in order from now on",
        World(limits={"key:k:*": _ONE}, meta=_KEYED) + _WAITS,
        limit_call(calls, "k:*", places=1, reason="in_order"),
        LimitChange(1, -1),
        _limits(_ORDERED, "key:k:*", meta=_KEYED) + _WAITS,
    ),
    Case(
        "a template that is in order from now on: what runs keeps its place",
        _RUNS.but(limits={"key:k:*": _ONE}, running={" a": KEY}, meta={**_RUNS.meta, **_KEYED}),
        limit_call(calls, "k:*", places=1, reason="in_order"),
        LimitChange(1, -1),
        with_meta(_RUNS, _limits(_ORDERED, "key:k:*", running={" a": KEY + 1}, meta=_KEYED)),
    ),
    Case(
        "the end of a template, while messages wait: all of them may start",
        World(limits={"key:k:*": _ONE}, running={" a": KEY}, meta=_KEYED) + _WAITS,
        limit_call(calls, "k:*", pace=_NOTHING, places=0),
        LimitChange(1, -1),
        _limits(_ALL, "key:k:*", running={" a": KEY}, meta=_KEYED) + _WAITS.but(gates={8001: -NOW, KEY: None}),
    ),
    Case(
        "the end of a template that nothing waits for: its places are given back later",
        World(limits={"key:k:*": _ONE}, running={" a": KEY}, meta=_KEYED),
        limit_call(calls, "k:*", pace=_NOTHING, places=0),
        LimitChange(1, -1),
        World(running={" a": KEY}, meta={"limited": "running ", "schema": 6}, wake=1),
    ),
    Case(
        "a template beside one that was removed, and is not empty yet",
        World(limits={"key:k:*": _ALL}, meta=_KEYED) + _WAITS,
        limit_call(calls, "k*", places=1),
        LimitChange(0, -1),
        World(
            limits={"key:k:*": _ALL, "key:k*": "8002 0 1 1 0 - 0 0 0"},
            meta={"limited": _Templates("running k:* k*"), "schema": 6},
            wake=1,
        )
        + _WAITS,
    ),
]
