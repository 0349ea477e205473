"""`dead_import`: what died in another queue comes into the dead letter, as it was there."""

from __future__ import annotations

from typing import Any

from delayq.broker.requests import ScriptCall
from delayq.bulk.import_messages import ImportedDeath, dead_import_call
from tests.lua.cases.states import CROWD, DEAD, LEASED, LEFTOVERS, STATES, logged, remembering, reserved, with_meta
from tests.support.scripts import NOW, Case, Dead, Kept, World, calls


def line(id: str = "a", died: int | None = -100, due: int | None = -500, **changes: Any) -> ImportedDeath:
    """Return a message that died; times in milliseconds from `NOW`."""
    message = ImportedDeath(
        id,
        "" if died is None else NOW + died,
        "" if due is None else NOW + due,
        *(1, 2, "no such user", "oops", b"ha", b"", b"A"),
    )
    return message._replace(**changes)


def put(*messages: ImportedDeath, run: str = "") -> ScriptCall[str]:
    return dead_import_call(calls, messages, run=run)


def there(*deaths: tuple[str, int], number: int = 0, **changes: Any) -> World:
    """Return deaths of ids in the dead letter, each with its time; `number` is added to the tokens."""
    tokens = {(id, died): f"T{died * 1000 + number:+d}" for id, died in deaths}
    kept = Dead(2, 1, -500, 0, "no such user", "oops", "ha", "A")._replace(**changes)
    return World(
        dead={f"{id}:{token}": died for (id, died), token in tokens.items()},
        dead_messages={f"{id}:{token}": kept._replace(died=died) for (id, died), token in tokens.items()},
        dead_ids={id: " ".join(tokens[one] for one in sorted(deaths) if one[0] == id) for id, _ in deaths},
    )


def _imported(world: World, n: int = 1, **meta: Any) -> World:
    return with_meta(world, World(meta={"dead_imported": n} | meta))


_AT_A = there(("a", -100))


def _into_every_state() -> list[Case]:
    """A life, or the same death, stays as it is."""
    return [
        Case(
            f"{name}: stays" if name != "gone" else "gone: died elsewhere",
            world + CROWD,
            put(line()),
            "1" if name == "gone" else "0",
            _imported(world + CROWD + _AT_A) if name == "gone" else world + CROWD,
        )
        for name, world in STATES.items()
    ]


def _held(text: str, died: int, **done: float) -> Case:
    """A death of an id with attributes, and until when the id is held."""
    unique = {"unique": 1} if "unique_" in text else {}
    after = there(("a", died), attributes=text).but(done=done)
    call = put(line(died=died, attributes=text.encode()))
    return Case(f"{text} {died}", World(), call, "1", _imported(after, schema=2, **unique))


_KEPT = Kept("returned", 2, -500, -50, "T-7", "7", "", "retention=60000")
_RETAINED = World(completed={"a": 59_950}, results={"a": _KEPT}, meta={"schema": 2})
"""`a` was done 50 ms ago, and its result is kept for a minute."""


_EMPTY = World()
_ABOUT_TO_DIE = World(
    dead={"a:T-1000": 0},
    dead_messages={"a:T-1000": Dead(2, 1, -500, 0, "no such user", "oops", "ha", "A")},
    dead_ids={"a": "T-1000"},
)
"""`a` was about to die when it was exported, so that it is dead since it was imported."""


def _second_life(**changes: Any) -> tuple[ScriptCall[str], str, World]:
    """A message of another life than that in `_AT_A`, which comes into the dead letter now."""
    one = line(**changes)
    kept = Dead(one.attempts, 1, one.due - NOW, 0, "no such user", "oops", "ha", "A")
    after = _AT_A.dead_messages | {"a:T-1000": kept}
    return (
        put(one),
        "1",
        _imported(
            World(dead=_AT_A.dead | {"a:T-1000": 0}, dead_messages=after, dead_ids={"a": "T-100000 T-1000"}),
        ),
    )


def _first_life(world: World = _EMPTY, **changes: Any) -> tuple[ScriptCall[str], str, World]:
    """A death of another life than that in `_ABOUT_TO_DIE`, which comes before it."""
    one = line(**changes)
    kept = Dead(one.attempts, 1, one.due - NOW, -100, "no such user", "oops", "ha", "A")
    after = _ABOUT_TO_DIE.dead_messages | {"a:T-100000": kept}
    return (
        put(one),
        "1",
        _imported(
            world
            + World(
                dead=_ABOUT_TO_DIE.dead | {"a:T-100000": -100}, dead_messages=after, dead_ids={"a": "T-100000 T-1000"}
            ),
        ),
    )


def _kept_until(end: int) -> World:
    return _RETAINED.but(completed={"a": end})


_BOTH = (
    "dead_imported 0; run r; ids c d; tokens T-100000 T-100000; attempts 2 2; dues -500 -500; "
    "reasons no such user\nno such user; errors oops\noops"
)

CASES = [
    *_into_every_state(),
    Case("remains of a message", LEFTOVERS, put(line()), "1", _imported(LEFTOVERS + _AT_A)),
    Case("imported twice", _AT_A, put(line()), "0", _AT_A),
    Case("twice in one call", World(), put(line(), line()), "10", _imported(_AT_A)),
    Case(
        "several deaths of one id, in the order of their times",
        DEAD,
        put(line(died=-200), line("b"), line(died=-50), line(died=-100), line(died=-200)),
        "11100",
        _imported(
            World(
                dead={"a:T-200000": -200, "a:T-50000": -50} | DEAD.dead,
                dead_messages=there(("a", -200), ("a", -50)).dead_messages | DEAD.dead_messages,
                dead_ids={"a": "T-200000 T-50000 T-7"},
                meta=DEAD.meta,
            )
            + there(("b", -100)),
            3,
        ),
    ),
    Case(
        "the time of its death is the token of another entry",
        there(("a", -100), attempts=1).but(dead={"a:T-100000": -99}),
        put(line()),
        "1",
        _imported(
            World(
                dead={"a:T-100000": -99, "a:T-99999": -100},
                dead_messages=there(("a", -100), attempts=1).dead_messages | there(("a", -100), number=1).dead_messages,
                dead_ids={"a": "T-100000 T-99999"},
            )
        ),
    ),
    Case(
        "about to die: now, and due then too",
        World(),
        put(line(died=None, due=None)),
        "1",
        _imported(
            World(
                dead={"a:T-1000": 0},
                dead_messages={"a:T-1000": Dead(2, 1, 0, 0, "no such user", "oops", "ha", "A")},
                dead_ids={"a": "T-1000"},
            )
        ),
    ),
    Case("about to die, and its death is there", _AT_A, put(line(died=None)), "0", _AT_A),
    Case(
        "about to die, due at an unknown time, and its death is there",
        _AT_A,
        put(line(died=None, due=None)),
        "0",
        _AT_A,
    ),
    Case("about to die, twice", _ABOUT_TO_DIE, put(line(died=None)), "0", _ABOUT_TO_DIE),
    Case("about to die, and a death of another life is there", _AT_A, *_second_life(died=None, attempts=3)),
    Case("about to die, and a death of a life that was due before is there", _AT_A, *_second_life(died=None, due=-400)),
    Case(
        "about to die, and a life that was there has just died",
        there(("a", 0)),
        put(line(died=None, attempts=3)),
        "1",
        _imported(
            there(("a", 0)).but(dead_ids={"a": "T-1000 T+0"})
            + World(
                dead={"a:T-1000": 0},
                dead_messages={"a:T-1000": Dead(3, 1, -500, 0, "no such user", "oops", "ha", "A")},
            )
        ),
    ),
    Case("about to die, and dead, in one call", World(), put(line(died=None), line()), "10", _imported(_ABOUT_TO_DIE)),
    Case("dead, and about to die, in one call", World(), put(line(), line(died=None)), "10", _imported(_AT_A)),
    Case("dead, and there since it was about to die", _ABOUT_TO_DIE, put(line()), "0", _ABOUT_TO_DIE),
    Case("dead of one life, and of another that was about to die", _ABOUT_TO_DIE, *_first_life(attempts=1)),
    Case("dead of one life, and of another that was about to die, due then", _ABOUT_TO_DIE, *_first_life(due=-600)),
    Case(
        "dead twice, with equal lives",
        there(("a", -50)),
        put(line()),
        "1",
        _imported(there(("a", -100), ("a", -50))),
    ),
    Case(
        "died by a clock that is ahead",
        World(),
        put(line(died=5000)),
        "1",
        _imported(
            World(
                dead={"a:T-1000": 5000},
                dead_messages={"a:T-1000": Dead(2, 1, -500, 5000, "no such user", "oops", "ha", "A")},
                dead_ids={"a": "T-1000"},
            )
        ),
    ),
    Case(
        "two that died by a clock that is ahead",
        World(),
        put(line(died=5000), line(died=6000)),
        "11",
        _imported(
            World(
                dead={"a:T-1000": 5000, "a:T-999": 6000},
                dead_messages={
                    "a:T-1000": Dead(2, 1, -500, 5000, "no such user", "oops", "ha", "A"),
                    "a:T-999": Dead(2, 1, -500, 6000, "no such user", "oops", "ha", "A"),
                },
                dead_ids={"a": "T-1000 T-999"},
            ),
            2,
        ),
    ),
    Case(
        "one more, before the one that is there",
        DEAD.but(meta={"dead_imported": 3}),
        put(line(died=-200)),
        "1",
        World(
            dead={"a:T-200000": -200} | DEAD.dead,
            dead_messages=there(("a", -200)).dead_messages | DEAD.dead_messages,
            dead_ids={"a": "T-200000 T-7"},
            meta={"dead_imported": 4},
        ),
    ),
    Case(
        "an entry that somebody has deleted by hand",
        World(dead_ids={"a": "T-7"}),
        put(line()),
        "1",
        _imported(_AT_A.but(dead_ids={"a": "T-100000 T-7"})),
    ),
    Case(
        "any bytes, never delivered, with more attempts than retries",
        World(),
        put(
            line(payload=b"\x00\n7 7\n\xff", headers=b"\xfe\n", reason="r\n1", error="", attempts=0, retries=3),
            line("b", payload=b"", headers=b"", reason="", error="\n", attempts=9, retries=0),
        ),
        "11",
        _imported(
            there(
                *(("a", -100),),
                attempts=0,
                retries=3,
                reason="r\n1",
                error="",
                headers="\xfe\n",
                payload="\x00\n7 7\n\xff",
            )
            + there(("b", -100), attempts=9, retries=0, reason="", error="\n", headers="", payload=""),
            2,
        ),
    ),
    Case(
        "with a priority: what is redriven from here is ranked",
        World(),
        put(line(attributes=b"name=a snoozes=3 priority=1")),
        "1",
        _imported(there(("a", -100), attributes="name=a snoozes=3 priority=1"), schema=2, priority_step=60_000),
    ),
    Case(
        "a step of priorities that was set stays",
        World(meta={"priority_step": 5}),
        put(line(attributes=b"priority=1")),
        "1",
        _imported(there(("a", -100), attributes="priority=1"), schema=2, priority_step=5),
    ),
    _held("name=a", -100),
    _held("unique_after=60000", -100, a=59_900.5),
    _held("unique_after=60", -100),
    _held("unique_for=60000", -100, a=59_900.5),
    _held("unique_for=60 unique_after=9000", -100, a=8900.5),
    Case("in the dedupe window", remembering(1000), put(line()), "1", _imported(_AT_A + remembering(1000, a=-100))),
    Case("before the dedupe window", remembering(50), put(line()), "1", _imported(_AT_A + remembering(50))),
    Case(
        "two deaths in the dedupe window",
        remembering(1000),
        put(line(), line(died=-50)),
        "11",
        _imported(there(("a", -100), ("a", -50)) + remembering(1000, a=-50), 2),
    ),
    Case(
        "two deaths in the dedupe window, the later first",
        remembering(1000),
        put(line(died=-50), line()),
        "11",
        _imported(there(("a", -100), ("a", -50)) + remembering(1000, a=-50), 2),
    ),
    Case(
        "settled since by a later death that was imported",
        remembering(1000, a=-50) + there(("a", -50)),
        put(line()),
        "1",
        _imported(there(("a", -100), ("a", -50)) + remembering(1000, a=-50)),
    ),
    Case(
        "redriven since, and dead again",
        remembering(1000, a=-50) + there(("a", -50), number=7),
        put(line()),
        "5",
        remembering(1000, a=-50) + there(("a", -50), number=7),
    ),
    Case(
        "settled since by a later death that was imported as about to die",
        remembering(1000, a=0) + _ABOUT_TO_DIE,
        *_first_life(remembering(1000, a=0), attempts=1),
    ),
    Case(
        "settled since, after a later death",
        remembering(1000, a=-41) + there(("a", -50)),
        put(line()),
        "5",
        remembering(1000, a=-41) + there(("a", -50)),
    ),
    Case(
        "reserved since, perhaps by a later death",
        reserved(a=5000.5) + there(("a", -50)),
        put(line()),
        "1",
        _imported(reserved(a=5000.5) + there(("a", -100), ("a", -50))),
    ),
    Case(
        "reserved since, not by a death before",
        reserved(a=5000.5) + there(("a", -150)),
        put(line()),
        "5",
        reserved(a=5000.5) + there(("a", -150)),
    ),
    Case("settled since", remembering(1000, a=-99), put(line()), "5", remembering(1000, a=-99)),
    Case(
        "settled before",
        remembering(1000, a=-101),
        put(line()),
        "1",
        _imported(_AT_A + remembering(1000, a=-100)),
    ),
    Case(
        "settled since, which is forgotten",
        remembering(50, a=-60),
        put(line()),
        "1",
        _imported(_AT_A + remembering(50)),
    ),
    Case(
        "settled since, and forgotten just now",
        remembering(60, a=-60),
        put(line()),
        "1",
        _imported(_AT_A + remembering(60)),
    ),
    Case(
        "settled by this death, whose entry is gone",
        remembering(1000, a=-100),
        put(line()),
        "1",
        _imported(_AT_A + remembering(1000, a=-100)),
    ),
    Case(
        "as many old ids as a settlement forgets",
        remembering(50, p=-90, q=-80, r=-70),
        put(line(died=-20)),
        "1",
        _imported(there(("a", -20)) + remembering(50, r=-70, a=-20)),
    ),
    Case(
        "held, and another that is not",
        World(),
        put(line(attributes=b"unique_after=9000"), line("b")),
        "11",
        _imported(
            there(("a", -100), attributes="unique_after=9000") + there(("b", -100)).but(done={"a": 8900.5}),
            2,
            schema=2,
            unique=1,
        ),
    ),
    Case("reserved since", reserved(a=5000.5), put(line()), "5", reserved(a=5000.5)),
    Case(
        "held by the life that died",
        reserved(a=5000.5),
        put(line(attributes=b"unique_for=5200")),
        "1",
        _imported(there(("a", -100), attributes="unique_for=5200") + reserved(a=5100.5), schema=2),
    ),
    Case("completed since, without retention", _kept_until(-99), put(line()), "5", _kept_until(-99)),
    Case(
        "completed then, without retention", _kept_until(-100), put(line()), "1", _imported(_kept_until(-100) + _AT_A)
    ),
    Case("completed since", _RETAINED, put(line(attributes=b"retention=60000")), "5", _RETAINED),
    Case(
        "completed before",
        _RETAINED,
        put(line(died=-50, attributes=b"retention=60000")),
        "1",
        _imported(_RETAINED + there(("a", -50), attributes="retention=60000")),
    ),
    Case(
        "as part of a run, which counts",
        LEASED + remembering(1000, b=-1),
        put(line(), line("b"), line("c"), line("d"), run="r"),
        "0511",
        _imported(with_meta(LEASED, remembering(1000, b=-1, c=-100, d=-100)) + there(("c", -100), ("d", -100)), 2).but(
            runs={"r": "writing 0 - -1 2 1 0 0 1 0"}
        ),
    ),
    Case(
        "one that is there, as part of a run",
        DEAD,
        put(line(), run="r"),
        "0",
        DEAD.but(runs={"r": "writing 0 - -1 0 1 0 0 0 0"}),
    ),
]
CASES += logged(
    CASES,
    {
        "leased: stays": [],
        "gone: died elsewhere": [
            "dead_imported 0; ids a; tokens T-100000; attempts 2; dues -500; reasons no such user; errors oops"
        ],
        "as part of a run, which counts": [
            _BOTH,
        ],
    },
)
