"""`schedule_put`: new, changed, paused and resumed schedules, each only if it stands as it was read; and wake-ups."""

from __future__ import annotations

from delayq.broker.requests import SchedulePut, ScriptCall
from tests.support.scripts import NOW, Case, T, World, calls

HOURLY = World(schedules={"s": 60_000}, schedule_specs={"s": "{}\nold"}, schedule_states={"s": "T-9 3 -60000 0"})


def put(*placings: SchedulePut) -> ScriptCall[str]:
    return calls.schedule_put(placings)


def one(
    name: str = "s", revision: int = 0, at: int | None = 5000, paused: int = 0, spec: bytes = b"{}\nnew"
) -> SchedulePut:
    """Return a schedule on its way in; the revision counts from `T`, the next time from `NOW`, 0 and None are none."""
    return SchedulePut(name, str(T + revision if revision else 0), "" if at is None else NOW + at, paused, spec)


def stood(at: int | None, state: str, spec: str = "{}\nnew") -> World:
    """Return a schedule in its place."""
    return World(schedules={} if at is None else {"s": at}, schedule_specs={"s": spec}, schedule_states={"s": state})


def _new() -> list[Case]:
    two = stood(5000, "T+0 0 - 0") + World(
        schedules={"t": 4000}, schedule_specs={"t": "{}"}, schedule_states={"t": "T+0 0 - 0"}, wake=1
    )
    return [
        Case("a new one", World(), put(one()), "1", stood(5000, "T+0 0 - 0").but(wake=1)),
        Case("a new one that is paused", World(), put(one(at=None, paused=1)), "1", stood(None, "T+0 0 - 1")),
        Case("a new one that has ended", World(), put(one(at=None)), "1", stood(None, "T+0 0 - 0")),
        Case("two new ones", World(), put(one(), one("t", at=4000, spec=b"{}")), "11", two),
        Case("one twice", World(), put(one(), one(at=1)), "10", stood(5000, "T+0 0 - 0").but(wake=1)),
        Case("a new one where one is", HOURLY, put(one()), "0", HOURLY),
        Case(
            "any bytes as payload",
            World(),
            put(one(spec=b"{}\n\x00\xff\r\n")),
            "1",
            stood(5000, "T+0 0 - 0", "{}\n\x00\xff\r\n").but(wake=1),
        ),
    ]


def _changed() -> list[Case]:
    return [
        Case("changed", HOURLY, put(one(revision=-9)), "1", stood(5000, "T+0 3 -60000 0").but(wake=1)),
        Case("changed meanwhile", HOURLY, put(one(revision=-8)), "0", HOURLY),
        Case("removed meanwhile", World(), put(one(revision=-9)), "0", World()),
        Case(
            "paused",
            HOURLY,
            put(one(revision=-9, at=None, paused=1, spec=b"")),
            "1",
            stood(None, "T+0 3 -60000 1", "{}\nold"),
        ),
        Case(
            "resumed",
            stood(None, "T-9 3 -60000 1"),
            put(one(revision=-9, spec=b"")),
            "1",
            stood(5000, "T+0 3 -60000 0").but(wake=1),
        ),
        Case(
            "changed while paused",
            stood(None, "T-9 3 -60000 1", "{}"),
            put(one(revision=-9, at=None, paused=1)),
            "1",
            stood(None, "T+0 3 -60000 1"),
        ),
        Case(
            "changed so that it has ended", HOURLY, put(one(revision=-9, at=None)), "1", stood(None, "T+0 3 -60000 0")
        ),
        Case(
            "changed twice in a microsecond, or when the clock was set back",
            stood(5000, "T+7 0 - 0", "{}"),
            put(one(revision=7)),
            "1",
            stood(5000, "T+8 0 - 0").but(wake=1),
        ),
        Case(
            "one of two stands otherwise",
            HOURLY,
            put(one(revision=-8), one("t", spec=b"{}")),
            "01",
            HOURLY
            + World(schedules={"t": 5000}, schedule_specs={"t": "{}"}, schedule_states={"t": "T+0 0 - 0"}, wake=1),
        ),
        Case(
            "fired very often",
            stood(5000, "T-9 123456789012 -1 0", "{}"),
            put(one(revision=-9)),
            "1",
            stood(5000, "T+0 123456789012 -1 0").but(wake=1),
        ),
    ]


def _waking() -> list[Case]:
    other = World(schedules={"o": 5000}, schedule_specs={"o": "{}"}, schedule_states={"o": "T-9 0 - 0"})
    return [
        Case("later than another, it wakes nobody", other, put(one(at=5001)), "1", other + stood(5001, "T+0 0 - 0")),
        Case("sooner, it does", other, put(one(at=4999)), "1", other + stood(4999, "T+0 0 - 0") + World(wake=1)),
        Case(
            "a wake-up waits",
            other.but(wake=1),
            put(one(at=4999)),
            "1",
            other + stood(4999, "T+0 0 - 0") + World(wake=1),
        ),
        Case("due already", other, put(one(at=-7)), "1", other + stood(-7, "T+0 0 - 0") + World(wake=1)),
    ]


CASES = [*_new(), *_changed(), *_waking()]
