"""`release`: back to the head of ready, in order, or after a delay; uncharged."""

from __future__ import annotations

from typing import Any

from delayq.broker.requests import Release
from tests.lua.cases.states import (
    CROWD,
    KEPT,
    KEY,
    LEASED,
    PLACED,
    RELEASED,
    STATES,
    STOPPED,
    STOPPING,
    keyed,
    logged,
    with_meta,
)
from tests.support.scripts import NOW, Case, T, World, calls

_BACK = RELEASED.but(deliveries={"a": "ready -5 1 T-9 T-7 w"}, meta={"token": "T-3", "released": 1}, wake=1)
_HELD = World(
    ready=["y", "z"],
    unack={"a": 500, "b": 500, "c": 500, "d": 500},
    retries=dict.fromkeys("abcd", 3),
    deliveries={
        "a": "leased -5 1 T-9 T-9 w",
        "b": "leased -4 1 T-8 T-8 w",
        "c": "leased -3 3 T-7 T-6 w",
        "d": "leased -2 1 T-5 T-5 w",
    },
    meta={"released": 2},
)

_THREE_BACK = _HELD.but(
    ready=["b", "c", "y", "z"],
    unack={"a": 50, "d": 500},
    deliveries={
        "a": "backoff -5 0 T-9 T-9 w",
        "b": "ready -4 0 T-8 T-8 w",
        "c": "ready -3 2 T-7 T-6 w",
        "d": "leased -2 1 T-5 T-5 w",
    },
    meta={"released": 5, "backoffs": 1, "schema": 2},
    wake=1,
)
"""`d` is held under another token; the others are back, `a` after a delay, with new attributes."""
_PRIOR = LEASED.but(attributes={"a": "name=a priority=1"}, meta={"token": "T-3", "priority_step": 60_000})

CASES = [
    *(
        Case(name, world + CROWD, calls.release([Release("a", T - 7)]), "0", world + CROWD)
        for name, world in STATES.items()
        if name != "leased"
    ),
    Case(
        "with a priority, back among what is ranked",
        _PRIOR.but(deliveries={"a": "leased -5 2 T-9 T-7 w ?"}) + CROWD,
        calls.release([Release("a", T - 7)]),
        "1",
        _PRIOR.but(
            unack={},
            ranked={"a": -60_005},
            deliveries={"a": "ranked -5 1 T-9 T-7 w ?"},
            meta={"token": "T-3", "released": 1, "priority_step": 60_000},
            wake=1,
        )
        + CROWD,
    ),
    Case(
        "after a delay, behind others: nobody is woken",
        LEASED + CROWD,
        calls.release([Release("a", T - 7, 100_000)]),
        "1",
        LEASED.but(
            unack={"a": 100_000},
            deliveries={"a": "backoff -5 1 T-9 T-7 w"},
            meta={"token": "T-3", "released": 1, "backoffs": 1},
        )
        + CROWD,
    ),
    Case(
        "with a priority from now on, in a queue without a step",
        LEASED,
        calls.release([Release("a", T - 7, 0, b"priority=2")]),
        "1",
        _BACK.but(attributes={"a": "priority=2"}, meta={"token": "T-3", "released": 1, "schema": 2}),
    ),
    Case(
        "several, each with the priority that it has from now on",
        World(
            unack=dict.fromkeys("abc", 90),
            deliveries=dict.fromkeys("abc", "leased -5 1 T-7 T-7 w"),
            attributes={"a": "priority=1", "b": "priority=2", "c": "priority=3"},
            meta={"priority_step": 60_000},
        ),
        calls.release([Release("a", T - 7), Release("b", T - 7, 0, b"priority=5"), Release("c", T - 7)]),
        "111",
        World(
            ranked={"a": -60_005, "b": -300_005, "c": -180_005},
            deliveries=dict.fromkeys("abc", "ranked -5 0 T-7 T-7 w"),
            attributes={"a": "priority=1", "b": "priority=5", "c": "priority=3"},
            meta={"priority_step": 60_000, "released": 3, "schema": 2},
            wake=1,
        ),
    ),
    Case(
        "with a priority from now on",
        _PRIOR.but(attributes={"a": "name=a"}),
        calls.release([Release("a", T - 7, 0, b"name=a priority=2")]),
        "1",
        _PRIOR.but(
            unack={},
            ranked={"a": -120_005},
            attributes={"a": "name=a priority=2"},
            deliveries={"a": "ranked -5 1 T-9 T-7 w"},
            meta={"token": "T-3", "released": 1, "priority_step": 60_000, "schema": 2},
            wake=1,
        ),
    ),
    Case(
        "with a priority, after a delay",
        _PRIOR,
        calls.release([Release("a", T - 7, 1, b"name=a priority=1 snoozes=1")]),
        "1",
        _PRIOR.but(
            unack={"a": 1},
            attributes={"a": "name=a priority=1 snoozes=1"},
            deliveries={"a": "backoff -5 1 T-9 T-7 w"},
            meta={"token": "T-3", "released": 1, "backoffs": 1, "priority_step": 60_000, "schema": 2},
            wake=1,
        ),
    ),
    Case("leased under this token", LEASED + CROWD, calls.release([Release("a", T - 7)]), "1", _BACK + CROWD),
    Case(
        "asked for by another process",
        LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w -"}) + CROWD,
        calls.release([Release("a", T - 7)]),
        "1",
        LEASED.but(
            unack={"a": 1000},
            deliveries={"a": "backoff -5 1 T-9 T-7 w"},
            meta={"token": "T-3", "released": 1, "backoffs": 1},
            wake=1,
        )
        + CROWD,
    ),
    Case(
        "after a delay",
        LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w +"}) + CROWD,
        calls.release([Release("a", T - 7, 60_000)]),
        "1",
        LEASED.but(
            unack={"a": 60_000},
            deliveries={"a": "backoff -5 1 T-9 T-7 w"},
            meta={"token": "T-3", "released": 1, "backoffs": 1},
            wake=1,
        )
        + CROWD,
    ),
    Case(
        "asked for by another process, and after a delay",
        LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w -"}) + CROWD,
        calls.release([Release("a", T - 7, 50)]),
        "1",
        LEASED.but(
            unack={"a": 1000},
            deliveries={"a": "backoff -5 1 T-9 T-7 w"},
            meta={"token": "T-3", "released": 1, "backoffs": 1},
            wake=1,
        )
        + CROWD,
    ),
    Case(
        "after a delay, before all others that wait",
        _HELD,
        calls.release([Release("a", T - 9, 1), Release("b", T - 8)]),
        "11",
        _HELD.but(
            ready=["b", "y", "z"],
            unack={"a": 1, "c": 500, "d": 500},
            deliveries=_HELD.deliveries | {"a": "backoff -5 0 T-9 T-9 w", "b": "ready -4 0 T-8 T-8 w"},
            meta={"released": 4, "backoffs": 1},
            wake=1,
        ),
    ),
    Case(
        "asked for among others",
        _HELD.but(
            deliveries=_HELD.deliveries | {"b": "leased -4 1 T-8 T-8 w -", "c": "leased -3 3 T-7 T-6 w ?"},
            meta={"released": 2, "backoffs": 4},
        ),
        calls.release([Release("a", T - 9), Release("b", T - 8), Release("c", T - 6)]),
        "111",
        _HELD.but(
            ready=["a", "c", "y", "z"],
            unack={"b": 1000, "d": 500},
            deliveries={
                "a": "ready -5 0 T-9 T-9 w",
                "b": "backoff -4 0 T-8 T-8 w",
                "c": "ready -3 2 T-7 T-6 w ?",
                "d": "leased -2 1 T-5 T-5 w",
            },
            meta={"released": 5, "backoffs": 5},
            wake=1,
        ),
    ),
    Case(
        "some of them with other attributes",
        _HELD.but(attributes={"a": "name=n", "c": "name=n snoozes=1"}),
        calls.release(
            [
                Release("a", T - 9, 50, b"name=n snoozes=1"),
                Release("b", T - 8, 0, b"snoozes=1"),
                Release("c", T - 6),
                Release("d", T - 6, 0, b"snoozes=1"),
            ]
        ),
        "1110",
        _THREE_BACK.but(
            attributes={"a": "name=n snoozes=1", "b": "snoozes=1", "c": "name=n snoozes=1"},
        ),
    ),
    *(
        Case(
            f"with other attributes, and what was reported: {name}",
            LEASED.but(attributes={"a": before}),
            calls.release([Release("a", T - 7, 0, b"name=n snoozes=1")]),
            "1",
            _BACK.but(attributes={"a": after}, meta={"token": "T-3", "released": 1, "schema": 2}),
        )
        for name, before, after in (
            ("since the claim", "name=n progress=Nw==", "name=n snoozes=1 progress=Nw=="),
            ("nothing else before", "progress=Nw==", "name=n snoozes=1 progress=Nw=="),
            ("not last", "progress=Nw== name=n", "name=n snoozes=1 progress=Nw=="),
            ("what only ends like it", "name=n inprogress=Nw==", "name=n snoozes=1"),
        )
    ),
    Case(
        "of several, each keeps what was reported of it",
        _HELD.but(attributes={"a": "name=n", "b": "progress=Nw==", "c": "name=n progress=OA==", "d": "progress=MQ=="}),
        calls.release(
            [
                Release("d", T - 6, 0, b"snoozes=1"),
                Release("a", T - 9, 50, b"name=n snoozes=1"),
                Release("b", T - 8, 0, b"snoozes=1"),
                Release("c", T - 6),
            ]
        ),
        "0111",
        _THREE_BACK.but(
            attributes={
                "a": "name=n snoozes=1",
                "b": "snoozes=1 progress=Nw==",
                "c": "name=n progress=OA==",
                "d": "progress=MQ==",
            },
        ),
    ),
    Case("leased under a later token", LEASED + CROWD, calls.release([Release("a", T - 9)]), "0", LEASED + CROWD),
    Case(
        "a wake-up that is not taken yet is enough",
        LEASED.but(wake=1),
        calls.release([Release("a", T - 7)]),
        "1",
        _BACK,
    ),
    Case(
        "twice in a batch is released once",
        LEASED,
        calls.release([Release("a", T - 7), Release("a", T - 7)]),
        "10",
        _BACK,
    ),
    Case(
        "several keep their order, before those that wait",
        _HELD,
        calls.release(
            [Release("a", T - 9), Release("x", T), Release("b", T - 8), Release("d", T), Release("c", T - 6)]
        ),
        "10101",
        _HELD.but(
            ready=["a", "b", "c", "y", "z"],
            unack={"d": 500},
            deliveries={
                "a": "ready -5 0 T-9 T-9 w",
                "b": "ready -4 0 T-8 T-8 w",
                "c": "ready -3 2 T-7 T-6 w",
                "d": "leased -2 1 T-5 T-5 w",
            },
            meta={"released": 5},
            wake=1,
        ),
    ),
]
CASES += logged(
    CASES,
    {
        "gone": [],
        "backoff": [],
        "leased under this token": ["released 0; ids a; tokens T-7"],
        "leased under a later token": [],
        "after a delay": ["released 0; ids a; tokens T-7"],
        "asked for by another process, and after a delay": ["released 0; ids a; tokens T-7"],
        "after a delay, before all others that wait": ["released 0; ids b a; tokens T-8 T-9"],
        "asked for by another process": ["released 0; ids a; tokens T-7"],
        "asked for among others": ["released 0; ids c b a; tokens T-6 T-8 T-9"],
        "twice in a batch is released once": ["released 0; ids a; tokens T-7"],
        "several keep their order, before those that wait": ["released 0; ids c b a; tokens T-6 T-8 T-9"],
    },
)
_BOTH = STOPPING + World(unack={"b": 600}, retries={"b": 1}, deliveries={"b": "leased -6 1 T-8 T-8 w"})
CASES += [
    *(
        Case(
            f"asked to stop, {how}",
            STOPPING + CROWD,
            calls.release([Release("a", T - 7, delay, b"snoozes=1")]),
            "2",
            STOPPED + CROWD,
        )
        for how, delay in [("at once", 0), ("after a delay", 500)]
    ),
    Case("asked to stop, later token", STOPPING + CROWD, calls.release([Release("a", T)]), "0", STOPPING + CROWD),
    Case("asked to stop, twice in a batch", STOPPING, calls.release([Release("a", T - 7)] * 2), "20", STOPPED),
    Case(
        "asked to stop, beside one that is not",
        _BOTH,
        calls.release([Release("a", T - 7), Release("b", T - 8)]),
        "21",
        STOPPED
        + World(
            ready=["b"],
            retries={"b": 1},
            deliveries={"b": "ready -6 0 T-8 T-8 w"},
            meta={"released": 1, "token": "T-3"},
            wake=1,
        ),
    ),
]
CASES += logged(CASES, {"asked to stop, at once": []})
CASES += [
    Case(
        "its place is free, and the next of the line may start",
        with_meta(LEASED, PLACED),
        calls.release([Release("a", T - 7)]),
        "1",
        with_meta(_BACK, PLACED).but(running={}, gates={1: -NOW}),
    ),
    Case(
        "asked to stop, and its place is free",
        with_meta(STOPPING, PLACED),
        calls.release([Release("a", T - 7)]),
        "2",
        with_meta(STOPPED, PLACED).but(running={}, gates={1: -NOW}, wake=1),
    ),
]


def _unstarted(what: str, limits: dict[str, str], after: dict[str, str], *, again: bool = True, **places: Any) -> Case:
    """Return a release of `a`, which nobody is woken for, before a callback has started for it."""
    gates = {0: 900, 1: 900}
    flag = {"limited": "starts", "schema": 2}
    before = with_meta(LEASED + CROWD, World(limits=limits, gates=gates, meta=flag)).but(**places)
    numbers = {"queue": 0, "name:a": 1}
    opened = {numbers[scope]: 1 for scope in after if after[scope] != limits[scope]}
    return Case(
        f"unstarted: {what}",
        before,
        calls.release([Release("a", T - 7, 100_000, unstarted=True)] * (1 + again)),
        "10" if again else "1",
        before.but(
            unack=before.unack | {"a": 100_000},
            deliveries=before.deliveries | {"a": "backoff -5 1 T-9 T-7 w"},
            meta=before.meta | {"released": before.meta.get("released", 0) + 1, "backoffs": _backoffs(before) + 1},
            limits=limits | after,
            gates=gates | opened,
            wake=int(bool(opened)),
        ),
    )


def _backoffs(world: World) -> int:
    return world.meta.get("backoffs", 0)


def _rate(next_start: str, number: int = 1) -> str:
    return f"{number} 1000 9 0 0 - {next_start} 0 0"


_LAST = {"name:a": _rate("+5000/-9/-7/3000")}
CASES += [
    *(
        _unstarted(what, {"name:a": _rate(before)}, {"name:a": _rate(after)})
        for what, before, after in [
            ("of the last claim", "+5000/-9/-7/3000", "+4000/-9/-7/3000"),
            ("of the only claim", "+5000/-7/-7/0", "+4000/-7/-7/0"),
            ("of an earlier claim", "+5000/-7/-6/3000", "+4000/-7/-6/2000"),
            ("of an earlier claim, with little to spare", "+5000/-9/-6/300", "+4700/-9/-6/0"),
            ("of an earlier claim, with hardly anything to spare", "+5000/-9/-6/1", "+4999/-9/-6/0"),
            ("of an earlier claim, with nothing to spare", "+5000/-9/-6/0", "+5000/-9/-6/0"),
            ("before the limit was idle", "+5000/-6/-5/3000", "+5000/-6/-5/3000"),
            ("before the limit was idle, and one claim since", "+5000/-6/-6/0", "+5000/-6/-6/0"),
            ("before a change of the limit", "+5000", "+5000"),
        ]
    ),
    _unstarted(
        "let go over a time",
        {"name:a": "1 1000 9 0 0 - +5000/-9/-7/0 2000 600"},
        {"name:a": "1 1000 9 0 0 - +3000/-9/-7/0 2000 600"},
    ),
    _unstarted(
        "let go over a time that has ended",
        {"name:a": "1 1000 9 0 0 - +5000/-9/-7/0 2000 -1"},
        {"name:a": "1 1000 9 0 0 - +4000/-9/-7/0 2000 -1"},
    ),
    _unstarted("the rate was let go", {"name:a": "1 0 1 0 0 - +5000/-9/-7/0 0 0"}, {}),
    _unstarted("of the queue", {"queue": _rate("+5000/-9/-7/0", 0)}, {"queue": _rate("+4000/-9/-7/0", 0)}),
    _unstarted(
        "of the queue, without a name",
        {"queue": _rate("+5000/-9/-7/0", 0)} | _LAST,
        {"queue": _rate("+4000/-9/-7/0", 0)},
        attributes={},
    ),
    _unstarted(
        "of both",
        {"queue": _rate("+5000/-9/-5/500", 0)} | _LAST,
        {"queue": _rate("+4500/-9/-5/0", 0), "name:a": _rate("+4000/-9/-7/3000")},
        again=False,
    ),
    Case(
        "unstarted: two of a name, and one that has started",
        _HELD.but(
            attributes=dict.fromkeys("abc", "name=a"),
            limits={"name:a": _rate("+5000/-9/-8/1500")},
            gates={1: 900},
            meta={"released": 2, "limited": "starts", "schema": 2},
        ),
        calls.release([Release("a", T - 9, unstarted=True), Release("b", T - 8, unstarted=True), Release("c", T - 6)]),
        "111",
        _HELD.but(
            ready=["a", "b", "c", "y", "z"],
            unack={"d": 500},
            deliveries={
                "a": "ready -5 0 T-9 T-9 w",
                "b": "ready -4 0 T-8 T-8 w",
                "c": "ready -3 2 T-7 T-6 w",
                "d": "leased -2 1 T-5 T-5 w",
            },
            attributes=dict.fromkeys("abc", "name=a"),
            limits={"name:a": _rate("+3000/-9/-8/500")},
            gates={1: 1},
            meta={"released": 5, "limited": "starts", "schema": 2},
            wake=1,
        ),
    ),
    Case(
        "unstarted: under a later token",
        with_meta(LEASED + CROWD, World(limits=_LAST, meta={"limited": "starts", "schema": 2})),
        calls.release([Release("a", T - 8, unstarted=True)]),
        "0",
        with_meta(LEASED + CROWD, World(limits=_LAST, meta={"limited": "starts", "schema": 2})),
    ),
    Case(
        "started: what it took is not given back",
        with_meta(LEASED, World(limits=_LAST, gates={1: 900}, meta={"limited": "starts", "schema": 2})),
        calls.release([Release("a", T - 7)]),
        "1",
        with_meta(_BACK, World(limits=_LAST, gates={1: 900}, meta={"limited": "starts", "schema": 2})),
    ),
    Case(
        "unstarted: limits that are switched off",
        LEASED.but(limits=_LAST),
        calls.release([Release("a", T - 7, unstarted=True)]),
        "1",
        _BACK.but(limits=_LAST),
    ),
    Case(
        "unstarted: nothing waits for it",
        with_meta(LEASED + CROWD, World(limits=_LAST, meta={"limited": "starts", "schema": 2})),
        calls.release([Release("a", T - 7, 100_000, unstarted=True)]),
        "1",
        with_meta(
            LEASED.but(
                unack={"a": 100_000},
                deliveries={"a": "backoff -5 1 T-9 T-7 w"},
                meta={"token": "T-3", "released": 1, "backoffs": 1},
            )
            + CROWD,
            World(limits={"name:a": _rate("+4000/-9/-7/3000")}, meta={"limited": "starts", "schema": 2}),
        ),
    ),
    Case(
        "unstarted: what waits may start in a moment already",
        with_meta(LEASED + CROWD, World(limits=_LAST, gates={1: 1}, meta={"limited": "starts", "schema": 2})),
        calls.release([Release("a", T - 7, 100_000, unstarted=True)]),
        "1",
        with_meta(
            LEASED.but(
                unack={"a": 100_000},
                deliveries={"a": "backoff -5 1 T-9 T-7 w"},
                meta={"token": "T-3", "released": 1, "backoffs": 1},
            )
            + CROWD,
            World(
                limits={"name:a": _rate("+4000/-9/-7/3000")},
                gates={1: 1},
                meta={"limited": "starts", "schema": 2},
            ),
        ),
    ),
    Case(
        "unstarted: asked to stop",
        with_meta(STOPPING, World(limits=_LAST, gates={1: 900}, meta={"limited": "starts", "schema": 2})),
        calls.release([Release("a", T - 7, unstarted=True)]),
        "2",
        with_meta(
            STOPPED,
            World(
                limits={"name:a": _rate("+4000/-9/-7/3000")},
                gates={1: 1},
                wake=1,
                meta={"limited": "starts", "schema": 2},
            ),
        ),
    ),
]
CASES += keyed(CASES)
CASES += [
    Case(
        "in order: it keeps the place of its key",
        with_meta(LEASED, KEPT),
        calls.release([Release("a", T - 7)]),
        "1",
        with_meta(_BACK, KEPT),
    ),
    Case(
        "in order: asked to stop, and the place of its key is free",
        with_meta(STOPPING, KEPT),
        calls.release([Release("a", T - 7)]),
        "2",
        with_meta(STOPPED, KEPT).but(running={}, gates={KEY: -NOW}, wake=1),
    ),
]
