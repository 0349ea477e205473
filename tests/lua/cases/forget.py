"""`forget`: nothing is left of what has ended; what is alive stays."""

from __future__ import annotations

from delayq.queue.sweeps.forgetting import ForgetReply, forget_call
from tests.lua.cases.groups import Group, gathering
from tests.lua.cases.states import AFTER, BACKOFF, CROWD, DEAD, LEFTOVERS, STATES, with_meta
from tests.support.scripts import Case, Dead, Kept, T, World, calls

_FIELD = f"a\n{T}\n0"
_KEPT = World(completed={"a": 500}, results={"a": Kept("returned", 1, -5, 0, "T-7", "7", attributes="retention=50")})
_HELD = World(done={"a": -100, "b": 5})
_ANOTHER = World(completed={"b": 500}, results={"b": Kept("returned", 1, -5, 0, "T-7", "7")})


def _reply(statuses: str, results: int = 0, deaths: int = 0, reserved: int = 0, remains: int = 0) -> ForgetReply:
    return ForgetReply(statuses, results, deaths, reserved, remains)


def _died(count: int) -> World:
    """Return what has died so often."""
    tokens = [f"T-{9000 - n}" for n in range(count)]
    return World(
        dead={f"a:{token}": -9 for token in tokens},
        dead_messages=dict.fromkeys((f"a:{token}" for token in tokens), Dead(1, 1, -500, -9, "no", "", "", "A")),
        dead_ids={"a": " ".join(tokens)} if tokens else {},
    )


def _purged(world: World, count: int) -> World:
    return world.but(meta={**world.meta, "dead_purged": count})


_ALL = DEAD + _KEPT + _HELD + LEFTOVERS.but(meta={}) + World(successors=AFTER.successors, attributes={"a": "name=old"})
_NONE = World(done={"b": 5}, meta={"token": "T-3", "dead_purged": 1})

CASES = [
    *(
        Case(
            name,
            world + CROWD,
            forget_call(calls, ["a"], fix=True),
            {"dead": _reply("1", deaths=1), "gone": _reply("0")}.get(name, _reply("2")),
            CROWD + World(meta={"token": "T-3", "dead_purged": 1}) if name == "dead" else world + CROWD,
        )
        for name, world in STATES.items()
    ),
    Case("a result", _KEPT + _ANOTHER, forget_call(calls, ["a"], fix=True), _reply("1", results=1), _ANOTHER),
    Case(
        "a result without its time",
        _KEPT.but(completed={}),
        forget_call(calls, ["a"], fix=True),
        _reply("1", 1),
        World(),
    ),
    Case("reserved", _HELD, forget_call(calls, ["a"], fix=True), _reply("1", reserved=1), World(done={"b": 5})),
    Case(
        "remains",
        LEFTOVERS + CROWD,
        forget_call(calls, ["a"], fix=True),
        _reply("1", remains=1),
        CROWD + World(meta={"token": "T-3"}),
    ),
    *(
        Case(
            f"remains in {part}",
            World(**{part: {"a": "pending 5 0 0 0 -"}}),
            forget_call(calls, ["a"], fix=True),
            _reply("1", remains=1),
            World(),
        )
        for part in ("deliveries", "headers", "attributes", "errors")
    ),
    Case(
        "a count of retries",
        World(retries={"a": 5}),
        forget_call(calls, ["a"], fix=True),
        _reply("1", remains=1),
        World(),
    ),
    Case(
        "a successor of nothing",
        World(successors=AFTER.successors),
        forget_call(calls, ["a"], fix=True),
        _reply("1", remains=1),
        World(),
    ),
    Case("all at once", _ALL, forget_call(calls, ["a"], fix=True), _reply("1", 1, 1, 1, 1), _NONE),
    Case(
        "alive, and all that is kept of it",
        BACKOFF + DEAD.but(meta={}) + _KEPT + _HELD,
        forget_call(calls, ["a"], fix=True),
        _reply("2"),
        BACKOFF + DEAD.but(meta={}) + _KEPT + _HELD,
    ),
    Case(
        "several, one of them twice",
        with_meta(DEAD, CROWD, _ANOTHER, _HELD.but(done={"q": 5})),
        forget_call(calls, ["b", "a", "a", "q", "u", "x"], fix=True),
        _reply("110210", results=1, deaths=2),
        _purged(
            with_meta(CROWD.but(dead={}, dead_messages={}, dead_ids={}), World(done={"q": 5}, meta={"token": "T-3"})), 2
        ),
    ),
    Case(
        "an id that begins another",
        World(done={"ab": 5}),
        forget_call(calls, ["a"], fix=True),
        _reply("0"),
        World(done={"ab": 5}),
    ),
    Case(
        "many deaths",
        _died(3),
        forget_call(calls, ["a"], fix=True),
        _reply("1", deaths=3),
        World(meta={"dead_purged": 3}),
    ),
    Case(
        "a thousand deaths, and then another call",
        _died(1000) + _HELD,
        forget_call(calls, ["a", "b"], fix=True),
        _reply("1", deaths=1000, reserved=1),
        World(done={"b": 5}, meta={"dead_purged": 1000}),
    ),
    Case(
        "more than a thousand deaths",
        _died(1002) + _HELD,
        forget_call(calls, ["a", "b"], fix=True),
        _reply("3", deaths=1000, reserved=1),
        World(
            dead={"a:T-8000": -9, "a:T-7999": -9},
            dead_messages=dict.fromkeys(("a:T-8000", "a:T-7999"), Dead(1, 1, -500, -9, "no", "", "", "A")),
            dead_ids={"a": "T-8000 T-7999"},
            done={"b": 5},
            meta={"dead_purged": 1000},
        ),
    ),
    Case(
        "what a group has left behind",
        World(gathered={"a 0": ",0", "b 0": ",0"}),
        forget_call(calls, [_FIELD, _FIELD, f"a\n{T}\n7"], fix=True),
        _reply("100", remains=1),
        World(gathered={"b 0": ",0"}),
    ),
    Case(
        "what a group gathers",
        gathering(Group()),
        forget_call(calls, [_FIELD, "a"], fix=True),
        _reply("22"),
        gathering(Group()),
    ),
]
