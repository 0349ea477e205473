"""`withdraw`: asks for what is leased and has not started; moves nothing."""

from __future__ import annotations

from tests.lua.cases.states import CROWD, LEASED, STATES
from tests.support.scripts import Case, calls


def _marked(mark: str):
    return LEASED.but(deliveries={"a": f"leased -5 2 T-9 T-7 w{mark}"})


CASES = [
    *(
        Case(name, world + CROWD, calls.withdraw(["a"]), "2", world + CROWD)
        for name, world in STATES.items()
        if name != "leased"
    ),
    Case("leased by a consumer that reports nothing", LEASED + CROWD, calls.withdraw(["a"]), "0", LEASED + CROWD),
    *(
        Case(what, _marked(before) + CROWD, calls.withdraw(["a"]), reply, _marked(after) + CROWD)
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
        _marked(" -") + CROWD,
    ),
]
