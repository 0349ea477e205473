"""`kill`: to the dead letter by hand, unless somebody is processing it."""

from __future__ import annotations

from tests.lua.cases.groups import SPECIAL, Group, gathering
from tests.lua.cases.states import (
    AFTER,
    BACKOFF,
    CROWD,
    DEAD,
    FOLLOWED,
    GARBAGE,
    KEPT,
    KEY,
    LEASED,
    LEFTOVERS,
    LIMITED,
    PENDING,
    RESCHEDULED,
    STATES,
    STOPPED,
    STOPPING,
    logged,
    remembering,
    reserved,
    with_meta,
)
from tests.support.scripts import LOG, NOW, Case, Dead, T, World, calls


def _dead(token: str = "T-7", due: int = -5, attempts: int = 2, retries: int = 4, error: str = "oops") -> World:
    """`a` in the dead letter: it has two retries left, besides those of the attempts."""
    attributes = "name=a"
    return World(
        dead={f"a:{token}": 0},
        dead_messages={f"a:{token}": Dead(attempts, retries, due, 0, "killed", error, "ha", "A", attributes)},
        dead_ids={"a": token},
        meta={"token": "T-3", "dead": 1},
    )


_FRESH = f"T{NOW * 1000 - T:+d}"
"""The token that is drawn for what was never delivered: the time, which is later than the last token."""
_UNTRIED = _dead(_FRESH, attempts=0, retries=2, error="").but(meta={"token": _FRESH, "dead": 1})
_NEVER = _dead(_FRESH, 60_000, 0, 2, "").but(meta=_UNTRIED.meta)
_RANKED = _dead().but(
    dead_messages={"a:T-7": Dead(2, 4, -5, 0, "killed", "oops", "ha", "A", "name=a priority=1")},
    meta={"token": "T-3", "dead": 1, "priority_step": 60_000},
)
_STALE = {"stale_ready": 1}


def _in_every_state() -> list[Case]:
    replies = {"leased": "2", "garbage": "3", "dead": "3", "gone": "0"}
    left = {
        "pending": _NEVER,
        "rescheduled": _dead(due=60_000),
        "ready": _UNTRIED + World(ready=["a"], meta=_UNTRIED.meta | _STALE),
        "released": _dead() + World(ready=["a"], meta=_dead().meta | _STALE),
        "backoff": _dead(),
        "retry": _dead() + World(retry=["a"], meta=_dead().meta | {"stale_retry": 1}),
        "ranked": _RANKED,
        "throttled": with_meta(_dead(), LIMITED),
    }
    return [
        Case(name, world + CROWD, calls.kill(["a"]), replies.get(name, "1"), left.get(name, world) + CROWD)
        for name, world in STATES.items()
    ]


_MANY = World(
    pending={"a": 50, "b": 60},
    ready=["c", "y"],
    retry=["z", "e"],
    unack={"g": 5, "i": 7},
    retries={"a": 3, "b": 1, "c": 0, "e": 2, "g": 0, "i": 3},
    messages={id: id.upper() for id in "abcegi"},
    deliveries={
        "b": "pending 10 1 T-9 T-9 w",
        "c": "ready -6 0 0 0 -",
        "e": "retry -7 1 T-8 T-8 w",
        "g": "backoff -8 3 T-6 T-4 w",
        "i": "leased -9 1 T-2 T-2 w",
    },
    headers={"e": "h\ne"},
    errors={"g": "boom"},
    dead={"c:T-99": -50},
    dead_messages={"c:T-99": Dead(1, 0, -60, -50, "r", "", "", "old")},
    dead_ids={"c": "T-99"},
    meta={"token": "T-1", "backoffs": 1, "stale_ready": 1, "stale_retry": 1, "dead": 3},
)
_NEXT = f"T{NOW * 1000 - T + 1:+d}"
_REASONS = "\n".join(["killed"] * 5)
_KILLED_EVENT = (
    f"dead 0; ids a b c e g; tokens {_FRESH} T-9 {_NEXT} T-8 T-4; attempts 0 1 0 1 3; dues 50 60 -6 -7 -8; "
    f"reasons {_REASONS}; errors \n\n\n\nboom"
)
_KILLED = World(
    ready=["c", "y"],
    retry=["z", "e"],
    unack={"i": 7},
    retries={"i": 3},
    messages={"i": "I"},
    deliveries={"i": "leased -9 1 T-2 T-2 w"},
    dead={"c:T-99": -50, f"a:{_FRESH}": 0, "b:T-9": 0, f"c:{_NEXT}": 0, "e:T-8": 0, "g:T-4": 0},
    dead_messages={
        "c:T-99": Dead(1, 0, -60, -50, "r", "", "", "old"),
        f"a:{_FRESH}": Dead(0, 3, 50, 0, "killed", "", "", "A"),
        "b:T-9": Dead(1, 2, 60, 0, "killed", "", "", "B"),
        f"c:{_NEXT}": Dead(0, 0, -6, 0, "killed", "", "", "C"),
        "e:T-8": Dead(1, 3, -7, 0, "killed", "", "h\ne", "E"),
        "g:T-4": Dead(3, 3, -8, 0, "killed", "boom", "", "G"),
    },
    dead_ids={"a": _FRESH, "b": "T-9", "c": f"T-99 {_NEXT}", "e": "T-8", "g": "T-4"},
    meta={"token": _NEXT, "stale_ready": 2, "stale_retry": 2, "dead": 8},
)

CASES = [
    *_in_every_state(),
    Case("running, and dead before", LEASED + DEAD, calls.kill(["a"]), "2", LEASED + DEAD),
    Case("garbage, and dead before", GARBAGE + DEAD, calls.kill(["a"]), "3", GARBAGE + DEAD),
    Case("not a message, but remains of one", LEFTOVERS + CROWD, calls.kill(["a"]), "0", LEFTOVERS + CROWD),
    Case("twice in a batch dies once", BACKOFF, calls.kill(["a", "a"]), "13", _dead()),
    Case(
        "retries not stored",
        BACKOFF.but(retries={}),
        calls.kill(["a"]),
        "1",
        _dead(retries=5),
    ),
    Case(
        "in no place, with a record or without",
        RESCHEDULED.but(pending={}) + World(messages={"b": "B"}),
        calls.kill(["a", "b"]),
        "11",
        _dead().but(
            dead={"a:T-7": 0, f"b:{_FRESH}": 0},
            dead_messages=_dead().dead_messages | {f"b:{_FRESH}": Dead(0, 3, 0, 0, "killed", "", "", "B")},
            dead_ids={"a": "T-7", "b": _FRESH},
            meta={"token": _FRESH, "dead": 2},
        ),
    ),
    Case(
        "the clock was set back: the token rises",
        PENDING.but(meta={"token": f"T{NOW * 1000 - T + 5:+d}"}),
        calls.kill(["a"]),
        "1",
        _dead(f"T{NOW * 1000 - T + 6:+d}", 60_000, 0, 2, "").but(
            meta={"token": f"T{NOW * 1000 - T + 6:+d}", "dead": 1}
        ),
    ),
    Case("several; a second death leaves the first alone", _MANY, calls.kill([*"abcxegia"]), "11101123", _KILLED),
    Case("running, and asked to stop", STOPPING + CROWD, calls.kill(["a"]), "2", STOPPING + CROWD),
    Case("has stopped, and is to be cancelled", STOPPED + CROWD, calls.kill(["a"]), "0", STOPPED + CROWD),
    Case("has stopped, and was dead before", STOPPED + DEAD, calls.kill(["a"]), "0", STOPPED + DEAD),
]
CASES += logged(
    CASES,
    {
        "gone": [],
        "leased": [],
        "garbage": [],
        "pending": [f"dead 0; ids a; tokens {_FRESH}; attempts 0; dues 60000; reasons killed; errors "],
        "backoff": ["dead 0; ids a; tokens T-7; attempts 2; dues -5; reasons killed; errors oops"],
        "several; a second death leaves the first alone": [_KILLED_EVENT],
    },
)
_SCHEMA = World(meta={"schema": 2})
CASES += [
    Case("what waits follows", BACKOFF + AFTER, calls.kill(["a", "a"]), "13", with_meta(_dead(), FOLLOWED)),
    Case(
        "logged: what waits follows",
        BACKOFF + AFTER + World(meta=LOG),
        calls.kill(["a"]),
        "1",
        with_meta(
            _dead(),
            FOLLOWED,
            World(
                meta=LOG,
                events=[
                    "dead 0; ids a; tokens T-7; attempts 2; dues -5; reasons killed; errors oops",
                    "sent 0; ids a; dues 7000; retries 3",
                ],
            ),
        ),
    ),
    Case("what waits after what runs stays", LEASED + AFTER, calls.kill(["a"]), "2", LEASED + AFTER),
    Case(
        "what waits is not looked at while the schema is 1",
        BACKOFF + AFTER.but(meta={"schema": 1}),
        calls.kill(["a"]),
        "1",
        _dead() + AFTER.but(meta={"schema": 1}),
    ),
    Case(
        "remembered for the dedupe window",
        BACKOFF + CROWD + remembering(1000, x=-2000),
        calls.kill(["r", "a", "c", "t"]),
        "2103",
        _dead() + CROWD + remembering(1000, a=0),
    ),
    Case(
        "held from its end, which is the kill",
        with_meta(BACKOFF.but(attributes={"a": "unique_after=600"}), reserved()),
        calls.kill(["a"]),
        "1",
        with_meta(
            _dead().but(
                dead_messages={"a:T-7": Dead(2, 4, -5, 0, "killed", "oops", "ha", "A", "unique_after=600")},
            ),
            reserved(a=600.5),
        ),
    ),
    Case(
        "whoever waits for it is told",
        BACKOFF + World(waited={"a": 900, "b": 900}),
        calls.kill(["a", "b"]),
        "10",
        _dead() + World(waited={"b": 900}, ends=["a"]),
    ),
    Case(
        "nobody waits while the schema is 1",
        BACKOFF.but(meta=BACKOFF.meta | {"schema": 1}) + World(waited={"a": 900}),
        calls.kill(["a"]),
        "1",
        with_meta(_dead(), World(waited={"a": 900}, meta={"schema": 1})),
    ),
    Case(
        "what it has gathered dies with it; what is beyond its batch follows it",
        gathering(Group(4, due=700, last=1), due=-1),
        calls.kill(["a"]),
        "1",
        World(
            dead={"a:T+0": 0},
            dead_messages={"a:T+0": Dead(0, 3, -1, 0, "killed", "", "", "[0,1,2]", "collect=3")},
            dead_ids={"a": "T+0"},
            pending={"a": 700},
            retries={"a": 3},
            messages={"a": ""},
            attributes={"a": Group(1, 700, first=3).text()},
            gathered={"a 3": ",3"},
            meta={**SPECIAL, "token": "T+0", "dead": 1, "sent": 1},
            wake=1,
        ),
    ),
]
CASES += [
    Case(
        "in order: the place of its key is free",
        with_meta(BACKOFF, KEPT),
        calls.kill(["a"]),
        "1",
        with_meta(_dead(), KEPT).but(running={}, gates={KEY: -NOW}, wake=1),
    ),
]
