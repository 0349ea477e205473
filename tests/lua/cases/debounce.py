"""`debounce`: of a burst of sends with one id the last wins, and none puts it off too long."""

from __future__ import annotations

from delayq.broker.calls import Debounced
from delayq.broker.message.same_id import Debounce
from delayq.broker.requests import Outgoing, ScriptCall
from delayq.errors import QueueFullError
from tests.lua.cases.states import (
    BACKOFF,
    CROWD,
    GARBAGE,
    LEASED,
    LEFTOVERS,
    PENDING,
    RANKED,
    READY,
    RELEASED,
    RESCHEDULED,
    RETRY,
    logged,
    remembering,
    reserved,
    with_meta,
)
from tests.support.scripts import NOW, After, Case, World, calls


def debounce(
    quiet: int = 5000,
    at_most: int | None = None,
    *,
    headers: bytes = b"",
    attributes: bytes = b"",
    max_length: int | None = None,
) -> ScriptCall[Debounced]:
    message = Outgoing("a", 0, 3, b"new", headers, attributes)
    return calls.debounce(message, Debounce(quiet, at_most), max_length=max_length)


def stored(status: str, due: int = 5000, *, unstarted: bool = False) -> Debounced:
    return Debounced(status, f"@{NOW + due}", 1, unstarted=unstarted)


def waiting(due: int = 5000, since: int = 0, attributes: str = "") -> World:
    """Return the message that a burst has left, which began at `since`."""
    return World(
        pending={"a": due},
        retries={"a": 3},
        messages={"a": "new"},
        attributes={"a": f"{attributes}since={NOW + since}"},
        meta={"schema": 2},
    )


def following(due: int = 5000, since: int = 0) -> World:
    return World(successors={"a": After(due, 3, "", "new", f"since={NOW + since}")}, meta={"schema": 2})


_FIRST = with_meta(waiting(), World(meta={"sent": 1}, wake=1))
_READY_OF_A_BURST = waiting(-10, -100).but(pending={}, ready=["a"], deliveries={"a": "ready -10 0 0 0 -"})


def _after(world: World, after: World) -> World:
    """Return what is left once `after` has taken the place of `a`: of its life before, a token at most."""
    left = {name: world.meta[name] for name in ("token", "priority_step") if name in world.meta}
    return with_meta(World(meta=left), after)


def _replaced() -> list[Case]:
    leaving = {"ready": {"stale_ready": 1}, "released": {"stale_ready": 1}, "retry": {"stale_retry": 1}}
    before = {
        "pending": PENDING,
        "rescheduled": RESCHEDULED,
        "ready": READY,
        "ranked": RANKED,
        "released": RELEASED,
        "backoff": BACKOFF,
        "retry": RETRY,
    }
    return [
        Case(
            f"in place of what waits: {name}",
            world + CROWD,
            debounce(),
            stored("2"),
            with_meta(_after(world, waiting()), World(meta=leaving.get(name, {})))
            + World(ready=world.ready, retry=world.retry, wake=1)
            + CROWD,
        )
        for name, world in before.items()
    ]


def _bursts() -> list[Case]:
    def burst(name: str, before: World, at_most: int | None, due: int, since: int) -> Case:
        before = before.but(messages={"a": "old"})
        wakes = int(due < min(before.pending.values(), default=10**9))
        left = World(ready=before.ready, retry=before.retry, wake=wakes)
        stale = {f"stale_{where}": 1 for where in ("ready", "retry") if getattr(before, where)}
        after = with_meta(_after(before, waiting(due, since)), World(meta=stale)) + left
        return Case(f"a burst: {name}", before, debounce(5000, at_most), stored("2", due), after)

    other = waiting(4000).but(attributes={"a": "name=since"})
    failed = with_meta(RETRY, World(meta={"schema": 2})).but(attributes={"a": f"since={NOW - 100}"})
    return [
        burst("put off", waiting(4000, -1000), None, 5000, -1000),
        burst("put off, within the limit", waiting(4000, -1000), 6000, 5000, -1000),
        burst("put off, at the latest to the limit", waiting(4000, -1000), 5500, 4500, -1000),
        burst("no longer put off", waiting(4000, -1000), 5000, 4000, -1000),
        burst("its limit has passed", waiting(4000, -9000), 5000, -4000, -9000),
        burst("due, and not claimed", _READY_OF_A_BURST, 150, 50, -100),
        burst("begun over what was sent otherwise", other, 6000, 5000, 0),
        burst("begun over what has failed", failed, 5000, 5000, 0),
    ]


CASES = [
    Case("the first", World(), debounce(), stored("1"), _FIRST),
    Case(
        "the first, with headers and a name",
        World(),
        debounce(headers=b"h\n", attributes=b"name=n"),
        stored("1"),
        with_meta(waiting(attributes="name=n "), World(headers={"a": "h\n"}, meta={"sent": 1}, wake=1)),
    ),
    Case("the first, shorter than its pause", World(), debounce(5000, 5000), stored("1"), _FIRST),
    Case("the first, among others", CROWD, debounce(), stored("1"), _FIRST + CROWD),
    Case(
        "the first, and remains of a message",
        LEFTOVERS.but(headers={}, errors={}),
        debounce(),
        stored("1"),
        with_meta(LEFTOVERS.but(headers={}, errors={}, retries={}), _FIRST),
    ),
    Case(
        "the first, and remains of a burst",
        World(attributes={"a": f"since={NOW - 9000}"}),
        debounce(5000, 5500),
        stored("1"),
        _FIRST,
    ),
    Case(
        "the first, with a priority: what is due is ranked from then on",
        World(),
        debounce(attributes=b"priority=1"),
        stored("1"),
        with_meta(waiting(attributes="priority=1 "), World(meta={"sent": 1, "priority_step": 60_000}, wake=1)),
    ),
    *_replaced(),
    *_bursts(),
    Case(
        "what may have killed its consumer and waits for another one",
        RETRY.but(deliveries={"a": "retry -5 2 T-9 T-7 w ?"}),
        debounce(),
        stored("2"),
        _after(RETRY, with_meta(waiting(), World(meta={"stale_retry": 1}))) + World(retry=["a"], wake=1),
    ),
    Case(
        "beside what may have killed its consumer, and another has claimed and not started",
        LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w !"}),
        debounce(),
        stored("6", unstarted=True),
        with_meta(LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w !"}), following()),
    ),
    Case("beside what runs", LEASED + CROWD, debounce(), stored("6"), with_meta(LEASED, following()) + CROWD),
    Case(
        "beside what a consumer has claimed and not started",
        LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w ?"}),
        debounce(),
        stored("6", unstarted=True),
        with_meta(LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w ?"}), following()),
    ),
    Case(
        "beside what has started",
        LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w +"}),
        debounce(),
        stored("6"),
        with_meta(LEASED.but(deliveries={"a": "leased -5 2 T-9 T-7 w +"}), following()),
    ),
    Case(
        "beside what runs, put off",
        with_meta(LEASED, following(4000, -1000)),
        debounce(5000, 5500),
        stored("6", 4500),
        with_meta(LEASED, following(4500, -1000)),
    ),
    Case(
        "beside what runs: the burst before has ended",
        with_meta(LEASED.but(attributes={"a": f"since={NOW - 9000}"}), World(meta={"schema": 2})),
        debounce(5000, 5500),
        stored("6"),
        with_meta(LEASED.but(attributes={"a": f"since={NOW - 9000}"}), following()),
    ),
    Case(
        "what waits has a successor, which it replaces as well",
        with_meta(_READY_OF_A_BURST, following(9000, -50)),
        debounce(5000, 5050),
        stored("2", 4950),
        with_meta(waiting(4950, -100), World(meta={"stale_ready": 1})) + World(ready=["a"], wake=1),
    ),
    Case("about to die", GARBAGE + CROWD, debounce(), Debounced("4", 0, 1, unstarted=False), GARBAGE + CROWD),
    Case(
        "settled within the dedupe window",
        remembering(1000, a=-1),
        debounce(),
        Debounced("5", 0, f"settled {NOW + 999}", unstarted=False),
        remembering(1000, a=-1),
    ),
    Case(
        "reserved until its end",
        reserved(a=1.5),
        debounce(),
        Debounced("5", 0, f"settled {NOW + 1}", unstarted=False),
        reserved(a=1.5),
    ),
    Case(
        "settled before the dedupe window",
        remembering(1000, a=-1000),
        debounce(),
        stored("1"),
        with_meta(remembering(1000, a=-1000), _FIRST),
    ),
    Case(
        "no room",
        PENDING.but(messages={"b": "B"}),
        debounce(max_length=1),
        QueueFullError,
        PENDING.but(messages={"b": "B"}),
    ),
    Case("room for one", World(), debounce(max_length=1), stored("1"), _FIRST),
    Case(
        "in place of what waits: no room needed",
        waiting(4000, -1),
        debounce(max_length=1),
        stored("2"),
        waiting(5000, -1),
    ),
]
CASES += logged(
    CASES,
    {
        "the first": ["sent 0; ids a; dues 5000; retries 3"],
        "in place of what waits: backoff": ["replaced 0; ids a; dues 5000; retries 3"],
        "a burst: no longer put off": ["replaced 0; ids a; dues 4000; retries 3"],
        "beside what runs": [],
        "about to die": [],
        "settled within the dedupe window": [],
        "no room": [],
    },
)
