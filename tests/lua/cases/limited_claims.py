"""Claims under limits: what may not start waits in a line, holds up nobody, and starts first once its gate is open."""

from __future__ import annotations

from typing import Any

from delayq.broker.replies import ClaimedMessage, ClaimReply
from delayq.broker.requests import UNSTARTED, ScriptCall
from tests.support.scripts import NOW, Case, T, World, calls

LEASE = 30_000
_RATE = {"limited": "starts", "schema": 2}
_PLACES = {"limited": "running", "schema": 2}


def _claim(wanted: int) -> ScriptCall[ClaimReply]:
    return calls.ready_to_unack(wanted, lease=LEASE, consumer_id="me")


def _given(id: str, token: int, *, due: int = -5, attempt: int = 1, name: str = "") -> ClaimedMessage:
    attributes = f"name={name}".encode() if name else b""
    return ClaimedMessage(id, T + token, id.upper().encode(), 3, NOW + due, attempt, b"", attributes)


def _names(**names: str) -> World:
    """Return messages with names, by id; '' for none."""
    return World(
        retries=dict.fromkeys(names, 3),
        messages={id: id.upper() for id in names},
        attributes={id: f"name={name}" for id, name in names.items() if name},
    )


def _claimed(
    *ids: str,
    left: int = 0,
    gate: int | None = None,
    names: dict[str, str],
    attempts: int = 1,
    trials: tuple[tuple[str, str | None], ...] = (),
) -> ClaimReply:
    messages = [_given(id, n, name=names[id], attempt=attempts) for n, id in enumerate(ids)]
    next_gate = -1 if gate is None else NOW + gate
    return ClaimReply(NOW, NOW + LEASE, left, messages, next_gate=next_gate, trials=trials)


def _leased(*ids: str, attempts: int = 1) -> World:
    return World(
        unack=dict.fromkeys(ids, LEASE),
        deliveries={id: f"leased -5 {attempts} T+{n} T+{n} me" for n, id in enumerate(ids)},
    )


def _ready(ids: str) -> World:
    return World(ready=list(ids), deliveries=dict.fromkeys(ids, "ready -5 0 0 0 -"))


def _waiting(number: int, ids: str) -> World:
    return World(throttled=dict.fromkeys(ids, (number, -5)), deliveries=dict.fromkeys(ids, "throttled -5 0 0 0 -"))


def _meta(flag: dict[str, Any], delivered: int, throttled: int = 0) -> World:
    token = {"token": f"T+{delivered - 1}"} if delivered else {}
    return World(meta={**flag, **token, "delivered": delivered, "throttled": throttled})


def _sum(*worlds: World) -> World:
    whole = World()
    for world in worlds:
        whole = (whole + world).but(meta={**whole.meta, **world.meta})
    return whole


_AB = {"a": "x", "b": "x", "c": "y", "d": ""}
_FOUR = _names(**_AB)
_URGENT = _names(a="x", b="x", c="y", d="x")
_URGENT = _URGENT.but(attributes=_URGENT.attributes | {"b": "name=x priority=1000", "d": "priority=-2 name=x"})


READY = [
    Case(
        "a rate that does not bind yet",
        _sum(_FOUR, _ready("abcd"), World(limits={"name:x": "1 1000 2 0 0 - 0 0 0"}, meta=_RATE)),
        _claim(4),
        _claimed("a", "b", "c", "d", names=_AB),
        _sum(
            _FOUR,
            _leased("a", "b", "c", "d"),
            World(limits={"name:x": "1 1000 2 0 0 - +2000/0/0/0 0 0"}),
            _meta(_RATE, 4),
        ),
    ),
    Case(
        "a rate that was removed counts no more, beside places",
        _sum(_names(a="x"), _ready("a"), World(limits={"name:x": "1 0 1 5 0 - +5000 0 0"}, meta=_PLACES)),
        _claim(1),
        _claimed("a", names=_AB),
        _sum(
            _names(a="x"),
            _leased("a"),
            World(limits={"name:x": "1 0 1 5 0 - +5000 0 0"}, running={"a": 1}),
            _meta(_PLACES, 1),
        ),
    ),
    Case(
        "one place of two is taken, and nothing has waited yet",
        _sum(
            _FOUR, _ready("abcd"), World(limits={"name:x": "1 0 1 2 0 - 0 0 0"}, running={"r": 1, "s": 2}, meta=_PLACES)
        ),
        _claim(4),
        _claimed("a", "c", "d", names=_AB),
        _sum(
            _FOUR,
            _leased("a", "c", "d"),
            _waiting(1, "b"),
            World(
                limits={"name:x": "1 0 1 2 0 - 0 0 0"}, running={"a": 1, "r": 1, "s": 2}, gates={1: None}, meta=_PLACES
            ),
            _meta(_PLACES, 3, 1),
        ),
    ),
    *(
        Case(
            f"a start after others {what}",
            _sum(_names(a="x"), _ready("a"), World(limits={"name:x": f"1 1000 9 0 0 - {before} 0 0"}, meta=_RATE)).but(
                meta={**_RATE, "token": "T-3"}
            ),
            _claim(4),
            _claimed("a", names=_AB),
            _sum(_names(a="x"), _leased("a"), World(limits={"name:x": f"1 1000 9 0 0 - {after} 0 0"}), _meta(_RATE, 1)),
        )
        for what, before, after in [
            ("leaves them what it does not use", "+3500/-9/-9/0", "+4500/-9/0/3500"),
            ("leaves them the least that one has left", "+3500/-9/-5/2000", "+4500/-9/0/2000"),
            ("leaves them less than before", "+1500/-9/-5/2000", "+2500/-9/0/1500"),
            ("leaves them as much as one takes", "+3500/-9/-5/1000", "+4500/-9/0/1000"),
            ("leaves them nothing, since the limit was close to idle", "+999/-9/-9/0", "+1999/0/0/0"),
            ("leaves them nothing, since the limit was idle", "-500/-9/-9/0", "+1000/0/0/0"),
            ("leaves them nothing more", "+3500/-9/-5/999", "+4500/0/0/0"),
            ("leaves nothing to those before a change of the limit", "+3500", "+4500/0/0/0"),
        ]
    ),
    Case(
        "the head of the line holds up nobody",
        _sum(_FOUR, _ready("abcd"), World(limits={"name:x": "1 2500 1 0 0 - 0 0 0"}, meta={**_RATE, "throttled": 2})),
        _claim(3),
        _claimed("a", "c", "d", gate=3, names=_AB),
        _sum(
            _FOUR,
            _leased("a", "c", "d"),
            _waiting(1, "b"),
            World(limits={"name:x": "1 2500 1 0 0 - +2500/0/0/0 0 0"}, gates={1: 3}),
            _meta(_RATE, 3, 3),
        ),
    ),
    Case(
        "the first of a line starts once its gate is open, before what is ready, and no other passes it",
        _sum(
            _names(a="x", b="x", c="y", d="x"),
            _ready("cd"),
            _waiting(1, "ab"),
            World(limits={"name:x": "1 1000 1 0 0 - +0 0 0"}, gates={1: 0}, meta=_RATE),
        ),
        _claim(3),
        _claimed("a", "c", gate=1, names=_AB),
        _sum(
            _names(a="x", b="x", c="y", d="x"),
            _leased("a", "c"),
            _waiting(1, "bd"),
            World(limits={"name:x": "1 1000 1 0 0 - +1000/0/0/0 0 0"}, gates={1: 1}),
            _meta(_RATE, 2, 1),
        ),
    ),
    Case(
        "what waits keeps its rank, beside due times of what has none",
        _sum(
            _URGENT,
            _ready("ac"),
            World(
                ranked={"b": -60_005, "d": 115},
                deliveries=dict.fromkeys("bd", "ranked -5 0 0 0 -"),
                limits={"name:x": "1 0 1 0 0 0 0 0 0 why"},
                meta={**_RATE, "priority_step": 60},
            ),
        ),
        _claim(4),
        _claimed("c", names=_AB),
        _sum(
            _URGENT,
            _leased("c"),
            World(
                throttled={"b": (1, -60_005), "a": (1, -5), "d": (1, 115)},
                deliveries=dict.fromkeys("abd", "throttled -5 0 0 0 -"),
                limits={"name:x": "1 0 1 0 0 0 0 0 0 why"},
                gates={1: None},
            ),
            _meta({**_RATE, "priority_step": 60}, 1, 3),
        ),
    ),
    Case(
        "so it does where nothing else waits",
        _sum(
            _URGENT,
            World(
                ranked={"b": -60_005},
                deliveries={"b": "ranked -5 0 0 0 -"},
                limits={"name:x": "1 0 1 0 0 0 0 0 0 why"},
                meta={**_RATE, "priority_step": 60},
            ),
        ),
        _claim(4),
        _claimed(names=_AB),
        _sum(
            _URGENT,
            World(
                throttled={"b": (1, -60_005)},
                deliveries={"b": "throttled -5 0 0 0 -"},
                limits={"name:x": "1 0 1 0 0 0 0 0 0 why"},
                gates={1: None},
                meta={**_RATE, "priority_step": 60, "throttled": 1},
            ),
        ),
    ),
    Case(
        "a line that ends has no gate",
        _sum(
            _names(a="x"),
            _waiting(1, "a"),
            World(limits={"name:x": "1 1000 5 0 0 - +500 0 0"}, gates={1: -7}, meta=_RATE),
        ),
        _claim(3),
        _claimed("a", names=_AB),
        _sum(_names(a="x"), _leased("a"), World(limits={"name:x": "1 1000 5 0 0 - +1500/0/0/0 0 0"}), _meta(_RATE, 1)),
    ),
    Case(
        "a line whose messages have all left it holds back nobody",
        _sum(
            _names(a="x"),
            _ready("a"),
            World(limits={"name:x": "1 1000 1 0 0 - 0 0 0"}, gates={1: -7}, meta=_RATE),
        ),
        _claim(3),
        _claimed("a", names=_AB),
        _sum(_names(a="x"), _leased("a"), World(limits={"name:x": "1 1000 1 0 0 - +1000/0/0/0 0 0"}), _meta(_RATE, 1)),
    ),
    Case(
        "a line whose messages have all left it begins anew",
        _sum(
            _names(a="x", b="x"),
            _ready("ab"),
            World(limits={"name:x": "1 1000 1 0 0 - 0 0 0"}, gates={1: -7}, meta=_RATE),
        ),
        _claim(3),
        _claimed("a", gate=1, names=_AB),
        _sum(
            _names(a="x", b="x"),
            _leased("a"),
            _waiting(1, "b"),
            World(limits={"name:x": "1 1000 1 0 0 - +1000/0/0/0 0 0"}, gates={1: 1}),
            _meta(_RATE, 1, 1),
        ),
    ),
    Case(
        "the gate of the queue goes with its limit",
        _sum(
            _names(a="x"),
            _ready("a"),
            World(limits={"queue": "0 0 1 0 -7 - 0 0 0", "name:y": "1 1000 1 0 0 - 0 0 0"}, gates={0: -7}, meta=_RATE),
        ),
        _claim(3),
        _claimed("a", names=_AB),
        _sum(_names(a="x"), _leased("a"), World(limits={"name:y": "1 1000 1 0 0 - 0 0 0"}), _meta(_RATE, 1)),
    ),
    Case(
        "nothing passes a line, even if its gate opens later than it could",
        _sum(
            _names(a="x", b="x"),
            _ready("b"),
            _waiting(1, "a"),
            World(limits={"name:x": "1 1000 1 0 0 - 0 0 0"}, gates={1: 9}, meta=_RATE),
        ),
        _claim(3),
        _claimed(gate=-NOW, names=_AB),
        _sum(
            _names(a="x", b="x"),
            _waiting(1, "ab"),
            World(limits={"name:x": "1 1000 1 0 0 - 0 0 0"}, gates={1: -NOW}, wake=1),
            _meta(_RATE, 0, 1),
        ),
    ),
    Case(
        "the payload of what waits is not read",
        _sum(_names(a="x", b="y"), _ready("ab"), World(limits={"name:x": "1 0 1 0 0 0 0 0 0 why"}, meta=_RATE)).but(
            messages={"a": "A" * (1 << 20), "b": "B"}
        ),
        _claim(3),
        _claimed("b", names={"b": "y"}),
        _sum(
            _names(a="x", b="y"),
            _leased("b"),
            _waiting(1, "a"),
            World(limits={"name:x": "1 0 1 0 0 0 0 0 0 why"}, gates={1: None}),
            _meta(_RATE, 1, 1),
        ).but(messages={"a": "A" * (1 << 20), "b": "B"}),
    ),
    Case(
        "what may have killed its consumer is known for that after it has waited",
        _sum(
            _names(a="x"),
            World(
                retry=["a"],
                deliveries={"a": "retry -5 1 T-9 T-7 w ?"},
                limits={"name:x": "1 0 1 0 0 0 0 0 0 why"},
                meta=_RATE,
            ),
        ),
        calls.ready_to_unack(4, lease=LEASE, consumer_id="me" + UNSTARTED),
        _claimed(names=_AB),
        _sum(
            _names(a="x"),
            World(
                throttled={"a": (1, -5)},
                deliveries={"a": "throttled -5 1 T-9 T-7 w !"},
                limits={"name:x": "1 0 1 0 0 0 0 0 0 why"},
                gates={1: None},
            ),
            _meta(_RATE, 0, 1),
        ),
    ),
    Case(
        "what starts from a line leaves no turn to retry",
        _sum(
            _names(a="x", d=""),
            _waiting(1, "a"),
            World(
                retry=["d"],
                deliveries={"d": "retry -5 1 T-9 T-7 w"},
                limits={"name:x": "1 1000 5 0 0 - 0 0 0"},
                gates={1: -7},
                meta={**_RATE, "delivered": 3},
            ),
        ),
        _claim(1),
        _claimed("a", left=1, names=_AB),
        _sum(
            _names(a="x", d=""),
            _leased("a"),
            World(
                retry=["d"],
                deliveries={"d": "retry -5 1 T-9 T-7 w"},
                limits={"name:x": "1 1000 5 0 0 - +1000/0/0/0 0 0"},
                wake=1,
            ),
            World(meta={**_RATE, "token": "T+0", "delivered": 4}),
        ),
    ),
    Case(
        "a gate that is closed is not looked at",
        _sum(
            _names(a="x"),
            _waiting(1, "a"),
            World(limits={"name:x": "1 1000 1 0 0 - +9000 0 0"}, gates={1: 9}, meta=_RATE),
        ),
        _claim(3),
        _claimed(gate=9, names=_AB),
        _sum(
            _names(a="x"),
            _waiting(1, "a"),
            World(limits={"name:x": "1 1000 1 0 0 - +9000 0 0"}, gates={1: 9}, meta=_RATE),
        ),
    ),
    Case(
        "more wait than are wanted: the consumer goes on, or another does",
        _sum(
            _names(a="x", b="x"),
            _waiting(1, "ab"),
            World(limits={"name:x": "1 1000 5 0 0 - 0 0 0"}, gates={1: -7}, meta=_RATE),
        ),
        _claim(1),
        _claimed("a", gate=-3, names=_AB),
        _sum(
            _names(a="x", b="x"),
            _leased("a"),
            _waiting(1, "b"),
            World(limits={"name:x": "1 1000 5 0 0 - +1000/0/0/0 0 0"}, gates={1: -3}, wake=1),
            _meta(_RATE, 1),
        ),
    ),
    Case(
        "the only place is taken",
        _sum(_FOUR, _ready("a"), World(limits={"name:x": "1 0 1 1 0 - 0 0 0"}, running={"r": 1}, meta=_PLACES)),
        _claim(1),
        _claimed(names=_AB),
        _sum(
            _FOUR,
            _waiting(1, "a"),
            World(limits={"name:x": "1 0 1 1 0 - 0 0 0"}, running={"r": 1}, gates={1: None}),
            World(meta={**_PLACES, "throttled": 1}),
        ),
    ),
    Case(
        "places: all that are free are taken at once",
        _sum(_names(a="x", b="x", d="x"), _ready("abd"), World(limits={"name:x": "1 0 1 3 0 - 0 0 0"}, meta=_PLACES)),
        _claim(4),
        _claimed("a", "b", "d", names={"a": "x", "b": "x", "d": "x"}),
        _sum(
            _names(a="x", b="x", d="x"),
            _leased("a", "b", "d"),
            World(limits={"name:x": "1 0 1 3 0 - 0 0 0"}, running={"a": 1, "b": 1, "d": 1}),
            _meta(_PLACES, 3),
        ),
    ),
    Case(
        "the only place of the queue is taken",
        _sum(
            _names(a="", b=""),
            _ready("a"),
            World(
                unack={"b": LEASE},
                deliveries={"b": "leased -5 1 T-9 T-9 w"},
                limits={"queue": "0 0 1 1 0 - 0 0 0"},
                meta=_PLACES,
            ),
        ),
        _claim(1),
        _claimed(names={}),
        _sum(
            _names(a="", b=""),
            _ready("a"),
            World(
                unack={"b": LEASE},
                deliveries={"b": "leased -5 1 T-9 T-9 w"},
                limits={"queue": "0 0 1 1 0 - 0 0 0"},
                gates={0: None},
                meta=_PLACES,
            ),
        ),
    ),
    Case(
        "what was due before 2020 waits at the front of its own line",
        _sum(
            _names(a="x"),
            World(
                ready=["a"],
                deliveries={"a": f"ready {-NOW} 0 0 0 -"},
                limits={"name:x": "1 0 1 0 0 0 0 0 0 why"},
                meta=_RATE,
            ),
        ),
        _claim(1),
        _claimed(names=_AB),
        _sum(
            _names(a="x"),
            World(
                throttled={"a": (1, 1_600_000_000_000 - NOW)},
                deliveries={"a": f"throttled {-NOW} 0 0 0 -"},
                limits={"name:x": "1 0 1 0 0 0 0 0 0 why"},
                gates={1: None},
                meta={**_RATE, "throttled": 1},
            ),
        ),
    ),
    Case(
        "places: as many as may run, the others wait for an end",
        _sum(_FOUR, _ready("abcd"), World(limits={"name:x": "1 0 1 1 0 - 0 0 0"}, meta=_PLACES)),
        _claim(4),
        _claimed("a", "c", "d", names=_AB),
        _sum(
            _FOUR,
            _leased("a", "c", "d"),
            _waiting(1, "b"),
            World(limits={"name:x": "1 0 1 1 0 - 0 0 0"}, running={"a": 1}, gates={1: None}),
            _meta(_PLACES, 3, 1),
        ),
    ),
    Case(
        "a gate that is open too early lets nothing start, and is closed",
        _sum(
            _names(a="x"),
            _waiting(1, "a"),
            World(limits={"name:x": "1 1000 1 0 0 - +1000 0 0"}, gates={1: -7}, meta=_RATE),
        ),
        _claim(3),
        _claimed(gate=1, names=_AB),
        _sum(
            _names(a="x"),
            _waiting(1, "a"),
            World(limits={"name:x": "1 1000 1 0 0 - +1000 0 0"}, gates={1: 1}, meta=_RATE),
        ),
    ),
    Case(
        "two lines are open, and the first has all that is wanted: another consumer goes on",
        _sum(
            _names(a="x", b="y"),
            World(throttled={"a": (1, -5), "b": (2, -5)}, deliveries=dict.fromkeys("ab", "throttled -5 0 0 0 -")),
            World(limits={"name:x": "1 1000 5 0 0 - 0 0 0", "name:y": "2 1000 5 0 0 - 0 0 0"}, gates={1: -7, 2: -6}),
            World(meta=_RATE),
        ),
        _claim(1),
        _claimed("a", gate=-6, names=_AB),
        _sum(
            _names(a="x", b="y"),
            _leased("a"),
            _waiting(2, "b"),
            World(
                limits={"name:x": "1 1000 5 0 0 - +1000/0/0/0 0 0", "name:y": "2 1000 5 0 0 - 0 0 0"},
                gates={2: -6},
                wake=1,
            ),
            _meta(_RATE, 1),
        ),
    ),
    Case(
        "the queue is closed by what starts, and a limit of a name is over",
        _sum(
            _names(a="x", b="x"),
            _ready("ab"),
            World(limits={"queue": "0 0 1 1 0 - 0 0 0", "name:x": "1 0 1 0 -1 - 0 0 0"}, meta=_PLACES),
        ),
        _claim(4),
        _claimed("a", names={"a": "x"}),
        _sum(
            _names(a="x", b="x"),
            _leased("a"),
            _ready("b"),
            World(limits={"queue": "0 0 1 1 0 - 0 0 0"}, gates={0: None}),
            _meta(_PLACES, 1),
        ),
    ),
    Case(
        "a line of a limit that the name had before is let go",
        _sum(
            _names(a="x"),
            _waiting(3, "a"),
            World(limits={"name:x": "1 0 1 0 0 0 0 0 0 why"}, gates={3: -7}, meta=_RATE),
        ),
        _claim(5),
        _claimed("a", names=_AB),
        _sum(
            _names(a="x"),
            _leased("a"),
            World(limits={"name:x": "1 0 1 0 0 0 0 0 0 why"}),
            _meta(_RATE, 1),
        ),
    ),
    Case(
        "more wait than are wanted, and the limit of the queue has room",
        _sum(_names(a="", b=""), _ready("ab"), World(limits={"queue": "0 0 1 5 0 - 0 0 0"}, meta=_PLACES)),
        _claim(1),
        _claimed("a", left=1, names={"a": ""}),
        _sum(
            _names(a="", b=""),
            _leased("a"),
            _ready("b"),
            World(limits={"queue": "0 0 1 5 0 - 0 0 0"}, wake=1),
            _meta(_PLACES, 1),
        ),
    ),
    Case(
        "while the queue is closed, the gates of names say nothing",
        _sum(
            _names(a="x"),
            _waiting(1, "a"),
            World(
                limits={"queue": "0 0 1 0 900 - 0 0 0", "name:x": "1 0 1 0 5 - 0 0 0"},
                gates={0: 900, 1: 5},
                meta=_RATE,
            ),
        ),
        _claim(5),
        _claimed(gate=900, names=_AB),
        _sum(
            _names(a="x"),
            _waiting(1, "a"),
            World(
                limits={"queue": "0 0 1 0 900 - 0 0 0", "name:x": "1 0 1 0 5 - 0 0 0"},
                gates={0: 900, 1: 5},
                meta=_RATE,
            ),
        ),
    ),
    Case(
        "two lines are open: the second has what the first has left of what is wanted",
        _sum(
            _names(a="x", b="y", c="y"),
            World(throttled={"a": (1, -5), "b": (2, -5), "c": (2, -4)}),
            World(deliveries=dict.fromkeys("ab", "throttled -5 0 0 0 -") | {"c": "throttled -4 0 0 0 -"}),
            World(limits={"name:x": "1 1000 5 0 0 - 0 0 0", "name:y": "2 1000 5 0 0 - 0 0 0"}, gates={1: -7, 2: -6}),
            World(meta=_RATE),
        ),
        _claim(2),
        _claimed("a", "b", gate=-3, names={"a": "x", "b": "y"}),
        _sum(
            _names(a="x", b="y", c="y"),
            _leased("a", "b"),
            World(throttled={"c": (2, -4)}, deliveries={"c": "throttled -4 0 0 0 -"}),
            World(
                limits={"name:x": "1 1000 5 0 0 - +1000/0/0/0 0 0", "name:y": "2 1000 5 0 0 - +1000/0/0/0 0 0"},
                gates={2: -3},
                wake=1,
            ),
            _meta(_RATE, 2),
        ),
    ),
    Case(
        "of several gates the first says when a claim finds something",
        _sum(
            _names(a="x", b="y"),
            World(throttled={"a": (1, -5), "b": (2, -5)}, deliveries=dict.fromkeys("ab", "throttled -5 0 0 0 -")),
            World(
                limits={"name:x": "1 0 1 0 9 - 0 0 0", "name:y": "2 0 1 0 5 - 0 0 0"}, gates={1: 9, 2: 5}, meta=_RATE
            ),
        ),
        _claim(5),
        _claimed(gate=5, names=_AB),
        _sum(
            _names(a="x", b="y"),
            World(throttled={"a": (1, -5), "b": (2, -5)}, deliveries=dict.fromkeys("ab", "throttled -5 0 0 0 -")),
            World(
                limits={"name:x": "1 0 1 0 9 - 0 0 0", "name:y": "2 0 1 0 5 - 0 0 0"}, gates={1: 9, 2: 5}, meta=_RATE
            ),
        ),
    ),
    Case(
        "a name that is paused for a time",
        _sum(_names(a="x"), _ready("a"), World(limits={"name:x": "1 0 1 0 0 70 0 0 0 why"}, meta=_RATE)),
        _claim(4),
        _claimed(gate=70, names=_AB),
        _sum(
            _names(a="x"),
            _waiting(1, "a"),
            World(limits={"name:x": "1 0 1 0 0 70 0 0 0 why"}, gates={1: 70}),
            _meta(_RATE, 0, 1),
        ),
    ),
    *(
        Case(
            f"a spread that is {what} the rate leaves the burst as it is",
            _sum(
                _names(a="x", b="x"),
                _ready("ab"),
                World(limits={"name:x": f"1 1000 2 0 0 - 0 {spread} 600"}, meta=_RATE),
            ),
            _claim(4),
            _claimed("a", "b", names={"a": "x", "b": "x"}),
            _sum(
                _names(a="x", b="x"),
                _leased("a", "b"),
                World(limits={"name:x": f"1 1000 2 0 0 - +2000/0/0/0 {spread} 600"}),
                _meta(_RATE, 2),
            ),
        )
        for what, spread in [("as wide as", 1000), ("narrower than", 500)]
    ),
    Case(
        "a rate that is used up keeps what its claims can give back",
        _sum(
            _names(a="x"),
            _ready("a"),
            World(limits={"name:x": "1 1000 2 0 0 - +2000/-9/-5/0 0 0"}, meta={**_RATE, "token": "T-3"}),
        ),
        _claim(4),
        _claimed(gate=1, names=_AB),
        _sum(
            _names(a="x"),
            _waiting(1, "a"),
            World(limits={"name:x": "1 1000 2 0 0 - +2000/-9/-5/0 0 0"}, gates={1: 1}),
            World(meta={**_RATE, "token": "T-3", "throttled": 1}),
        ),
    ),
    Case(
        "what was removed from a line is passed over, and so is one whose payload is gone",
        _sum(
            _names(a="x", b="x"),
            _waiting(1, "ab"),
            World(limits={"name:x": "1 1000 5 0 0 - 0 0 0"}, gates={1: -7}, meta=_RATE),
        ).but(messages={"b": "B"}),
        _claim(5),
        _claimed("b", names=_AB),
        _sum(
            _names(a="x", b="x"),
            _leased("b"),
            World(limits={"name:x": "1 1000 5 0 0 - +1000/0/0/0 0 0"}),
            _meta(_RATE, 1),
        ).but(messages={"b": "B"}),
    ),
    Case(
        "a line whose limit is gone is let go",
        _sum(_names(a="x"), _waiting(3, "a"), World(gates={3: -7}, meta=_RATE)),
        _claim(5),
        _claimed("a", names=_AB),
        _sum(_names(a="x"), _leased("a"), _meta({"schema": 2}, 1)),
    ),
    Case(
        "a limit that is over is removed, and the last one switches limits off",
        _sum(
            _names(a="x"),
            _ready("a"),
            World(limits={"name:x": "1 0 1 0 -1 - 0 0 0"}, meta=_RATE),
        ),
        _claim(5),
        _claimed("a", names=_AB),
        _sum(_names(a="x"), _leased("a"), _meta({"schema": 2}, 1)),
    ),
    Case(
        "a limit whose pause is over is removed",
        _sum(_names(a="x"), _ready("a"), World(limits={"name:x": "1 0 1 0 0 -1 0 0 0 why"}, meta=_RATE)),
        _claim(5),
        _claimed("a", names=_AB),
        _sum(_names(a="x"), _leased("a"), _meta({"schema": 2}, 1)),
    ),
    Case(
        "a name that is paused",
        _sum(_FOUR, _ready("abcd"), World(limits={"name:x": "1 0 1 0 0 0 0 0 0 why"}, meta=_RATE)),
        _claim(4),
        _claimed("c", "d", names=_AB),
        _sum(
            _FOUR,
            _leased("c", "d"),
            _waiting(1, "ab"),
            World(limits={"name:x": "1 0 1 0 0 0 0 0 0 why"}, gates={1: None}),
            _meta(_RATE, 2, 2),
        ),
    ),
    Case(
        "a name that is closed for a time",
        _sum(_FOUR, _ready("abcd"), World(limits={"name:x": "1 0 1 0 70 - 0 0 0"}, meta=_RATE)),
        _claim(4),
        _claimed("c", "d", gate=70, names=_AB),
        _sum(
            _FOUR,
            _leased("c", "d"),
            _waiting(1, "ab"),
            World(limits={"name:x": "1 0 1 0 70 - 0 0 0"}, gates={1: 70}),
            _meta(_RATE, 2, 2),
        ),
    ),
    Case(
        "the limit of the queue: nothing moves, and nothing is left to claim until its gate opens",
        _sum(_FOUR, _ready("abcd"), World(limits={"queue": "0 1500 2 0 0 - 0 0 0"}, meta=_RATE)),
        _claim(4),
        _claimed("a", "b", gate=2, names=_AB),
        _sum(
            _FOUR,
            _ready("abcd"),
            _leased("a", "b"),
            World(limits={"queue": "0 1500 2 0 0 - +3000/0/0/0 0 0"}, gates={0: 2}),
            _meta(_RATE, 2),
        ).but(ready=["c", "d"]),
    ),
    Case(
        "places of the queue, of which one is taken and nothing has ever been in backoff",
        _sum(_FOUR, _ready("abcd"), World(limits={"queue": "0 0 1 2 0 - 0 0 0"}, unack={"p": 500}, meta=_PLACES)),
        _claim(4),
        _claimed("a", names=_AB),
        _sum(
            _FOUR,
            _ready("abcd"),
            _leased("a"),
            World(limits={"queue": "0 0 1 2 0 - 0 0 0"}, gates={0: None}, unack={"p": 500}),
            _meta(_PLACES, 1),
        ).but(ready=["b", "c", "d"]),
    ),
    Case(
        "places of the queue: what is leased has one, what is in backoff has none",
        _sum(
            _FOUR,
            _ready("abcd"),
            World(
                limits={"queue": "0 0 1 2 0 - 0 0 0"},
                unack={"p": 500, "q": 600},
                meta={**_PLACES, "backoffs": 1},
            ),
        ),
        _claim(4),
        _claimed("a", names=_AB),
        _sum(
            _FOUR,
            _ready("abcd"),
            _leased("a"),
            World(limits={"queue": "0 0 1 2 0 - 0 0 0"}, gates={0: None}, unack={"p": 500, "q": 600}),
            _meta({**_PLACES, "backoffs": 1}, 1),
        ).but(ready=["b", "c", "d"]),
    ),
    Case(
        "the gate of the queue opens",
        _sum(
            _FOUR,
            _ready("abcd"),
            World(limits={"queue": "0 1000 9 0 0 - 0 0 0"}, gates={0: -NOW}, meta=_RATE),
        ),
        _claim(4),
        _claimed("a", "b", "c", "d", names=_AB),
        _sum(
            _FOUR,
            _leased("a", "b", "c", "d"),
            World(limits={"queue": "0 1000 9 0 0 - +4000/0/0/0 0 0"}),
            _meta(_RATE, 4),
        ),
    ),
    Case(
        "a clock that was set back holds nothing up for long",
        _sum(
            _names(a="x"), _ready("a"), World(limits={"name:x": "1 1000 2 0 0 - +9000000/-9/-5/2000 0 0"}, meta=_RATE)
        ),
        _claim(4),
        _claimed(gate=1, names=_AB),
        _sum(
            _names(a="x"),
            _waiting(1, "a"),
            World(limits={"name:x": "1 1000 2 0 0 - +2000 0 0"}, gates={1: 1}),
            _meta(_RATE, 0, 1),
        ),
    ),
    Case(
        "let go over a time",
        _sum(
            _names(a="x", b="x"),
            _waiting(1, "ab"),
            World(limits={"name:x": "1 1000 9 0 0 - +0 300000 600"}, gates={1: 0}, meta=_RATE),
        ),
        _claim(4),
        _claimed("a", gate=300, names=_AB),
        _sum(
            _names(a="x", b="x"),
            _leased("a"),
            _waiting(1, "b"),
            World(limits={"name:x": "1 1000 9 0 0 - +300000/0/0/0 300000 600"}, gates={1: 300}),
            _meta(_RATE, 1),
        ),
    ),
    Case(
        "that time is over",
        _sum(
            _names(a="x", b="x"),
            _waiting(1, "ab"),
            World(limits={"name:x": "1 1000 9 0 0 - +0 300000 0"}, gates={1: 0}, meta=_RATE),
        ),
        _claim(4),
        _claimed("a", "b", names=_AB),
        _sum(
            _names(a="x", b="x"),
            _leased("a", "b"),
            World(limits={"name:x": "1 1000 9 0 0 - +2000/0/0/0 300000 0"}),
            _meta(_RATE, 2),
        ),
    ),
    Case(
        "a breaker that has tripped holds up its name alone",
        _sum(_FOUR, _ready("abcd"), World(limits={"name:x": "1 0 1 0 0/70/500/2 - 0 0 0"}, meta=_RATE)),
        _claim(4),
        _claimed("c", "d", gate=70, names=_AB),
        _sum(
            _FOUR,
            _leased("c", "d"),
            _waiting(1, "ab"),
            World(limits={"name:x": "1 0 1 0 0/70/500/2 - 0 0 0"}, gates={1: 70}),
            _meta(_RATE, 2, 2),
        ),
    ),
    Case(
        "one starts as a trial",
        _sum(_FOUR, _ready("abcd"), World(limits={"name:x": "1 0 1 0 0/-1/500/2 - 0 0 0"}, meta=_RATE)),
        _claim(4),
        _claimed("a", "c", "d", gate=500, names=_AB, trials=(("a", "x"),)),
        _sum(
            _FOUR,
            _leased("a", "c", "d"),
            _waiting(1, "b"),
            World(limits={"name:x": "1 0 1 0 0/500/500/1 - 0 0 0"}, gates={1: 500}),
            _meta(_RATE, 3, 1),
        ),
    ),
    Case(
        "the first of a line starts as the last trial",
        _sum(
            _names(a="x", b="x", d="x"),
            _ready("d"),
            _waiting(1, "ab"),
            World(limits={"name:x": "1 2 9 0 0/0/500/1 - 0 0 0"}, gates={1: 0}, meta=_RATE),
        ),
        _claim(4),
        _claimed("a", gate=500, names=_AB, trials=(("a", "x"),)),
        _sum(
            _names(a="x", b="x", d="x"),
            _leased("a"),
            _waiting(1, "bd"),
            World(limits={"name:x": "1 2 9 0 0/500/500/0 - +2/0/0/0 0 0"}, gates={1: 500}),
            _meta(_RATE, 1, 1),
        ),
    ),
    Case(
        "after the last trial, all start",
        _sum(
            _names(a="x", b="x"),
            _waiting(1, "ab"),
            World(limits={"name:x": "1 0 1 0 0/0/500/0 - 0 0 0"}, gates={1: 0}, meta=_RATE),
        ),
        _claim(4),
        _claimed("a", "b", names=_AB),
        _sum(_names(a="x", b="x"), _leased("a", "b"), _meta({"schema": 2}, 2)),
    ),
    Case(
        "after the last trial, all start under the limit that there is",
        _sum(_names(a="x"), _ready("a"), World(limits={"name:x": "1 1000 9 0 0/-1/500/0 - 0 0 0"}, meta=_RATE)),
        _claim(4),
        _claimed("a", names=_AB),
        _sum(_names(a="x"), _leased("a"), World(limits={"name:x": "1 1000 9 0 0 - +1000/0/0/0 0 0"}), _meta(_RATE, 1)),
    ),
    Case(
        "one of the queue starts as a trial",
        _sum(_FOUR, _ready("abcd"), World(limits={"queue": "0 0 1 0 0/-1/500/2 - 0 0 0"}, meta=_RATE)),
        _claim(4),
        _claimed("a", gate=500, names=_AB, trials=(("a", None),)),
        _sum(
            _FOUR,
            _ready("abcd"),
            _leased("a"),
            World(limits={"queue": "0 0 1 0 0/500/500/1 - 0 0 0"}, gates={0: 500}),
            _meta(_RATE, 1),
        ).but(ready=["b", "c", "d"]),
    ),
    Case(
        "one is a trial of its name and of the queue",
        _sum(
            _names(a="x"),
            _ready("a"),
            World(limits={"queue": "0 0 1 0 0/-1/500/1 - 0 0 0", "name:x": "1 0 1 0 0/-1/700/2 - 0 0 0"}, meta=_RATE),
        ),
        _claim(4),
        _claimed("a", gate=500, names=_AB, trials=(("a", "x"), ("a", None))),
        _sum(
            _names(a="x"),
            _leased("a"),
            World(
                limits={"queue": "0 0 1 0 0/500/500/0 - 0 0 0", "name:x": "1 0 1 0 0/700/700/1 - 0 0 0"}, gates={0: 500}
            ),
            _meta(_RATE, 1),
        ),
    ),
    Case(
        "a clock that was set back puts no trial off for long",
        _sum(_names(a="x"), _ready("a"), World(limits={"name:x": "1 0 1 0 0/90000/500/2 - 0 0 0"}, meta=_RATE)),
        _claim(4),
        _claimed(gate=500, names=_AB),
        _sum(
            _names(a="x"),
            _waiting(1, "a"),
            World(limits={"name:x": "1 0 1 0 0/500/500/2 - 0 0 0"}, gates={1: 500}),
            _meta(_RATE, 0, 1),
        ),
    ),
]


def _direct(name: str, before: World) -> Case:
    """Return a direct claim, which leaves what is due to a promotion."""
    reply = ClaimReply(NOW, NOW + LEASE, 0, [], next_due=NOW - 5, ranks=True)
    return Case(name, before, calls.pending_to_unack(4, lease=LEASE, consumer_id="me"), reply, before)


_DUE = _FOUR.but(pending=dict.fromkeys("abcd", -5))
PENDING = [
    _direct("under a limit of a name", _DUE + World(limits={"name:x": "1 1000 2 0 0 - 0 0 0"}, meta=_RATE)),
    _direct("under places of the queue", _DUE + World(limits={"queue": "0 0 1 2 0 - 0 0 0"}, meta=_PLACES)),
]
