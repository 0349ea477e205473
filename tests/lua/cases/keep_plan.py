"""`keep_plan`: the plan of a calendar is kept, unless another was kept meanwhile."""

from __future__ import annotations

from delayq.broker.requests import ScriptCall
from delayq.reminders.plan_store import keep_plan_call
from tests.lua.cases.states import CROWD
from tests.support.scripts import Case, World, calls


def keep(plan: str, revision: int = 0) -> ScriptCall[bool]:
    return keep_plan_call(calls, "team", revision, plan.encode("latin-1"))


_HELD = World(plans={"team": "7 old", "other": "3 other"})

CASES = [
    Case("the first", World(), keep("\x00\xff new"), True, World(plans={"team": "1 \x00\xff new"})),
    Case("the next", _HELD + CROWD, keep("new", 7), True, _HELD.but(plans=_HELD.plans | {"team": "8 new"}) + CROWD),
    Case("the tenth", World(plans={"team": "9 9"}), keep("new", 9), True, World(plans={"team": "10 new"})),
    Case("another was kept meanwhile", _HELD, keep("new", 6), False, _HELD),
    Case("one was kept where there was none", _HELD, keep("new"), False, _HELD),
    Case("it was forgotten meanwhile", World(), keep("new", 7), False, World()),
    Case("forgotten", _HELD, keep("", 7), True, World(plans={"other": "3 other"})),
    Case("forgotten, the last", World(plans={"team": "1 a"}), keep("", 1), True, World()),
    Case("not forgotten, for another was kept", _HELD, keep("", 8), False, _HELD),
]
