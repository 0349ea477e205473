"""`close`: closes a name or the queue for a time, never for a shorter one than before; trips or ends its breaker."""

from __future__ import annotations

from typing import Any

from tests.lua.cases.states import CROWD, LIMITED, THROTTLED, with_meta
from tests.support.scripts import NOW, Case, World, calls

_NEW = World(limits={"name:b": "1 0 1 0 500 - 0 0 0"}, meta={"limited": "starts", "schema": 2}, wake=1)
_TRIPPED = World(limits={"name:b": "1 0 1 0 0/500/500/2 - 0 0 0"}, meta={"limited": "starts", "schema": 2})


def _with(text: str, **changes: Any) -> World:
    """Return a world with one limit, of the name b."""
    return _TRIPPED.but(limits={"name:b": text}, **changes)


CASES = [
    Case("a name without a limit", CROWD, calls.close("b", 500), "1", _NEW + CROWD),
    Case(
        "the queue",
        CROWD,
        calls.close(None, 500),
        "1",
        _NEW.but(limits={"queue": "0 0 1 0 500 - 0 0 0"}) + CROWD,
    ),
    Case(
        "one that has a limit, and for which others wait",
        THROTTLED,
        calls.close("a", 500),
        "1",
        THROTTLED.but(limits={"name:a": "1 1000 1 0 500 - +1000 0 0"}, gates={1: -NOW}, wake=1),
    ),
    Case(
        "what is given back of starts stays as it is",
        _NEW.but(limits={"name:b": "1 1000 9 0 0 - +2000/-9/-5/1500 0 0"}, wake=0),
        calls.close("b", 500),
        "1",
        _NEW.but(limits={"name:b": "1 1000 9 0 500 - +2000/-9/-5/1500 0 0"}),
    ),
    Case(
        "closed for longer already",
        _NEW.but(wake=0),
        calls.close("b", 200),
        "1",
        _NEW,
    ),
    Case(
        "the lowest number that is free",
        World(limits={"name:x": "1 10 1 0 0 - 0 0 0", "name:y": "3 10 1 0 0 - 0 0 0", "queue": "0 0 1 5 0 - 0 0 0"}),
        calls.close("b", 500),
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
        calls.close("b", 0),
        "1",
        with_meta(CROWD, LIMITED).but(gates={}, wake=1),
    ),
    Case("a breaker trips", CROWD, calls.close("b", 0, pause=500), "1", _TRIPPED.but(wake=1) + CROWD),
    Case(
        "the breaker of the queue trips",
        CROWD,
        calls.close(None, 0, pause=500),
        "1",
        _TRIPPED.but(limits={"queue": "0 0 1 0 0/500/500/2 - 0 0 0"}, wake=1) + CROWD,
    ),
    Case(
        "a breaker trips whose name has a limit, is closed and let go evenly, and for which others wait",
        THROTTLED.but(limits={"name:a": "1 1000 4 0 700 - 0 9000 600"}),
        calls.close("a", 0, pause=500),
        "1",
        THROTTLED.but(limits={"name:a": "1 1000 4 0 700/500/500/2 - 0 9000 600"}, gates={1: -NOW}, wake=1),
    ),
    Case(
        "a breaker that waits for its first trial does not trip",
        _TRIPPED,
        calls.close("b", 0, pause=900),
        "2",
        _TRIPPED,
    ),
    Case(
        "a breaker trips again whose first trial may start",
        _with("1 0 1 0 0/-1/500/2 - 0 0 0"),
        calls.close("b", 0, pause=900),
        "1",
        _with("1 0 1 0 0/900/900/2 - 0 0 0", wake=1),
    ),
    Case(
        "a breaker trips again whose first trial may start now",
        _with("1 0 1 0 0/0/500/2 - 0 0 0"),
        calls.close("b", 0, pause=900),
        "1",
        _with("1 0 1 0 0/900/900/2 - 0 0 0", wake=1),
    ),
    Case(
        "a breaker trips again when a trial has failed",
        _with("1 0 1 0 0/400/500/1 - 0 0 0"),
        calls.close("b", 0, pause=500),
        "1",
        _with("1 0 1 0 0/500/500/2 - 0 0 0", wake=1),
    ),
    Case(
        "a trial has succeeded",
        with_meta(CROWD, _with("1 0 1 0 0/400/500/1 - 0 0 0")),
        calls.close("b", 0, pause=0),
        "1",
        with_meta(CROWD, World(meta={"schema": 2})).but(wake=1),
    ),
    Case(
        "the trial of the queue has succeeded",
        _with("").but(limits={"queue": "0 0 1 0 0/400/500/1 - 0 0 0"}, gates={0: 400}),
        calls.close(None, 0, pause=0),
        "1",
        World(meta={"schema": 2}, wake=1),
    ),
    Case(
        "a trial has succeeded of one that has a limit, is closed and let go evenly, and for which others wait",
        THROTTLED.but(limits={"name:a": "1 1000 4 0 700/400/500/1 - 0 9000 600"}),
        calls.close("a", 0, pause=0),
        "1",
        THROTTLED.but(limits={"name:a": "1 1000 4 0 700 - 0 9000 600"}, gates={1: -NOW}, wake=1),
    ),
    Case(
        "a success counts also before a trial",
        _TRIPPED,
        calls.close("b", 0, pause=0),
        "1",
        World(meta={"schema": 2}, wake=1),
    ),
    Case("a success where nothing has tripped", CROWD, calls.close("b", 0, pause=0), "2", CROWD),
    Case(
        "a success where all start again already",
        _with("1 0 1 0 0/-1/500/0 - 0 0 0"),
        calls.close("b", 0, pause=0),
        "2",
        _with("1 0 1 0 0/-1/500/0 - 0 0 0"),
    ),
    Case(
        "a success where all start again from now on",
        _with("1 0 1 0 0/0/500/0 - 0 0 0"),
        calls.close("b", 0, pause=0),
        "2",
        _with("1 0 1 0 0/0/500/0 - 0 0 0"),
    ),
    Case(
        "a success while the last trial runs",
        _with("1 0 1 0 0/1/500/0 - 0 0 0"),
        calls.close("b", 0, pause=0),
        "1",
        World(meta={"schema": 2}, wake=1),
    ),
    Case(
        "a breaker trips that had just let all start again",
        _with("1 0 1 0 0/-1/500/0 - 0 0 0"),
        calls.close("b", 0, pause=500),
        "1",
        _TRIPPED.but(wake=1),
    ),
    Case(
        "closed while its breaker has tripped",
        _TRIPPED,
        calls.close("b", 700),
        "1",
        _with("1 0 1 0 700/500/500/2 - 0 0 0", wake=1),
    ),
    Case(
        "a trial that a clock set back has put off comes nearer",
        _with("1 0 1 0 0/90000/500/1 - 0 0 0"),
        calls.close("b", 700),
        "1",
        _with("1 0 1 0 700/500/500/1 - 0 0 0", wake=1),
    ),
]
