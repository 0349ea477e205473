"""`forget_events`: entries of the log are deleted whole; the others keep their numbers."""

from __future__ import annotations

from delayq.queue.sweeps.forgetting import forget_events_call
from tests.support.scripts import GONE_ENTRY, LOG, Case, World, calls

_LOG = World(
    events=["sent 0; ids a b; dues 5 5; retries 3 3", "acked 1; ids a; tokens T-9", "acked 2; ids b; tokens T-8"]
)
_ON = World(meta=LOG)

CASES = [
    Case(
        "one", _LOG, forget_events_call(calls, [2]), "1", _LOG.but(events=[_LOG.events[0], GONE_ENTRY, _LOG.events[2]])
    ),
    Case(
        "with the log on",
        _LOG + _ON,
        forget_events_call(calls, [1, 3]),
        "11",
        _ON.but(events=[GONE_ENTRY, _LOG.events[1]]),
    ),
    Case(
        "twice, and what is not there",
        _LOG,
        forget_events_call(calls, [3, 3, 9, 1]),
        "1001",
        _LOG.but(events=[GONE_ENTRY, _LOG.events[1]]),
    ),
    Case("in no log", World(), forget_events_call(calls, [1]), "0", World()),
]
