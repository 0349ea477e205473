"""Claims under a template: each key has places of its own, and what waits for one is in the line of its key."""

from __future__ import annotations

from typing import Any

from delayq.broker.replies import ClaimedMessage, ClaimReply
from delayq.queue.control.limit_calls import key_number
from tests.support.scripts import NOW, Case, T, World, calls

LEASE = 30_000
K, L = key_number("k:1"), key_number("k:2")
_TEMPLATE = {"key:k:*": "8001 0 1 1 0 - 0 0 0"}
_IN_ORDER = {"key:k:*": "8001 0 1 1 0 - 0 0 0 in_order"}
_REMOVED = {"key:k:*": "8001 0 1 0 0 - 0 0 0"}
_NAME = {"name:x": "1 0 1 1 0 - 0 0 0"}
_META: dict[str, int | str] = {"limited": "running k:*", "schema": 2}
_KEYS = {"a": "key=k:1", "b": "key=k:1", "c": "key=k:2", "d": ""}


def _sent(ids: str, attributes: dict[str, str] | None = None, **places: Any) -> World:
    texts = {id: text for id, text in (attributes or _KEYS).items() if id in ids and text}
    return World(retries=dict.fromkeys(ids, 3), messages={id: id.upper() for id in ids}, attributes=texts, **places)


def _in(state: str, ids: str) -> dict[str, str]:
    return dict.fromkeys(ids, f"{state} -5 0 0 0 -")


def _leased(ids: str) -> dict[str, str]:
    return {id: f"leased -5 1 T+{n} T+{n} me" for n, id in enumerate(ids)}


def _reply(ids: str, *, left: int = 0, gate: int = -1, attributes: dict[str, str] | None = None) -> ClaimReply:
    texts = attributes or _KEYS
    messages = [
        ClaimedMessage(id, T + n, id.upper().encode(), 3, NOW - 5, 1, b"", texts[id].encode())
        for n, id in enumerate(ids)
    ]
    return ClaimReply(NOW, NOW + LEASE, left, messages, next_gate=gate)


def _claims(
    name: str,
    before: World,
    given: str,
    after: World,
    *,
    limits: dict[str, str],
    gate: int = -1,
    wanted: int = 4,
    attributes: dict[str, str] | None = None,
    throttled: int = 0,
    limits_after: dict[str, str] | None = None,
    meta: dict[str, int | str] | None = None,
) -> Case:
    counted = {"token": f"T+{len(given) - 1}", "delivered": len(given)} if given else {}
    total = {"throttled": throttled}
    return Case(
        name,
        before.but(limits=limits, meta=_META),
        calls.ready_to_unack(wanted, lease=LEASE, consumer_id="me"),
        _reply(given, gate=gate, attributes=attributes),
        after.but(
            limits=limits if limits_after is None else limits_after,
            meta={**(_META if meta is None else meta), **counted, **total},
            unack=dict.fromkeys(given, LEASE),
        ),
    )


_AB = {"a": "name=x key=k:1", "b": "key=k:1"}
_OPEN: dict[int, int | None] = {key_number(f"k:{n}"): -2 for n in range(100, 200)}
"""The open gates of lines in which nothing waits."""
_WAITS = {"throttled": {"b": (8001, -5)}, "key_lines": {(K, -5, "b")}}

READY = [
    _claims(
        "one of each key starts, and what is without a key",
        _sent("abcd", ready=list("abcd"), deliveries=_in("ready", "abcd")),
        "acd",
        _sent(
            "abcd",
            deliveries=_leased("acd") | _in("throttled", "b"),
            running={" a": K, " c": L},
            gates={K: None},
            **_WAITS,
        ),
        limits=_TEMPLATE,
        throttled=1,
    ),
    _claims(
        "in order: the place says that it is kept",
        _sent("a", ready=["a"], deliveries=_in("ready", "a")),
        "a",
        _sent("a", deliveries=_leased("a"), running={" a": K + 1}),
        limits=_IN_ORDER,
    ),
    _claims(
        "what begins with no template is not limited",
        _sent("ab", {"a": "key=j:1", "b": "key=j:1"}, ready=["a", "b"], deliveries=_in("ready", "ab")),
        "ab",
        _sent("ab", {"a": "key=j:1", "b": "key=j:1"}, deliveries=_leased("ab")),
        limits=_TEMPLATE,
        attributes={"a": "key=j:1", "b": "key=j:1"},
    ),
    _claims(
        "the one that keeps the place starts again, before those that wait",
        _sent(
            "ab", retry=["a"], deliveries={"a": "retry -5 0 0 0 -"} | _in("throttled", "b"), running={" a": K + 1}
        ).but(gates={K: None}, **_WAITS),
        "a",
        _sent("ab", deliveries=_leased("a") | _in("throttled", "b"), running={" a": K + 1}, gates={K: None}, **_WAITS),
        limits=_IN_ORDER,
    ),
    _claims(
        "none overtakes the one that keeps the place",
        _sent("ab", ready=["b"], unack={}, deliveries=_in("ready", "b"), running={" a": K + 1}),
        "",
        _sent("ab", deliveries=_in("throttled", "b"), running={" a": K + 1}, gates={K: None}, **_WAITS),
        limits=_IN_ORDER,
        throttled=1,
    ),
    _claims(
        "the first of a line starts once its gate is open",
        _sent("abc", {"a": "key=k:1", "b": "key=k:1", "c": "key=k:1"}, deliveries=_in("throttled", "abc")).but(
            throttled={"a": (8001, -7), "b": (8001, -5), "c": (8001, -6)},
            key_lines={(K, -7, "a"), (K, -5, "b"), (K, -6, "c")},
            gates={K: -1},
        ),
        "a",
        _sent(
            "abc",
            {"a": "key=k:1", "b": "key=k:1", "c": "key=k:1"},
            deliveries=_leased("a") | _in("throttled", "bc"),
            throttled={"b": (8001, -5), "c": (8001, -6)},
            key_lines={(K, -5, "b"), (K, -6, "c")},
            gates={K: None},
            running={" a": K},
        ),
        limits=_TEMPLATE,
    ),
    _claims(
        "stale entries of a line are removed: what has left, and what waits elsewhere",
        _sent("a", deliveries=_in("throttled", "a")).but(
            throttled={"a": (8001, -5), "d": (1, -8)},
            key_lines={(K, -9, "a"), (K, -7, "b"), (K, -8, "d"), (K, -5, "a")},
            gates={K: -1},
        ),
        "a",
        _sent("a", deliveries=_leased("a"), running={" a": K}, throttled={"d": (1, -8)}),
        limits=_TEMPLATE,
    ),
    _claims(
        "a line of stale entries only is gone",
        _sent("", key_lines={(K, -9, "a")}, gates={K: -1}),
        "",
        _sent(""),
        limits=_TEMPLATE,
    ),
    _claims(
        "it takes the place of its key, and waits for its name",
        _sent("ab", _AB, ready=["a", "b"], deliveries=_in("ready", "ab"), running={"r": 1}),
        "",
        _sent(
            "ab",
            _AB,
            deliveries=_in("throttled", "ab"),
            running={"r": 1, " a": K},
            throttled={"a": (1, -5), "b": (8001, -5)},
            key_lines={(K, -5, "b")},
            gates={1: None, K: None},
        ),
        limits=_TEMPLATE | _NAME,
        throttled=2,
        attributes=_AB,
    ),
    _claims(
        "it has waited for its name, and has the place of its key",
        _sent("a", _AB, deliveries=_in("throttled", "a")).but(
            throttled={"a": (1, -5)}, gates={1: -1}, running={" a": K}
        ),
        "a",
        _sent("a", _AB, deliveries=_leased("a"), running={"a": 1, " a": K}),
        limits=_TEMPLATE | _NAME,
        attributes=_AB,
    ),
    _claims(
        "it has waited for its key, and waits for its name from now on",
        _sent("a", _AB, deliveries=_in("throttled", "a")).but(
            throttled={"a": (8001, -5)}, key_lines={(K, -5, "a")}, gates={K: -1}, running={"r": 1}
        ),
        "",
        _sent(
            "a",
            _AB,
            deliveries=_in("throttled", "a"),
            throttled={"a": (1, -5)},
            running={"r": 1, " a": K},
            gates={1: None},
        ),
        limits=_TEMPLATE | _NAME,
        throttled=1,
        attributes=_AB,
    ),
    _claims(
        "it joins the line of its name, from which this claim takes all who waited",
        _sent("ab", _AB | {"b": "name=x"}, deliveries=_in("throttled", "ab")).but(
            throttled={"a": (8001, -5), "b": (1, -5)}, key_lines={(K, -5, "a")}, gates={K: -2, 1: -1}
        ),
        "b",
        _sent(
            "ab",
            _AB | {"b": "name=x"},
            deliveries=_leased("b") | _in("throttled", "a"),
            throttled={"a": (1, -5)},
            running={"b": 1, " a": K},
            gates={1: None},
        ),
        limits=_TEMPLATE | _NAME,
        throttled=1,
        attributes={"b": "name=x"},
    ),
    _claims(
        "none overtakes a line that this claim does not look at: it looks at a hundred",
        _sent("ab", ready=["a"], deliveries=_in("ready", "a") | _in("throttled", "b")).but(
            gates=_OPEN | {K: -1}, **_WAITS
        ),
        "",
        _sent("ab", deliveries=_in("throttled", "ab")).but(
            throttled={"a": (8001, -5), "b": (8001, -5)},
            key_lines={(K, -5, "a"), (K, -5, "b")},
            gates={K: -NOW},
            wake=1,
        ),
        limits=_TEMPLATE,
        throttled=1,
        gate=0,
    ),
    _claims(
        "one that was replaced with another key opens the line of the one before",
        _sent("ab", {"a": "key=k:2", "b": "key=k:1"}, ready=["a"], deliveries=_in("ready", "a")).but(
            running={" a": K}, gates={K: None}, key_lines={(K, -5, "b")}, throttled={"b": (8001, -5)}
        ),
        "a",
        _sent("ab", {"a": "key=k:2", "b": "key=k:1"}, deliveries=_leased("a")).but(
            running={" a": L}, gates={K: -NOW}, key_lines={(K, -5, "b")}, throttled={"b": (8001, -5)}, wake=0
        ),
        limits=_TEMPLATE,
        attributes={"a": "key=k:2", "b": "key=k:1"},
        gate=0,
    ),
    _claims(
        "a template that was removed lets go what waited for it, then it is gone",
        _sent("ab", deliveries=_in("throttled", "ab")).but(
            throttled={"a": (8001, -5), "b": (8001, -5)},
            key_lines={(K, -5, "a"), (K, -5, "b")},
            gates={8001: -NOW, K: None},
            running={" r": K},
        ),
        "ab",
        _sent("ab", deliveries=_leased("ab")).but(
            key_lines={(K, -5, "a"), (K, -5, "b")}, gates={K: None}, running={" r": K}
        ),
        limits=_REMOVED,
        limits_after={},
        meta={"limited": "running ", "schema": 2},
    ),
    _claims(
        "the gate of a template that counts is none",
        _sent("", gates={8001: -NOW}).but(throttled={"a": (8001, -5)}),
        "",
        _sent("").but(throttled={"a": (8001, -5)}),
        limits=_TEMPLATE,
    ),
    _claims(
        "without any limit and place, nothing is limited any more",
        _sent("d", ready=["d"], deliveries=_in("ready", "d")),
        "d",
        _sent("d", deliveries=_leased("d")),
        limits={},
        meta={"schema": 2},
    ),
]
