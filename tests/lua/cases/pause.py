"""`pause`: only the setting changes, and only if its end is still to come."""

from __future__ import annotations

from delayq.queue.control.pausing import pause_call
from tests.lua.cases.states import CROWD, logged
from tests.support.scripts import NOW, Case, World, calls

_PAUSED = World(meta={"paused": f"{NOW + 500} deploy"})

CASES = [
    Case("for a time", World(), pause_call(calls, "+500", "deploy"), NOW + 500, _PAUSED),
    Case(
        "until a time",
        CROWD,
        pause_call(calls, f"{NOW + 1}", ""),
        NOW + 1,
        CROWD.but(meta=CROWD.meta | {"paused": f"{NOW + 1} "}),
    ),
    Case("without an end", World(), pause_call(calls, "0", "why not"), 0, World(meta={"paused": "0 why not"})),
    Case("again", _PAUSED, pause_call(calls, "+900", "later"), NOW + 900, World(meta={"paused": f"{NOW + 900} later"})),
    Case("again, without an end", _PAUSED, pause_call(calls, "0", ""), 0, World(meta={"paused": "0 "})),
    Case("until now", _PAUSED, pause_call(calls, f"{NOW}", "x"), -1, _PAUSED),
    Case("until what has passed", World(), pause_call(calls, f"{NOW - 1}", "x"), -1, World()),
]
CASES += logged(
    CASES,
    {
        "for a time": ["paused 0; dues 500; reasons deploy"],
        "until a time": ["paused 0; dues 1"],
        "without an end": ["paused 0; reasons why not"],
        "again": ["paused 0; dues 900; reasons later"],
        "again, without an end": ["paused 0"],
        "until now": [],
        "until what has passed": [],
    },
)
