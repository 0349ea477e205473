"""`dead_purge`: entries of the dead letter, one by one."""

from __future__ import annotations

from tests.lua.cases.redrive import A, dead
from tests.lua.cases.states import CROWD, DEAD, LEASED, logged
from tests.support.scripts import Case, T, World, calls

CASES = [
    Case("dead", DEAD + CROWD, calls.dead_purge([A]), "1", CROWD.but(meta={"token": "T-3", "dead_purged": 1})),
    Case("gone", CROWD, calls.dead_purge([A]), "0", CROWD),
    Case("another death of that id", DEAD, calls.dead_purge([f"a:{T - 8}"]), "0", DEAD),
    Case("alive", LEASED, calls.dead_purge([A]), "0", LEASED),
    Case(
        "alive again: the life goes on",
        LEASED + DEAD,
        calls.dead_purge([A]),
        "1",
        LEASED.but(meta={"token": "T-3", "dead_purged": 1}),
    ),
    Case(
        "an entry twice in a batch",
        DEAD,
        calls.dead_purge([A, A]),
        "10",
        World(meta={"token": "T-3", "dead_purged": 1}),
    ),
    Case(
        "one of two deaths of an id",
        dead([("a", -9), ("a", -7), ("a", -5)]),
        calls.dead_purge([A]),
        "1",
        dead([("a", -9), ("a", -5)]).but(meta={"dead_purged": 1}),
    ),
    *(
        Case(
            f"deaths of one id: {removed}",
            dead([("a", -token) for token in (9, 8, 7, 6)] + [("b", -5)]),
            calls.dead_purge([f"a:{T - int(token)}" for token in removed]),
            "1" * len(removed),
            dead([("a", -token) for token in (9, 8, 7, 6) if str(token) not in removed] + [("b", -5)]).but(
                meta={"dead_purged": len(removed)}
            ),
        )
        for removed in ("98", "76", "67", "87", "96", "79", "9876", "6789")
    ),
    Case(
        "several",
        dead([("a", -9), ("b", -8), ("c", -7)]).but(meta={"dead_purged": 2}),
        calls.dead_purge([f"c:{T - 7}", f"x:{T}", f"a:{T - 9}"]),
        "101",
        dead([("b", -8)]).but(meta={"dead_purged": 4}),
    ),
]
CASES += logged(
    CASES,
    {
        "dead": ["dead_purged 0; ids a; tokens T-7"],
        "gone": [],
        "several": ["dead_purged 0; ids c a; tokens T-7 T-9"],
    },
)
