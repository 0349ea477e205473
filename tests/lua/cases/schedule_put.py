"""`schedule_put`: new, changed, paused and resumed schedules, each only if it stands as it was read; and wake-ups."""

from __future__ import annotations

from delayq.broker.requests import ScriptCall
from delayq.schedules.calls import SchedulePut, schedule_put_call
from tests.support.scripts import NOW, Case, T, World, calls

HOURLY = World(schedules={"s": 60_000}, schedule_specs={"s": "{}\nold"}, schedule_states={"s": "T-9 3 -60000 0"})


def put(*placings: SchedulePut) -> ScriptCall[str]:
    return schedule_put_call(calls, placings)


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
        Case(
            "one that is paused until a time",
            World(),
            put(one(paused=9000)),
            "1",
            stood(5000, "T+0 0 - 9000").but(wake=1),
        ),
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


def _noting() -> list[Case]:
    """Note the time of a change, which counts from `NOW`, if it is a minute later than the one noted."""
    new = stood(5000, "T+0 0 - 0").but(wake=1)
    noted = [World(meta={"schedules_at": at}) for at in (-60_000, -59_999, 60_000)]
    return [
        Case("noted a minute ago", noted[0], put(one()), "1", new),
        Case("noted less than a minute ago", noted[1], put(one()), "1", new + noted[1]),
        Case("noted before the clock was set back", noted[2], put(one()), "1", new + noted[2]),
        Case("noted a minute ago, and it changes nothing", noted[0], put(one(revision=-9)), "0", noted[0]),
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


def _labels() -> list[Case]:
    """Keep the index of labels in step with the definitions."""

    def labelled(*labels: str, payload: str = "p") -> str:
        return '{"retries":3,"labels":[' + ",".join(f'"{label}"' for label in labels) + "]}\n" + payload

    def of(*labels: str) -> World:
        world = stood(60_000, "T-9 3 -60000 0", labelled(*labels) if labels else "{}")
        return world.but(schedule_labels={f"{label} s" for label in labels} | {"a other"})

    def putting(spec: str, revision: int = -9) -> ScriptCall[str]:
        return put(one(revision=revision, at=60_000, spec=spec.encode()))

    def after(spec: str, *labels: str) -> World:
        index = {f"{label} s" for label in labels} | {"a other"}
        return stood(60_000, "T+0 3 -60000 0", spec).but(schedule_labels=index, wake=1)

    two, stranger = labelled("a", "user:42"), '{}\n{"labels":["p"]}'
    quoted = '{"headers":{"k":"\\"labels\\":[\\"q\\"]"},"labels":["a"]}\n'
    paused = put(one(revision=-9, at=None, paused=1, spec=b""))
    return [
        Case(
            "new with labels",
            World(),
            put(one(spec=two.encode())),
            "1",
            stood(5000, "T+0 0 - 0", two).but(schedule_labels={"a s", "user:42 s"}, wake=1),
        ),
        Case("other labels", of("a", "b"), putting(two), "1", after(two, "a", "user:42")),
        Case("its first labels", of(), putting(two), "1", after(two, "a", "user:42")),
        Case("no more labels", of("a", "b"), putting("{}"), "1", after("{}")),
        Case("labels in a payload are none", of("a"), putting(stranger), "1", after(stranger)),
        Case("labels in a header are none", of("b"), putting(quoted), "1", after(quoted, "a")),
        Case("changed meanwhile, with labels", of("a"), putting(two, -8), "0", of("a")),
        Case(
            "paused, with labels",
            of("a"),
            paused,
            "1",
            of("a").but(schedules={}, schedule_states={"s": "T+0 3 -60000 1"}),
        ),
        Case(
            "two with labels",
            World(),
            put(one(spec=two.encode()), one("t", at=6000, spec=labelled("a").encode())),
            "11",
            stood(5000, "T+0 0 - 0", two)
            + World(
                schedules={"t": 6000},
                schedule_specs={"t": labelled("a")},
                schedule_states={"t": "T+0 0 - 0"},
                schedule_labels={"a s", "user:42 s", "a t"},
                wake=1,
            ),
        ),
    ]


CASES = [*_new(), *_changed(), *_noting(), *_waking(), *_labels()]
