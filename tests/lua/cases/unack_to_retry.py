"""`unack_to_retry`: leases that ran out, nack delays that are over."""

from __future__ import annotations

from typing import Any

from delayq.broker.replies import ExpireReply
from tests.lua.cases.states import (
    BACKOFF,
    CROWD,
    GARBAGE,
    KEPT,
    KEY,
    LEASED,
    PLACED,
    RETRY,
    STOPPED,
    STOPPING,
    keyed,
    logged,
    with_meta,
)
from tests.support.scripts import NOW, Case, World, calls

_LATE = LEASED.but(unack={"a": 0}) + CROWD
_OVER = BACKOFF.but(unack={"a": 0}) + CROWD
_SEVERAL = World(
    unack={"a": -2, "b": -4, "c": -3, "d": -1, "e": 9},
    retries={"a": 1, "b": 0, "c": 0, "d": 1, "e": 1},
    deliveries={
        "a": "leased -9 1 T-9 T-9 w",
        "b": "leased -9 1 T-8 T-8 w",
        "c": "backoff -9 1 T-7 T-7 w",
        "d": "leased -9 1 T-6 T-6 w",
        "e": "leased -9 1 T-5 T-5 w",
    },
    meta={"backoffs": 4, "expired": 6},
)


def _ranked(name: str, before: World, record: str, **after: Any) -> Case:
    """Return a case of `a`, which has a priority, and of the crowd."""
    before = before.but(attributes={"a": "name=a priority=-2"}, meta={**before.meta, "priority_step": 60_000}) + CROWD
    meta = {"token": "T-3", "priority_step": 60_000, **after.pop("meta", {})}
    unack = {"r": 90_000}
    after_it = before.but(
        unack=unack, ranked={"a": 119_995}, deliveries=before.deliveries | {"a": record}, meta=meta
    ).but(**after)
    return Case(name, before, calls.unack_to_retry(), ExpireReply(1, 0, NOW + 90_000), after_it)


def _expired(record: str) -> World:
    return LEASED.but(unack={"a": 0}, deliveries={"a": record})


_CHARGED: dict[str, Any] = {
    "retries": {"a": 1, **CROWD.retries},
    "errors": {"a": "lease expired", **CROWD.errors},
    "meta": {"expired": 1},
}

CASES = [
    _ranked(
        "ranked: a nack delay is over",
        BACKOFF.but(unack={"a": 0}, meta={"token": "T-3", "backoffs": 1}),
        "ranked -5 2 T-9 T-7 w",
    ),
    _ranked("ranked: a lease ends", _expired("leased -5 2 T-9 T-7 w"), "ranked -5 2 T-9 T-7 w", **_CHARGED),
    _ranked(
        "ranked: a lease ends after the start, so it is claimed alone",
        _expired("leased -5 2 T-9 T-7 w +"),
        "ranked -5 2 T-9 T-7 w !",
        **_CHARGED,
    ),
    *(
        _ranked(
            f"ranked: a lease ends before the start, marked {mark}",
            _expired(f"leased -5 2 T-9 T-7 w {mark}"),
            "ranked -5 1 T-9 T-7 w !",
            meta={"released": 1},
        )
        for mark in "?!-"
    ),
    Case(
        "ranked: a lease ends with no retry left",
        _expired("leased -5 2 T-9 T-7 w").but(
            retries={"a": 0}, attributes={"a": "priority=1"}, meta={"priority_step": 60_000}
        ),
        calls.unack_to_retry(),
        ExpireReply(0, 1, -1),
        GARBAGE.but(
            attributes={"a": "priority=1"},
            errors={"a": "lease expired"},
            meta={"priority_step": 60_000, "expired": 1},
        ),
    ),
    Case(
        "ranked: an id without a record is dropped",
        World(unack={"a": 0}, attributes={"a": "priority=1"}, meta={"priority_step": 60_000}),
        calls.unack_to_retry(),
        ExpireReply(0, 0, -1),
        World(attributes={"a": "priority=1"}, meta={"priority_step": 60_000}),
    ),
    Case("nothing there", World(), calls.unack_to_retry(), ExpireReply(0, 0, -1), World()),
    Case("nothing late", CROWD, calls.unack_to_retry(), ExpireReply(0, 0, NOW + 90_000), CROWD),
    Case(
        "a lease that ends next millisecond",
        LEASED.but(unack={"a": 1}),
        calls.unack_to_retry(),
        ExpireReply(0, 0, NOW + 1),
        LEASED.but(unack={"a": 1}),
    ),
    Case(
        "a lease that ends this very millisecond costs a retry",
        _LATE,
        calls.unack_to_retry(),
        ExpireReply(1, 0, NOW + 90_000),
        CROWD + RETRY.but(retries={"a": 1}, errors={"a": "lease expired"}, meta={"token": "T-3", "expired": 1}),
    ),
    Case(
        "a lease that ends with the last retry left",
        _LATE.but(retries=_LATE.retries | {"a": 1}),
        calls.unack_to_retry(),
        ExpireReply(1, 0, NOW + 90_000),
        CROWD + RETRY.but(retries={"a": 0}, errors={"a": "lease expired"}, meta={"token": "T-3", "expired": 1}),
    ),
    Case(
        "a lease that ends with no retry left",
        _LATE.but(retries=_LATE.retries | {"a": 0}),
        calls.unack_to_retry(),
        ExpireReply(0, 1, NOW + 90_000),
        CROWD + GARBAGE.but(errors={"a": "lease expired"}, meta={"token": "T-3", "expired": 1}),
    ),
    Case(
        "a lease that ends, retries not stored yet",
        LEASED.but(unack={"a": -1}, retries={}),
        calls.unack_to_retry(),
        ExpireReply(1, 0, -1),
        RETRY.but(retries={"a": 2}, errors={"a": "lease expired"}, meta={"token": "T-3", "expired": 1}),
    ),
    *(
        Case(
            f"a lease that ends before its callback has started costs nothing, claimed {how}",
            _LATE.but(
                deliveries=_LATE.deliveries | {"a": f"leased -5 1 T-9 T-7 w {mark}"},
                retries=_LATE.retries | {"a": 0},
                meta=_LATE.meta | {"released": 4},
            ),
            calls.unack_to_retry(),
            ExpireReply(1, 0, NOW + 90_000),
            CROWD
            + RETRY.but(
                retries={"a": 0},
                deliveries={"a": f"retry -5 0 T-9 T-7 w {mark}"},
                meta={"token": "T-3", "released": 5},
            ),
        )
        for how, mark in [("with others", "?"), ("alone", "!")]
    ),
    Case(
        "a lease that ends after its callback has started costs a retry, and the message will be claimed alone",
        _LATE.but(deliveries=_LATE.deliveries | {"a": "leased -5 2 T-9 T-7 w +"}),
        calls.unack_to_retry(),
        ExpireReply(1, 0, NOW + 90_000),
        CROWD
        + RETRY.but(
            retries={"a": 1},
            deliveries={"a": "retry -5 2 T-9 T-7 w ?"},
            errors={"a": "lease expired"},
            meta={"token": "T-3", "expired": 1},
        ),
    ),
    Case(
        "a nack delay that is over costs nothing more and keeps the error",
        _OVER,
        calls.unack_to_retry(),
        ExpireReply(1, 0, NOW + 90_000),
        CROWD + RETRY,
    ),
    Case(
        "a nack delay of the last retry",
        _OVER.but(retries=_OVER.retries | {"a": 0}),
        calls.unack_to_retry(),
        ExpireReply(1, 0, NOW + 90_000),
        CROWD + RETRY.but(retries={"a": 0}),
    ),
    Case(
        "several, in the order of their deadlines",
        _SEVERAL,
        calls.unack_to_retry(),
        ExpireReply(3, 1, NOW + 9),
        World(
            unack={"e": 9},
            retry=["c", "a", "d"],
            garbage={"b"},
            retries={"a": 0, "b": 0, "c": 0, "d": 0, "e": 1},
            errors=dict.fromkeys("abd", "lease expired"),
            deliveries={
                "a": "retry -9 1 T-9 T-9 w",
                "b": "garbage -9 1 T-8 T-8 w",
                "c": "retry -9 1 T-7 T-7 w",
                "d": "retry -9 1 T-6 T-6 w",
                "e": "leased -9 1 T-5 T-5 w",
            },
            meta={"backoffs": 3, "expired": 9},
        ),
    ),
    Case(
        "no more than the limit",
        _SEVERAL,
        calls.unack_to_retry(2),
        ExpireReply(1, 1, NOW - 2),
        _SEVERAL.but(
            unack={"a": -2, "d": -1, "e": 9},
            retry=["c"],
            garbage={"b"},
            errors={"b": "lease expired"},
            deliveries=_SEVERAL.deliveries | {"b": "garbage -9 1 T-8 T-8 w", "c": "retry -9 1 T-7 T-7 w"},
            meta={"backoffs": 3, "expired": 7},
        ),
    ),
    Case(
        "an id without a record is dropped",
        World(unack={"x": -5}, retries={"x": 3}),
        calls.unack_to_retry(),
        ExpireReply(0, 0, -1),
        World(retries={"x": 3}),
    ),
]
CASES += logged(
    CASES,
    {
        "nothing there": [],
        "nothing late": [],
        "a lease that ends this very millisecond costs a retry": [
            "expired 0; ids a; tokens T-7; retries 1",
            "retried 0; ids a; tokens T-7",
        ],
        "a lease that ends before its callback has started costs nothing, claimed alone": [
            "released 0; ids a; tokens T-7",
            "retried 0; ids a; tokens T-7",
        ],
        "a lease that ends with no retry left": ["expired 0; ids a; tokens T-7; retries -"],
        "a lease that ends, retries not stored yet": [
            "expired 0; ids a; tokens T-7; retries 2",
            "retried 0; ids a; tokens T-7",
        ],
        "a nack delay that is over costs nothing more and keeps the error": ["retried 0; ids a; tokens T-7"],
        "several, in the order of their deadlines": [
            "expired 0; ids b a d; tokens T-8 T-9 T-6; retries - 0 0",
            "retried 0; ids c a d; tokens T-7 T-9 T-6",
        ],
        "no more than the limit": ["expired 0; ids b; tokens T-8; retries -", "retried 0; ids c; tokens T-7"],
        "an id without a record is dropped": [],
    },
)
CASES += [
    Case(
        "a lease that ends though its holder was asked to stop costs nothing, and the message is collected",
        STOPPING.but(unack={"a": 0}) + CROWD,
        calls.unack_to_retry(),
        ExpireReply(0, 1, NOW + 90_000),
        STOPPED + CROWD,
    ),
]
CASES += logged(CASES[-1:], {CASES[-1].name: []})
CASES += [
    Case(
        "a lease that is over gives its place back",
        with_meta(LEASED, PLACED).but(unack={"a": 0}),
        calls.unack_to_retry(),
        ExpireReply(1, 0, -1),
        with_meta(RETRY.but(retries={"a": 1}, errors={"a": "lease expired"}), PLACED, World(meta={"expired": 1})).but(
            running={}, gates={1: -NOW}, wake=1
        ),
    ),
    Case(
        "the end of a backoff may be what the queue waits for",
        with_meta(BACKOFF, PLACED).but(unack={"a": 0}, running={"b": 1}, gates={0: None, 1: 900}),
        calls.unack_to_retry(),
        ExpireReply(1, 0, -1),
        with_meta(RETRY, PLACED).but(running={"b": 1}, gates={0: -NOW, 1: 900}, wake=1),
    ),
    Case(
        "asked to stop, and its place is free",
        with_meta(STOPPING, PLACED).but(unack={"a": 0}),
        calls.unack_to_retry(),
        ExpireReply(0, 1, -1),
        with_meta(STOPPED, PLACED).but(running={}, gates={1: -NOW}, wake=1),
    ),
]
CASES += keyed(CASES)
CASES += [
    Case(
        "in order: it keeps the place of its key as its lease is over",
        with_meta(LEASED, KEPT).but(unack={"a": 0}),
        calls.unack_to_retry(),
        ExpireReply(1, 0, -1),
        with_meta(RETRY.but(retries={"a": 1}, errors={"a": "lease expired"}), KEPT, World(meta={"expired": 1})),
    ),
    Case(
        "in order: it keeps the place of its key as its backoff is over",
        with_meta(BACKOFF, KEPT).but(unack={"a": 0}),
        calls.unack_to_retry(),
        ExpireReply(1, 0, -1),
        with_meta(RETRY, KEPT),
    ),
    Case(
        "in order: asked to stop, and the place of its key is free",
        with_meta(STOPPING, KEPT).but(unack={"a": 0}),
        calls.unack_to_retry(),
        ExpireReply(0, 1, -1),
        with_meta(STOPPED, KEPT).but(running={}, gates={KEY: -NOW}, wake=1),
    ),
]
