"""`log_action`: nothing changes but the log, if it is on."""

from __future__ import annotations

from delayq.broker.event_log import log_action_call
from tests.lua.cases.states import CROWD, logged
from tests.support.scripts import Case, World, calls

CASES = [
    Case("to an empty queue", World(), log_action_call(calls, "ada", "pause: Paused orders."), True, World()),
    Case("to a full one", CROWD, log_action_call(calls, "bob", "limit: Limited a."), True, CROWD),
    Case("about a message", CROWD, log_action_call(calls, "bob", "kill: a: killed.", "a"), True, CROWD),
]
CASES += logged(
    CASES,
    {
        "to an empty queue": ["audit 0; holder ada; reasons pause: Paused orders."],
        "to a full one": ["audit 0; holder bob; reasons limit: Limited a."],
        "about a message": ["audit 0; holder bob; reasons kill: a: killed.; ids a"],
    },
)
