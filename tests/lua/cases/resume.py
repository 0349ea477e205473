"""`resume`: the pause is gone, and somebody is woken if there was one."""

from __future__ import annotations

from delayq.queue.control.pausing import resume_call
from tests.lua.cases.states import CROWD, logged
from tests.support.scripts import NOW, Case, World, calls

_OPEN = World(meta={"token": "T-3"})

CASES = [
    Case("paused", _OPEN.but(meta=_OPEN.meta | {"paused": "0 deploy"}), resume_call(calls), True, _OPEN.but(wake=1)),
    Case("paused until later", World(meta={"paused": f"{NOW + 1} "}), resume_call(calls), True, World(wake=1)),
    Case("a wake-up waits already", World(meta={"paused": "0 "}, wake=1), resume_call(calls), True, World(wake=1)),
    Case("over by itself", World(meta={"paused": f"{NOW} x"}), resume_call(calls), False, World()),
    Case("not paused", CROWD, resume_call(calls), False, CROWD),
]
CASES += logged(
    CASES,
    {
        "paused": ["resumed 0"],
        "paused until later": ["resumed 0"],
        "a wake-up waits already": ["resumed 0"],
        "over by itself": [],
        "not paused": [],
    },
)
