"""`await_ends`: ids that somebody waits for, until the latest time that anybody has named."""

from __future__ import annotations

from delayq.queue.results.result_waits import await_ends_call
from tests.lua.cases.states import CROWD
from tests.support.scripts import ANYWHERE, Case, World, calls

CASES = [
    Case(
        "new ids",
        CROWD,
        await_ends_call(calls, ["a", "b"], duration=900),
        ANYWHERE,
        CROWD + World(waited={"a": 900, "b": 900}),
    ),
    Case(
        "again, and of others",
        World(waited={"a": 500, "b": 1000, "c": 1}),
        await_ends_call(calls, ["a", "b"], duration=900),
        ANYWHERE,
        World(waited={"a": 900, "b": 1000, "c": 1}),
    ),
]
