"""`purge`: the queue is empty; its dead, its token and its totals stay."""

from __future__ import annotations

from tests.lua.cases.states import (
    AFTER,
    BACKOFF,
    CROWD,
    DEAD,
    LEASED,
    LIMITED,
    THROTTLED,
    logged,
    remembering,
    with_meta,
)
from tests.support.scripts import LOG, Case, Kept, World, calls

_TOTALS: dict[str, int | str] = {"token": "T-3", "sent": 9, "delivered": 8, "purged": 1}
_FULL = (BACKOFF + CROWD + DEAD).but(
    wake=1,
    ready=["q", "x", "x"],
    retry=["y", "s"],
    retries=CROWD.retries | {"a": 2, "y": 1},
    meta=_TOTALS | {"backoffs": 1, "stale_ready": 2, "stale_retry": 1},
)

CASES = [
    Case("nothing there", World(), calls.purge(), 0, World()),
    Case(
        "everything there",
        _FULL,
        calls.purge(),
        6,
        World(
            dead=_FULL.dead,
            dead_messages=_FULL.dead_messages,
            dead_ids=_FULL.dead_ids,
            meta=_TOTALS | {"purged": 7},
        ),
    ),
    Case("the dead stay", DEAD, calls.purge(), 0, DEAD),
    Case(
        "nobody waits while the schema is 1",
        World(pending={"a": 5}, messages={"a": "A"}, retries={"a": 1}, waited={"a": 900}, meta={"schema": 1}),
        calls.purge(),
        1,
        World(waited={"a": 900}, meta={"schema": 1, "purged": 1}),
    ),
]
CASES += logged(CASES, {"nothing there": [], "the dead stay": [], "everything there": ["purged 0; count 6"]})
CASES += [
    Case(
        "a single message is told of, and what was told before stays",
        BACKOFF + World(meta=LOG, events=["sent -5; ids a; dues -5; retries 2"]),
        calls.purge(),
        1,
        World(
            meta=LOG | {"token": "T-3", "purged": 1},
            events=["sent -5; ids a; dues -5; retries 2", "purged 0; count 1"],
        ),
    ),
    Case(
        "settled ids are remembered still, purged ones are free",
        BACKOFF + remembering(1000, b=-5),
        calls.purge(),
        1,
        World(meta={"token": "T-3", "purged": 1}) + remembering(1000, b=-5),
    ),
]
CASES += [
    Case(
        "what waits is purged, and not counted",
        LEASED + AFTER,
        calls.purge(),
        1,
        World(meta={"token": "T-3", "schema": 2, "purged": 1}),
    ),
]
CASES += [
    Case(
        "results stay, and whoever waits looks again",
        BACKOFF
        + World(completed={"c": 900}, results={"c": Kept("nothing", 1, -9, -8, "T-9", "")})
        + World(waited={"a": 900}, ends=["x"]),
        calls.purge(),
        1,
        World(
            completed={"c": 900},
            results={"c": Kept("nothing", 1, -9, -8, "T-9", "")},
            ends=["x", ""],
            meta={"token": "T-3", "purged": 1},
        ),
    ),
    Case(
        "what limits hold back is purged, the limits stay",
        with_meta(THROTTLED, World(running={"r": 1})),
        calls.purge(),
        1,
        World(limits=LIMITED.limits, meta={**LIMITED.meta, "token": "T-3", "purged": 1}),
    ),
]
