"""`redrive`: dead messages begin a new life."""

from __future__ import annotations

from collections.abc import Iterable

from delayq.broker.requests import ScriptCall
from tests.lua.cases.states import CROWD, DEAD, LEFTOVERS, STATES, logged, remembering
from tests.support.scripts import Case, Dead, T, World, calls


def redrive(
    *entries: str, retries: int | None = None, payloads: Iterable[bytes] | None = None, **pace: float
) -> ScriptCall[str]:
    return calls.redrive(entries, retries=retries, payloads=payloads, **pace)


def dead(deaths: Iterable[tuple[str, int]]) -> World:
    """Return deaths of ids, each with its token."""
    deaths = list(deaths)
    return World(
        dead={f"{id}:T{token:+d}": -1 for id, token in deaths},
        dead_messages={f"{id}:T{token:+d}": Dead(1, 3, -9, -1, "r", "e", "", id) for id, token in deaths},
        dead_ids={id: " ".join(f"T{token:+d}" for other, token in deaths if other == id) for id, _ in deaths},
    )


A = f"a:{T - 7}"

_ALIVE = World(
    pending={"a": 0},
    retries={"a": 1},
    messages={"a": "A"},
    headers={"a": "ha"},
    attributes={"a": "name=a"},
    meta={"token": "T-3", "redriven": 1},
    wake=1,
)


def _onto_every_state() -> list[Case]:
    return [
        Case(f"{name} again", world + DEAD + CROWD, redrive(A), "2", world + DEAD + CROWD)
        for name, world in STATES.items()
        if name not in ("dead", "gone")
    ]


CASES = [
    *_onto_every_state(),
    Case(
        "edited: the new payload takes the place of the old",
        DEAD + CROWD,
        redrive("x:1", A, A, payloads=[b"X", b"\x00new\n", b"other"]),
        "010",
        _ALIVE.but(messages={"a": "\x00new\n"}) + CROWD,
    ),
    Case(
        "edited: only those whose ids do not live",
        dead([("a", -7), ("b", -6), ("c", -5)]) + World(messages={"b": "B"}, retries={"b": 1}, pending={"b": 9}),
        redrive(A, f"b:{T - 6}", f"c:{T - 5}", payloads=[b"", b"lost", b"C2"]),
        "121",
        World(
            pending={"a": 0, "b": 9, "c": 0},
            retries={"a": 3, "b": 1, "c": 3},
            messages={"a": "", "b": "B", "c": "C2"},
            wake=1,
            meta={"redriven": 2},
        )
        + dead([("b", -6)]),
    ),
    Case(
        "dead: due at once, with headers and as many retries as it was sent with",
        DEAD + CROWD,
        redrive(A),
        "1",
        _ALIVE + CROWD,
    ),
    *(
        Case(
            f"begins anew with {text or 'none'} of {before}",
            DEAD.but(dead_messages={"a:T-7": DEAD.dead_messages["a:T-7"]._replace(attributes=before)}),
            redrive(A),
            "1",
            _ALIVE.but(attributes={"a": text} if text else {}),
        )
        for before, text in (
            ("snoozes=3", ""),
            ("name=a snoozes=12", "name=a"),
            ("snoozes=3 name=snoozes", "name=snoozes"),
            ("name=a snoozes=1 x=2", "name=a x=2"),
            ("name=a unhandled=719", "name=a"),
            ("name=a expires=+5000 missed=drop", "name=a missed=drop"),
            ("expires=1700000000000", ""),
            ("name=a since=1700000000000", "name=a"),
            ("name=a retention=50 progress=Nw==", "name=a retention=50"),
            ("progress=Nw==", ""),
            ("name=a latest=1 missed=drop", "name=a latest=1 missed=drop"),  # of a version before
        )
    ),
    Case("with retries as given", DEAD, redrive(A, retries=9), "1", _ALIVE.but(retries={"a": 9})),
    Case("with no retries", DEAD, redrive(A, retries=0), "1", _ALIVE.but(retries={"a": 0})),
    Case(
        "dead, and remains of a message",
        DEAD + LEFTOVERS,
        redrive(A, retries=4),
        "1",
        LEFTOVERS + _ALIVE.but(retries={"a": 4}),
    ),
    Case("gone", CROWD, redrive(A), "0", CROWD),
    Case("another death of that id", DEAD + CROWD, redrive(f"a:{T - 8}"), "0", DEAD + CROWD),
    Case("not an entry at all", DEAD + CROWD, redrive("a"), "0", DEAD + CROWD),
    Case(
        "without headers; a wake-up that is not taken yet is enough",
        dead([("b", -5)]).but(wake=1),
        redrive(f"b:{T - 5}"),
        "1",
        World(pending={"b": 0}, retries={"b": 3}, messages={"b": "b"}, meta={"redriven": 1}, wake=1),
    ),
    Case(
        "any bytes",
        DEAD.but(dead_messages={"a:T-7": Dead(2, 1, -5, 0, "r\n1", "e\n2 3", "h\x00\n", "\x00\n7 7\n\xff", "name=a")}),
        redrive(A),
        "1",
        _ALIVE.but(headers={"a": "h\x00\n"}, messages={"a": "\x00\n7 7\n\xff"}),
    ),
    Case("an entry twice in a batch", DEAD, redrive(A, A), "10", _ALIVE),
    Case(
        "two deaths of one id: one life",
        dead([("a", -9), ("a", -5)]),
        redrive(f"a:{T - 9}", f"a:{T - 5}"),
        "12",
        dead([("a", -5)])
        + World(pending={"a": 0}, retries={"a": 3}, messages={"a": "a"}, meta={"redriven": 1}, wake=1),
    ),
    Case(
        "several",
        dead([("a", -9), ("b", -8), ("c", -7)]).but(meta={"redriven": 2}),
        redrive(f"a:{T - 9}", f"x:{T - 9}", f"c:{T - 7}"),
        "101",
        dead([("b", -8)])
        + World(
            pending={"a": 0, "c": 0},
            retries={"a": 3, "c": 3},
            messages={"a": "a", "c": "c"},
            meta={"redriven": 4},
            wake=1,
        ),
    ),
    Case(
        "one after another; what is not redriven takes no turn",
        dead([("a", -9), ("b", -8), ("c", -7), ("d", -6)]) + CROWD,
        redrive(f"a:{T - 9}", f"x:{T - 9}", f"b:{T - 8}", f"c:{T - 7}", f"d:{T - 6}", first=10.5, interval=0.4),
        "10111",
        World(
            pending={"a": 10, "b": 10, "c": 11, "d": 11},
            retries={"a": 3, "b": 3, "c": 3, "d": 3},
            messages={"a": "a", "b": "b", "c": "c", "d": "d"},
            meta={"redriven": 4},
            wake=1,
        )
        + CROWD,
    ),
    Case(
        "an id that looks like the entry of another",
        dead([("a", 0), (f"a:{T}", -3)]),
        redrive(f"a:{T}", f"a:{T}:{T - 3}"),
        "11",
        World(
            pending={"a": 0, f"a:{T}": 0},
            retries={"a": 3, f"a:{T}": 3},
            messages={"a": "a", f"a:{T}": f"a:{T}"},
            meta={"redriven": 2},
            wake=1,
        ),
    ),
]
CASES += logged(
    CASES,
    {
        "ready again": [],
        "gone": [],
        "dead: due at once, with headers and as many retries as it was sent with": [
            "redriven 0; ids a; dues 0; retries 1",
        ],
        "with retries as given": ["redriven 0; ids a; dues 0; retries 9"],
        "an entry twice in a batch": ["redriven 0; ids a; dues 0; retries 1"],
        "two deaths of one id: one life": ["redriven 0; ids a; dues 0; retries 3"],
        "several": ["redriven 0; ids a c; dues 0 0; retries 3 3"],
    },
)
CASES += [
    Case(
        "an id in the dedupe window lives again",
        DEAD + remembering(1000, a=-100),
        redrive(A),
        "1",
        _ALIVE + remembering(1000, a=-100),
    ),
]
