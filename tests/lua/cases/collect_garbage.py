"""`collect_garbage`: spent messages to the dead letter, and the dead letter kept within its limits."""

from __future__ import annotations

from collections.abc import Iterable

from delayq.broker.replies import CollectReply
from delayq.broker.requests import ScriptCall
from delayq.broker.scripts import SLOT_TTL
from tests.lua.cases.groups import SPECIAL, Group, following, gathering
from tests.lua.cases.states import (
    AFTER,
    CROWD,
    FOLLOWED,
    GARBAGE,
    LEASED,
    PENDING,
    STATES,
    STOPPED,
    logged,
    remembering,
    reserved,
    with_meta,
)
from tests.support.scripts import NOW, Case, Dead, Kept, World, calls


def collect(
    ids: Iterable[str] = (), *, limit: int = 1000, dead_max: int = 1000, dead_ttl: int = 1_000_000
) -> ScriptCall[CollectReply]:
    return calls.collect_garbage(limit=limit, dead_max=dead_max, dead_ttl=dead_ttl, slot_ttl=1_000_000, ids=ids)


_DEAD = World(
    dead={"a:T-7": 0},
    dead_messages={"a:T-7": Dead(2, 1, -5, 0, "retries spent", "oops", "ha", "A", "name=a")},
    dead_ids={"a": "T-7"},
    meta={"token": "T-3", "dead": 1},
)


def buried(**died: int) -> World:
    """Return dead messages by their ids and times of death; the token of each is its time."""
    return World(
        dead={f"{id}:T{time:+d}": time for id, time in died.items()},
        dead_messages={
            f"{id}:T{time:+d}": Dead(1, 0, time, time, "retries spent", "", "", id) for id, time in died.items()
        },
        dead_ids={id: f"T{time:+d}" for id, time in died.items()},
    )


def _named() -> list[Case]:
    cases = []
    for name, world in STATES.items():
        spent = name == "garbage"
        after = _DEAD if spent else world
        cases.append(
            Case(f"named, {name}", world + CROWD, collect(["a"]), CollectReply(int(spent), 0, 1), after + CROWD)
        )
    both = GARBAGE + World(
        garbage={"b"},
        messages={"b": "B"},
        retries={"b": 0},
        deliveries={"b": "garbage -6 1 T-8 T-8 w"},
    )
    b_dead = World(
        dead={"b:T-8": 0},
        dead_messages={"b:T-8": Dead(1, 0, -6, 0, "retries spent", "", "", "B")},
        dead_ids={"b": "T-8"},
    )
    like_ttl = World(garbage={"1000000"}, messages={"1000000": "B"}, deliveries={"1000000": "garbage -6 1 T-8 T-8 w"})
    return [
        *cases,
        Case(
            "named, beside an id that reads like a limit",
            GARBAGE + like_ttl,
            collect(["a"]),
            CollectReply(1, 0, 1),
            _DEAD + like_ttl,
        ),
        Case("named twice dies once", GARBAGE, collect(["a", "a"]), CollectReply(1, 0, 0), _DEAD),
        Case(
            "any",
            both,
            collect(),
            CollectReply(2, 0, 0),
            _DEAD + b_dead + World(meta={"token": "T-3", "dead": 2}),
        ),
        Case(
            "a second death leaves the first alone",
            GARBAGE + buried(a=-50),
            collect(),
            CollectReply(1, 0, 0),
            (_DEAD + buried(a=-50)).but(dead_ids={"a": "T-50 T-7"}),
        ),
        Case(
            "counts add up",
            GARBAGE.but(meta={"dead": 4}),
            collect(),
            CollectReply(1, 0, 0),
            _DEAD.but(meta={"dead": 5}),
        ),
        Case(
            "without an error, headers and attributes",
            GARBAGE.but(errors={}, headers={}, attributes={}),
            collect(),
            CollectReply(1, 0, 0),
            _DEAD.but(dead_messages={"a:T-7": Dead(2, 1, -5, 0, "retries spent", "", "", "A")}),
        ),
        Case(
            "spent, but not a message",
            GARBAGE.but(messages={}),
            collect(),
            CollectReply(0, 0, 0),
            World(meta={"token": "T-3"}),
        ),
        Case(
            "spent, but without a record",
            GARBAGE.but(deliveries={}),
            collect(),
            CollectReply(1, 0, 0),
            World(
                dead={"a:T+0": 0},
                dead_messages={"a:T+0": Dead(0, 0, 0, 0, "retries spent", "oops", "ha", "A", "name=a")},
                dead_ids={"a": "T+0"},
                meta={"token": "T-3", "dead": 1},
            ),
        ),
        Case(
            "spent, and in pending as well",
            GARBAGE + World(pending={"a": 5}),
            collect(),
            CollectReply(1, 0, 0),
            _DEAD + World(pending={"a": 5}),
        ),
        Case(
            "put there by another program, but in pending",
            PENDING + World(garbage={"a"}),
            collect(),
            CollectReply(0, 0, 0),
            PENDING,
        ),
        Case(
            "put there by another program, but leased by its record",
            LEASED + World(garbage={"a"}),
            collect(),
            CollectReply(0, 0, 0),
            LEASED,
        ),
        Case("nothing there", World(), collect(), CollectReply(0, 0, 0), World()),
    ]


def _trimmed() -> list[Case]:
    four = buried(a=-40, b=-30, c=-20, d=-10)
    twice = buried(a=-40, b=-30).but(
        dead={"a:T-40": -40, "a:T-20": -20, "b:T-30": -30},
        dead_ids={"a": "T-40 T-20", "b": "T-30"},
    )
    return [
        Case(
            "the oldest go when there are too many",
            four,
            collect(dead_max=2),
            CollectReply(0, 2, 0),
            buried(c=-20, d=-10).but(meta={"trimmed": 2}),
        ),
        Case(
            "the limits of the queue count, not those of who collects: their number",
            four.but(meta={"dead_max": 3}),
            collect(dead_max=0),
            CollectReply(0, 1, 0),
            buried(b=-30, c=-20, d=-10).but(meta={"dead_max": 3, "trimmed": 1}),
        ),
        Case(
            "the limits of the queue count, not those of who collects: their age",
            four.but(meta={"dead_ttl": 20}),
            collect(dead_ttl=0),
            CollectReply(0, 3, 0),
            buried(d=-10).but(meta={"dead_ttl": 20, "trimmed": 3}),
        ),
        Case("as many as there may be", four, collect(dead_max=4), CollectReply(0, 0, 0), four),
        Case("none at all may stay", four, collect(dead_max=0), CollectReply(0, 4, 0), World(meta={"trimmed": 4})),
        Case(
            "those too old go",
            four.but(meta={"trimmed": 5}),
            collect(dead_ttl=20),
            CollectReply(0, 3, 0),
            buried(d=-10).but(meta={"trimmed": 8}),
        ),
        Case(
            "too many, of which some are too old",
            four,
            collect(dead_ttl=40, dead_max=2),
            CollectReply(0, 2, 0),
            buried(c=-20, d=-10).but(meta={"trimmed": 2}),
        ),
        Case(
            "too old, of which some are too many",
            four,
            collect(dead_ttl=30, dead_max=3),
            CollectReply(0, 2, 0),
            buried(c=-20, d=-10).but(meta={"trimmed": 2}),
        ),
        Case(
            "no more than the limit are trimmed for their number",
            four,
            collect(dead_max=0, limit=3),
            CollectReply(0, 3, 0),
            buried(d=-10).but(meta={"trimmed": 3}),
        ),
        Case(
            "no more than the limit are trimmed for their age",
            four,
            collect(dead_ttl=5, limit=3),
            CollectReply(0, 3, 0),
            buried(d=-10).but(meta={"trimmed": 3}),
        ),
        Case(
            "of an id that died twice, the other death stays",
            twice,
            collect(dead_max=2),
            CollectReply(0, 1, 0),
            twice.but(
                dead={"a:T-20": -20, "b:T-30": -30},
                dead_messages={"b:T-30": twice.dead_messages["b:T-30"]},
                dead_ids={"a": "T-20", "b": "T-30"},
                meta={"trimmed": 1},
            ),
        ),
        Case(
            "what dies now counts with the others",
            GARBAGE + buried(b=-30, c=-20),
            collect(dead_max=2),
            CollectReply(1, 1, 0),
            buried(c=-20) + _DEAD + World(meta={"token": "T-3", "dead": 1, "trimmed": 1}),
        ),
    ]


CASES = [*_named(), *_trimmed()]
CASES += logged(
    CASES,
    {
        "nothing there": [],
        "named, leased": [],
        "named, garbage": [
            "dead 0; ids a; tokens T-7; attempts 2; dues -5; reasons retries spent; errors oops",
        ],
        "named twice dies once": [
            "dead 0; ids a; tokens T-7; attempts 2; dues -5; reasons retries spent; errors oops",
        ],
        "without an error, headers and attributes": [
            "dead 0; ids a; tokens T-7; attempts 2; dues -5; reasons retries spent; errors ",
        ],
        "spent, but not a message": [],
        "spent, but without a record": [
            "dead 0; ids a; tokens T+0; attempts 0; dues 0; reasons retries spent; errors oops",
        ],
        "spent, and in pending as well": [
            "dead 0; ids a; tokens T-7; attempts 2; dues -5; reasons retries spent; errors oops",
        ],
        "put there by another program, but in pending": [],
        "put there by another program, but leased by its record": [],
        "the oldest go when there are too many": ["dead_trimmed 0; ids a b; tokens T-40 T-30"],
        "none at all may stay": ["dead_trimmed 0; ids a b c d; tokens T-40 T-30 T-20 T-10"],
        "what dies now counts with the others": [
            "dead 0; ids a; tokens T-7; attempts 2; dues -5; reasons retries spent; errors oops",
            "dead_trimmed 0; ids b; tokens T-30",
        ],
    },
)
CASES += [
    Case(
        "the dead are remembered for the dedupe window",
        GARBAGE + CROWD.but(garbage=set()) + remembering(1000, x=-5),
        collect(),
        CollectReply(1, 0, 0),
        _DEAD + CROWD.but(garbage=set()) + remembering(1000, x=-5, a=0),
    ),
    Case(
        "ids out of the dedupe window are forgotten, no more than the limit",
        remembering(1000, v=-3000, w=-2000, x=-1000, y=-999),
        collect(limit=2),
        CollectReply(0, 0, 0),
        remembering(1000, x=-1000, y=-999),
    ),
    Case(
        "ids above the cap of the dedupe window are forgotten",
        remembering(1000, 1, w=-30, x=-20, y=-10),
        collect(),
        CollectReply(0, 0, 0),
        remembering(1000, 1, y=-10),
    ),
]
CASES += [
    Case(
        "what waits follows",
        GARBAGE + AFTER + CROWD,
        collect(["a"]),
        CollectReply(1, 0, 1),
        FOLLOWED.but(wake=1) + _DEAD + CROWD,
    ),
    Case(
        "what waits follows what is not there any more",
        World(garbage={"a"}) + AFTER,
        collect(),
        CollectReply(0, 0, 0),
        FOLLOWED,
    ),
    Case("what waits stays beside what runs", LEASED + AFTER, collect(["a"]), CollectReply(0, 0, 0), LEASED + AFTER),
    Case(
        "what waits is not looked at while the schema is 1",
        GARBAGE + AFTER.but(meta={"schema": 1}),
        collect(),
        CollectReply(1, 0, 0),
        _DEAD + AFTER.but(meta={"schema": 1}),
    ),
]
CASES += logged(
    CASES,
    {
        "what waits follows": [
            "dead 0; ids a; tokens T-7; attempts 2; dues -5; reasons retries spent; errors oops",
            "sent 0; ids a; dues 7000; retries 3",
        ]
    },
)
_KEPT = Kept("returned", 1, -900, -800, "T-9", "7")
_WAITED = World(waited={"a": 900, "b": 900})
CASES += [
    Case(
        "results whose time is over",
        World(completed={"a": -5, "b": 0, "c": 1}, results=dict.fromkeys("abc", _KEPT), waited={"x": -1, "y": 0}),
        collect(),
        CollectReply(0, 0, 0),
        World(completed={"c": 1}, results={"c": _KEPT}, waited={"y": 0}),
    ),
    Case(
        "as many results as ten times the limit",
        World(completed={f"{n}": -n for n in range(12)}, results={f"{n}": _KEPT for n in range(12)}),
        collect(limit=1),
        CollectReply(0, 0, 2),
        World(completed={"0": 0, "1": -1}, results={"0": _KEPT, "1": _KEPT}),
    ),
    Case(
        "ends stay when the last one waits no more: they go by their age",
        World(waited={"a": -1}, ends=["a", "b"]),
        collect(),
        CollectReply(0, 0, 0),
        World(ends=["a", "b"]),
    ),
    Case(
        "the last one that is waited for is told",
        GARBAGE + World(waited={"a": 900}, ends=["z"]),
        collect(),
        CollectReply(1, 0, 0),
        _DEAD + World(ends=["z", "a"]),
    ),
    Case(
        "whoever waits for a dead one is told",
        GARBAGE + _WAITED,
        collect(),
        CollectReply(1, 0, 0),
        _DEAD + World(waited={"b": 900}, ends=["a"]),
    ),
    Case(
        "nothing of results is looked at before any message had some",
        World(completed={"a": -5}, waited={"a": -5}, meta={"schema": 1}),
        collect(),
        CollectReply(0, 0, 0),
        World(completed={"a": -5}, waited={"a": -5}, meta={"schema": 1}),
    ),
    Case(
        "the dead are held from their end",
        with_meta(GARBAGE.but(attributes={"a": "unique_after=600"}), reserved()),
        collect(),
        CollectReply(1, 0, 0),
        with_meta(
            _DEAD.but(dead_messages={"a:T-7": _DEAD.dead_messages["a:T-7"]._replace(attributes="unique_after=600")}),
            reserved(a=600.5),
        ),
    ),
    Case(
        "ids whose own ends have come are forgotten, no more than the limit",
        reserved(v=-3.5, w=-2.5, x=0, y=0.5, z=1.5),
        collect(limit=3),
        CollectReply(0, 0, 0),
        reserved(y=0.5, z=1.5),
    ),
]
_CANCELLED = World(meta={"token": "T-3", "cancelled": 1})
_SPENT = World(garbage={"b"}, messages={"b": "B"}, retries={"b": 0}, deliveries={"b": "garbage -6 1 T-8 T-8 w"})
CASES += [
    Case("asked to stop", STOPPED, collect(), CollectReply(0, 0, 0), _CANCELLED),
    Case("asked to stop, named", STOPPED + CROWD, collect(["a"]), CollectReply(0, 0, 1), _CANCELLED + CROWD),
    Case(
        "asked to stop, beside one whose retries are spent",
        STOPPED + _SPENT + remembering(1000),
        collect(),
        CollectReply(1, 0, 0),
        World(
            dead={"b:T-8": 0},
            dead_messages={"b:T-8": Dead(1, 0, -6, 0, "retries spent", "", "", "B")},
            dead_ids={"b": "T-8"},
            meta={"token": "T-3", "cancelled": 1, "dead": 1},
        )
        + remembering(1000, a=0, b=0),
    ),
    Case(
        "asked to stop, and followed",
        STOPPED + AFTER,
        collect(),
        CollectReply(0, 0, 0),
        with_meta(_CANCELLED, FOLLOWED),
    ),
]
CASES += logged(CASES, {"asked to stop": ["cancelled 0; ids a"]})

_LEFT = {"old.1": f"1 {NOW - 2 * SLOT_TTL} 1", "new.1": f"7 {NOW} 1", "strange": "what no call remembers"}
CASES += [
    Case(
        "call slots that a version before has left",
        World(replies=_LEFT),
        collect(),
        CollectReply(0, 0, 0),
        World(replies={name: text for name, text in _LEFT.items() if name != "old.1"}),
    ),
    Case(
        "in a queue that it did not know",
        World(replies=_LEFT, meta={"schema": 3}),
        collect(),
        CollectReply(0, 0, 0),
        World(replies=_LEFT, meta={"schema": 3}),
    ),
]

_GROUP = with_meta(gathering(Group(3, first=4)), following(Group(2), id="f"))
_STRAY = {"a 3": ",3", "a 7": ",7", "a 5 -9": ",5", "f 2": ",2", "gone 0": ",0"}
CASES += [
    Case(
        "what groups have left behind",
        _GROUP + World(gathered=_STRAY),
        collect(),
        CollectReply(0, 0, 0),
        _GROUP,
    ),
    Case(
        "what many have left behind, and nothing of what gathers",
        World(gathered={f"g{number} 0": ",0" for number in range(990)}, meta=SPECIAL),
        collect(),
        CollectReply(0, 0, 0),
        World(meta=SPECIAL),
    ),
    Case(
        "in a queue without groups",
        World(gathered=_STRAY, meta={"schema": 4}),
        collect(),
        CollectReply(0, 0, 0),
        World(gathered=_STRAY, meta={"schema": 4}),
    ),
]
