"""`await_ends`: ids that somebody waits for, until the latest time that anybody has named."""

from __future__ import annotations

from tests.lua.cases.states import CROWD
from tests.support.scripts import ANYWHERE, Case, World, calls

CASES = [
    Case(
        "new ids",
        CROWD,
        calls.await_ends(["a", "b"], duration=900),
        ANYWHERE,
        CROWD + World(waited={"a": 900, "b": 900}),
    ),
    Case(
        "again, and of others",
        World(waited={"a": 500, "b": 1000, "c": 1}),
        calls.await_ends(["a", "b"], duration=900),
        ANYWHERE,
        World(waited={"a": 900, "b": 1000, "c": 1}),
    ),
]
