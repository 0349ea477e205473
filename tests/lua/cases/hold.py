"""`hold`: a name or the queue is closed for a time, never for a shorter one than before."""

from __future__ import annotations

from tests.lua.cases.states import CROWD, LIMITED, THROTTLED, with_meta
from tests.support.scripts import NOW, Case, World, calls

_NEW = World(limits={"name:b": "1 0 1 0 500 - 0 0 0"}, meta={"limited": "starts", "schema": 2}, wake=1)
CASES = [
    Case("a name without a limit", CROWD, calls.hold("b", 500), "1", _NEW + CROWD),
    Case(
        "the queue",
        CROWD,
        calls.hold(None, 500),
        "1",
        _NEW.but(limits={"queue": "0 0 1 0 500 - 0 0 0"}) + CROWD,
    ),
    Case(
        "one that has a limit, and for which others wait",
        THROTTLED,
        calls.hold("a", 500),
        "1",
        THROTTLED.but(limits={"name:a": "1 1000 1 0 500 - +1000 0 0"}, gates={1: -NOW}, wake=1),
    ),
    Case(
        "closed for longer already",
        _NEW.but(wake=0),
        calls.hold("b", 200),
        "1",
        _NEW,
    ),
    Case(
        "the lowest number that is free",
        World(limits={"name:x": "1 10 1 0 0 - 0 0 0", "name:y": "3 10 1 0 0 - 0 0 0", "queue": "0 0 1 5 0 - 0 0 0"}),
        calls.hold("b", 500),
        "1",
        World(
            limits={
                "name:x": "1 10 1 0 0 - 0 0 0",
                "name:y": "3 10 1 0 0 - 0 0 0",
                "queue": "0 0 1 5 0 - 0 0 0",
                "name:b": "2 0 1 0 500 - 0 0 0",
            },
            meta={"limited": "running", "schema": 2},
            wake=1,
        ),
    ),
    Case(
        "closed for no time",
        with_meta(CROWD, LIMITED).but(gates={}),
        calls.hold("b", 0),
        "1",
        with_meta(CROWD, LIMITED).but(gates={}, wake=1),
    ),
]
