"""`superseded`: which messages must not start, since a later one of their id prefix is due or has started."""

from __future__ import annotations

from typing import Any

from delayq.broker.requests import ScriptCall
from tests.lua.cases.states import CROWD, THROTTLED
from tests.support.scripts import NOW, Case, World, calls


def superseded(**dues: int) -> ScriptCall[str]:
    """Return the call for `p1`, which is `p:1`, and so on."""
    return asking(*((f"{name[0]}:{name[1:]}", due) for name, due in dues.items()))


def asking(*messages: tuple[str, int]) -> ScriptCall[str]:
    return calls.superseded((id, NOW + due) for id, due in messages)


def due(*, mark: str = "", **dues: int) -> World:
    """Return messages that are leased, with their members; `mark` is a member more."""
    ids = {f"{name[0]}:{name[1:]}": offset for name, offset in dues.items()}
    return World(
        unack=dict.fromkeys(ids, 9000),
        messages=dict.fromkeys(ids, "m"),
        retries=dict.fromkeys(ids, 3),
        attributes=dict.fromkeys(ids, "latest=1"),
        deliveries={id: f"leased {offset} 1 T-9 T-9 w" for id, offset in ids.items()},
        latest={f"{id[:2]} {offset} {id}" for id, offset in ids.items()} | ({mark} if mark else set()),
    )


def ended(*members: str) -> World:
    return World(latest={*members})


def _plus(world: World, *members: str) -> World:
    return world + ended(*members)


def _pending(id: str, offset: int, **record: Any) -> World:
    """Return a message that was not claimed, or was rescheduled."""
    return World(
        pending={id: offset}, messages={id: "m"}, retries={id: 3}, latest={f"{id[:2]} {offset} {id}"}, **record
    )


_ONE = due(p1=-5)
_THREE = due(p1=-7, p2=-6, p3=-5)
_MANY_ENDED = [f"p: {offset} p:x" for offset in range(-1000, 0)]
_A_TO_U = "abcdefghijklmnopqrstu"
_LETTERS = due(**dict.fromkeys((f"{letter}1" for letter in _A_TO_U), -5))

CASES = [
    Case("the only one", _ONE + CROWD, superseded(p1=-5), "0", _plus(_ONE, "p: -5") + CROWD),
    Case("the latest of several", _THREE, superseded(p1=-7, p2=-6, p3=-5), "110", _plus(_THREE, "p: -5")),
    Case("in any order", _THREE, superseded(p3=-5, p1=-7), "01", _plus(_THREE, "p: -5")),
    Case("the earlier ones alone", _THREE, superseded(p1=-7, p2=-6), "11", _THREE),
    Case(
        "of two prefixes", due(p1=-7, q2=-6), superseded(p1=-7, q2=-6), "00", _plus(due(p1=-7, q2=-6), "p: -7", "q: -6")
    ),
    Case("due at the same time", due(p1=-5, p2=-5), superseded(p1=-5, p2=-5), "00", _plus(due(p1=-5, p2=-5), "p: -5")),
    Case("a later one is due now", due(p1=-5, p2=0), superseded(p1=-5), "1", due(p1=-5, p2=0)),
    Case("a later one is not due yet", due(p1=-5, p2=1), superseded(p1=-5), "0", _plus(due(p1=-5, p2=1), "p: -5")),
    Case(
        "a longer prefix is another",
        due(p1=-5) + World(messages={"p:0:1": "m"}, pending={"p:0:1": 0}, latest={"p:0: 0 p:0:1"}),
        superseded(p1=-5),
        "0",
        _plus(due(p1=-5), "p: -5") + World(messages={"p:0:1": "m"}, pending={"p:0:1": 0}, latest={"p:0: 0 p:0:1"}),
    ),
    Case("it is the last colon that counts", World(), asking(("p:q:1", -5)), "0", ended("p:q: -5")),
    Case("an id without a colon has no prefix", World(), asking(("x", -5)), "0", ended(" -5")),
    Case("no message, no member", World(), superseded(p1=-5), "0", ended("p: -5")),
    # later ones, wherever they wait
    Case("a later one is pending", _ONE + _pending("p:2", -4), superseded(p1=-5), "1", _ONE + _pending("p:2", -4)),
    Case(
        "a later one was rescheduled",
        _ONE + _pending("p:2", -4, deliveries={"p:2": "pending -4 1 T-9 T-9 w"}),
        superseded(p1=-5),
        "1",
        _ONE + _pending("p:2", -4, deliveries={"p:2": "pending -4 1 T-9 T-9 w"}),
    ),
    Case(
        "a later one is throttled",
        due(p1=-9) + THROTTLED + ended("p: -5 a"),
        superseded(p1=-9),
        "1",
        due(p1=-9) + THROTTLED + ended("p: -5 a"),
    ),
    # what has ended, or moved
    Case("a later one has ended", _plus(_ONE, "p: -4 p:2"), superseded(p1=-5), "0", _plus(_ONE, "p: -5")),
    Case(
        "the latest has ended, the one before it has not",
        _plus(due(p1=-9, p2=-5), "p: -4 p:3"),
        superseded(p1=-9),
        "1",
        due(p1=-9, p2=-5),
    ),
    Case(
        "a later one was moved",
        _plus(_ONE + _pending("p:2", 900), "p: -4 p:2"),
        superseded(p1=-5),
        "0",
        _plus(_ONE + _pending("p:2", 900), "p: -5"),
    ),
    Case(
        "a later one was moved to before",
        _plus(due(p1=-5, p2=-9), "p: -4 p:2"),
        superseded(p1=-5),
        "0",
        _plus(due(p1=-5, p2=-9), "p: -5"),
    ),
    Case(
        "its own member has ended: it was moved",
        _plus(due(p1=-5), "p: -3 p:1", "p: -9 p:1"),
        superseded(p1=-5),
        "0",
        _plus(due(p1=-5), "p: -5"),
    ),
    Case(
        "more than a page has ended",
        _plus(_ONE, *_MANY_ENDED[-25:-4]),
        superseded(p1=-5),
        "0",
        _plus(_ONE, "p: -5"),
    ),
    Case(
        "a page has ended, and no more",
        _plus(due(p1=-50), *_MANY_ENDED[-10:]),
        superseded(p1=-50),
        "0",
        _plus(due(p1=-50), "p: -50"),
    ),
    Case(
        "a prefix of which nothing is left but a page that has ended",
        ended(*_MANY_ENDED[-10:]),
        superseded(p1=-11),
        "0",
        ended("p: -11"),
    ),
    Case(
        "more have ended than one call looks at",
        _plus(due(p1=-5000, q1=-5), *_MANY_ENDED),
        superseded(p1=-5000, q1=-5),
        "22",
        due(p1=-5000, q1=-5),
    ),
    Case(
        "as many have ended as one call looks at, but one",
        _plus(due(p1=-5000), *_MANY_ENDED[1:]),
        superseded(p1=-5000),
        "0",
        _plus(due(p1=-5000), "p: -5000"),
    ),
    Case(
        "what has ended is looked at once for each prefix",
        _plus(due(p1=-5000), *_MANY_ENDED[:600]),
        superseded(p1=-5000, p2=-5000),
        "00",
        _plus(due(p1=-5000), "p: -5000"),
    ),
    Case(
        "two thousand of what is older in one call",
        _plus(_LETTERS, *(f"{letter}: {-5 - n} {letter}:x" for letter in _A_TO_U for n in range(1, 101))),
        superseded(**dict.fromkeys((f"{letter}1" for letter in _A_TO_U), -5)),
        "0" * 21,
        _plus(_LETTERS, *(f"{letter}: -5" for letter in _A_TO_U), *(f"u: {-5 - n} u:x" for n in range(1, 101))),
    ),
    # marks
    Case("started before", _plus(_ONE, "p: -5"), superseded(p1=-5), "0", _plus(_ONE, "p: -5")),
    Case("a later one was started", due(p1=-5, mark="p: -4"), superseded(p1=-5), "1", due(p1=-5, mark="p: -4")),
    Case("an earlier one was started", due(p1=-5, mark="p: -6"), superseded(p1=-5), "0", _plus(_ONE, "p: -5")),
    Case(
        "a mark ahead of the clock says nothing yet",
        due(p1=-5, mark="p: 1"),
        superseded(p1=-5),
        "0",
        _plus(_ONE, "p: 1", "p: -5"),
    ),
    Case(
        "a mark that is there already: nothing is cleaned up",
        _plus(_ONE, "p: -5", "p: -9 p:9", "p: -8"),
        superseded(p1=-5),
        "0",
        _plus(_ONE, "p: -5", "p: -9 p:9", "p: -8"),
    ),
    Case(
        "what is older and has ended is removed, what waits stays",
        _plus(due(p1=-5, p2=-7), "p: -9 p:9", "p: -8", "p: -6", "p: -6 p:8", "q: -6", "q: -6 q:1"),
        superseded(p1=-5),
        "0",
        _plus(due(p1=-5, p2=-7), "p: -5", "q: -6", "q: -6 q:1"),
    ),
    Case(
        "a hundred of what is older at a time",
        _plus(_ONE, *(f"p: {offset} p:x" for offset in range(-107, -5))),
        superseded(p1=-5),
        "0",
        _plus(_ONE, "p: -5", "p: -7 p:x", "p: -6 p:x"),
    ),
    # what another program has written
    Case(
        "what is no member is removed",
        _ONE.but(latest={"p: -5 p:1", "p: -4 p:2 x", "p: -9 p:2 x"}),
        superseded(p1=-5),
        "0",
        _plus(_ONE, "p: -5"),
    ),
    Case(
        "a record that cannot be read, of what is pending",
        _ONE + _pending("p:2", -4, deliveries={"p:2": "lost -4 1 T-9 T-9 w"}),
        superseded(p1=-5),
        "1",
        _ONE + _pending("p:2", -4, deliveries={"p:2": "lost -4 1 T-9 T-9 w"}),
    ),
]
