"""`rekey`: stored texts are replaced unless they have changed, or their message is being processed."""

from __future__ import annotations

from delayq.queue.sweeps.rekeying import rekey_call
from tests.lua.cases.states import CROWD, PENDING, STATES, STOPPING
from tests.support.scripts import Case, World, calls

A = [("a", b"A", b"new")]
_EMPTY = [("a", b"", b"new")]
_REPLIES = {"leased": "2", "dead": "0", "gone": "0"}
_SPEC = World(schedules={"s": 60_000}, schedule_specs={"s": "{}\nA"}, schedule_states={"s": "T-9 3 -60000 1"})


def _new(world: World) -> World:
    return world.but(messages=world.messages | {"a": "new"})


CASES = [
    *(
        Case(state, world + CROWD, rekey_call(calls, "messages", A), _REPLIES.get(state, "1"), after)
        for state, world in STATES.items()
        for after in [_new(world + CROWD) if state not in _REPLIES else world + CROWD]
    ),
    Case("stopping", STOPPING, rekey_call(calls, "messages", A), "2", STOPPING),
    Case("changed", PENDING, rekey_call(calls, "messages", [("a", b"B", b"new")]), "0", PENDING),
    Case(
        "empty",
        World(messages={"a": ""}),
        rekey_call(calls, "messages", [("a", b"", b"new")]),
        "1",
        World(messages={"a": "new"}),
    ),
    Case("twice in a batch", PENDING, rekey_call(calls, "messages", [*A, ("a", b"A", b"other")]), "10", _new(PENDING)),
    Case(
        "several",
        PENDING + CROWD,
        rekey_call(calls, "messages", [("p", b"P", b"1"), ("r", b"R", b"2"), ("x", b"X", b"3"), *A]),
        "1201",
        _new(PENDING + CROWD).but(messages=CROWD.messages | {"a": "new", "p": "1"}),
    ),
    Case(
        "a schedule",
        _SPEC,
        rekey_call(calls, "schedule_specs", [("s", b"{}\nA", b"{}\nnew")]),
        "1",
        _SPEC.but(schedule_specs={"s": "{}\nnew"}, schedule_states={"s": "T+0 3 -60000 1"}),
    ),
    Case(
        "a schedule whose state is lost",
        World(schedule_specs={"s": "{}\nA"}),
        rekey_call(calls, "schedule_specs", [("s", b"{}\nA", b"{}\nnew")]),
        "1",
        World(schedule_specs={"s": "{}\nnew"}),
    ),
    Case(
        "a schedule that was changed",
        _SPEC,
        rekey_call(calls, "schedule_specs", [("s", b"{}\nB", b"{}\nnew")]),
        "0",
        _SPEC,
    ),
    Case(
        "a schedule with the name of a message stays",
        PENDING + _SPEC.but(schedule_states={"a": "T-9 3 -60000 1"}),
        rekey_call(calls, "messages", A),
        "1",
        _new(PENDING + _SPEC.but(schedule_states={"a": "T-9 3 -60000 1"})),
    ),
    Case("what is not dead", PENDING, rekey_call(calls, "dead_messages", [("a:1", b"A", b"new")]), "0", PENDING),
]
