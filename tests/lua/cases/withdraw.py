"""`withdraw`: asks for what is leased and has not started, and wakes who may hold it; moves nothing."""

from __future__ import annotations

from tests.lua.cases.states import CROWD, LEASED, STATES
from tests.support.scripts import Case, World, calls


def _marked(mark: str):
    return LEASED.but(deliveries={"a": f"leased -5 2 T-9 T-7 w{mark}"})


def _woken(status: str) -> World:
    return World(wake=int(status == "1"))


CASES = [
    *(
        Case(name, world + CROWD, calls.withdraw(["a"]), "2", world + CROWD)
        for name, world in STATES.items()
        if name != "leased"
    ),
    Case("leased by a consumer that reports nothing", LEASED + CROWD, calls.withdraw(["a"]), "0", LEASED + CROWD),
    *(
        Case(what, _marked(before) + CROWD, calls.withdraw(["a"]), reply, _marked(after) + CROWD + _woken(reply))
        for what, before, reply, after in [
            ("claimed", " ?", "1", " -"),
            ("asked for before", " -", "1", " -"),
            ("to run alone", " !", "1", " !"),
            ("started", " +", "0", " +"),
            ("asked to stop", " *", "0", " *"),
        ]
    ),
    Case(
        "several",
        _marked(" ?") + CROWD,
        calls.withdraw(["gone", "a", "a"]),
        "211",
        _marked(" -") + CROWD + World(wake=1),
    ),
    Case(
        "a wake-up that is not taken yet is enough",
        _marked(" ?").but(wake=1),
        calls.withdraw(["a"]),
        "1",
        _marked(" -").but(wake=1),
    ),
]
