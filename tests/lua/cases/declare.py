"""`declare`: of the limit that a program declares, what differs from the last that was declared is stored."""

from __future__ import annotations

from delayq.queue.control.limit_calls import declare_call
from delayq.values.rates import Pace
from tests.lua.cases.states import CROWD, LEASED, THROTTLED, with_meta
from tests.support.scripts import NOW, Case, World, calls

_META = {"limited": "starts", "schema": 2}
_RUNNING = {"limited": "running", "schema": 2}
_SAID = World(limits={"name:a": "1 1000 3 2 0 - 0 0 0"}, declared={"name:a": "1000.000 3 2"}, meta=_RUNNING)
_CHANGED = _SAID.but(limits={"name:a": "1 500 9 1 0 - 0 0 0"})
_RATE, _BOTH = Pace(1000, 3), {"pace": Pace(1000, 3), "places": 2}


def _stored(text: str, declared: str, scope: str = "name:a", **others: object) -> World:
    return World(limits={scope: text}, declared={scope: declared}, meta=_META, wake=1).but(**others)


CASES = [
    Case(
        "a rate, for the first time",
        CROWD,
        declare_call(calls, "a", pace=_RATE, places=None),
        True,
        _stored("1 1000 3 0 0 - 0 0 0", "1000.000 3 0") + CROWD,
    ),
    Case(
        "places of the queue",
        CROWD,
        declare_call(calls, None, pace=None, places=7),
        True,
        _stored("0 0 1 7 0 - 0 0 0", "0.000 1 7", "queue", meta=_RUNNING) + CROWD,
    ),
    Case(
        "places of a name: who runs has one",
        LEASED + CROWD,
        declare_call(calls, "a", pace=None, places=7),
        True,
        with_meta(LEASED, CROWD, _stored("1 0 1 7 0 - 0 0 0", "0.000 1 7", running={"a": 1}, meta=_RUNNING)),
    ),
    Case("as before", _SAID, declare_call(calls, "a", **_BOTH), False, _SAID),
    Case("as before, and changed since then", _CHANGED, declare_call(calls, "a", **_BOTH), False, _CHANGED),
    Case(
        "as before, and removed since then",
        _SAID.but(limits={}, meta={"schema": 2}),
        declare_call(calls, "a", **_BOTH),
        False,
        _SAID.but(limits={}, meta={"schema": 2}),
    ),
    Case(
        "another rate: changed places stay",
        _CHANGED,
        declare_call(calls, "a", pace=Pace(250, 3), places=2),
        True,
        _CHANGED.but(limits={"name:a": "1 250 3 1 0 - 0 0 0"}, declared={"name:a": "250.000 3 2"}, wake=1),
    ),
    Case(
        "another burst",
        _CHANGED,
        declare_call(calls, "a", pace=Pace(1000, 4), places=2),
        True,
        _CHANGED.but(limits={"name:a": "1 1000 4 1 0 - 0 0 0"}, declared={"name:a": "1000.000 4 2"}, wake=1),
    ),
    Case(
        "other places: a changed rate stays",
        _CHANGED,
        declare_call(calls, "a", pace=_RATE, places=5),
        True,
        _CHANGED.but(limits={"name:a": "1 500 9 5 0 - 0 0 0"}, declared={"name:a": "1000.000 3 5"}, wake=1),
    ),
    Case(
        "no places any more",
        _SAID.but(running={"x": 1, "y": 2}),
        declare_call(calls, "a", pace=_RATE, places=None),
        True,
        _SAID.but(
            running={"y": 2},
            limits={"name:a": "1 1000 3 0 0 - 0 0 0"},
            declared={"name:a": "1000.000 3 0"},
            meta=_META,
            wake=1,
        ),
    ),
    Case(
        "no rate any more",
        _SAID,
        declare_call(calls, "a", pace=None, places=2),
        True,
        _SAID.but(limits={"name:a": "1 0 1 2 0 - 0 0 0"}, declared={"name:a": "0.000 1 2"}, wake=1),
    ),
    Case(
        "beside another rate, which nobody declared: it stays",
        THROTTLED,
        declare_call(calls, "a", pace=None, places=2),
        True,
        THROTTLED.but(
            limits={"name:a": "1 1000 1 2 0 - +1000 0 0"},
            declared={"name:a": "0.000 1 2"},
            gates={1: -NOW},
            meta=THROTTLED.meta | _RUNNING,
            wake=1,
        ),
    ),
]
CASES += [
    Case(
        "no start of the queue at all, as a partition without a share",
        CROWD,
        declare_call(calls, None, pace=Pace(1e16, 0), places=None),
        True,
        _stored("0 1e+16 0 0 0 - 0 0 0", "10000000000000000.000 0 0", "queue") + CROWD,
    ),
    Case(
        "a rate of the queue whose next start is to come",
        CROWD,
        declare_call(calls, None, pace=Pace(2_000_000, 3), places=None, next_start=NOW * 1000 + 1_500_000),
        True,
        _stored("0 2e+06 3 0 0 - +1500000 0 0", "2000000.000 3 0", "queue") + CROWD,
    ),
    Case(
        "another rate, with a next start further ahead than starts can have moved it",
        _SAID,
        declare_call(calls, "a", pace=Pace(2000, 1), places=2, next_start=NOW * 1000 + 9_000_000),
        True,
        _SAID.but(limits={"name:a": "1 2000 1 2 0 - +2000 0 0"}, declared={"name:a": "2000.000 1 2"}, wake=1),
    ),
    Case(
        "as before, with a next start: nothing changes",
        _SAID,
        declare_call(calls, "a", **_BOTH, next_start=NOW * 1000 + 1000),
        False,
        _SAID,
    ),
]
_KNOWN = World(declared={"name:a": "0.000 1 2"} | {f"name:n{number}": "0.000 1 3" for number in range(7999)})
_FULL = World(limits={f"name:n{number}": f"{number} 1000 1 0 0 - 0 0 0" for number in range(1, 8001)}, meta=_META)
CASES += [
    Case(
        "another one of a name, while as many have one as may",
        _KNOWN,
        declare_call(calls, "a", pace=None, places=3),
        True,
        _KNOWN.but(
            limits={"name:a": "1 0 1 3 0 - 0 0 0"},
            declared=_KNOWN.declared | {"name:a": "0.000 1 3"},
            meta=_RUNNING,
            wake=1,
        ),
    ),
    Case(
        "of one of as many names as may have a limit",
        _FULL,
        declare_call(calls, "n5", pace=None, places=1),
        True,
        _FULL.but(
            limits=_FULL.limits | {"name:n5": "5 1000 1 1 0 - 0 0 0"},
            declared={"name:n5": "0.000 1 1"},
            meta=_RUNNING,
            wake=1,
        ),
    ),
]
