"""`fire`: occurrences of schedules that stand as they were read, ids that live, ends, wake-ups and the event log."""

from __future__ import annotations

from delayq.broker.requests import ScriptCall
from delayq.schedules.calls import ScheduleFire, fire_call
from tests.lua.cases.states import STATES, logged, with_meta
from tests.support.scripts import NOW, Case, T, World, calls

DUE = World(schedules={"s": -50}, schedule_specs={"s": "{}"}, schedule_states={"s": "T-9 3 -60000 0"})
ROW = ScheduleFire("s", str(T - 9), NOW + 60_000, NOW - 50, 3, b"new", b"", f"s@1 {NOW - 50}")


def fire(*firings: ScheduleFire) -> ScriptCall[str]:
    return fire_call(calls, firings)


def moved(at: int | None, fired: int = 4, last: int = -50, revision: str = "T+0") -> World:
    """Return the schedule after it was fired."""
    return DUE.but(schedules={} if at is None else {"s": at}, schedule_states={"s": f"{revision} {fired} {last} 0"})


def stored(*ids: str, due: int = -50) -> World:
    """Return the messages of occurrences."""
    return World(
        pending=dict.fromkeys(ids, due), retries=dict.fromkeys(ids, 3), messages=dict.fromkeys(ids, "new")
    ).but(meta={"sent": len(ids)}, wake=1)


FIRED = moved(60_000) + stored("s@1")


def _fired() -> list[Case]:
    two = f"s@1 {NOW - 50} s@2 {NOW + 10}"
    return [
        Case("one occurrence", DUE, fire(ROW), "1", FIRED),
        Case(
            "ahead of its time",
            DUE.but(schedules={"s": 50}),
            fire(ROW._replace(occurrences=f"s@1 {NOW + 50}")),
            "1",
            moved(60_000) + stored("s@1", due=50),
        ),
        Case("its last", DUE, fire(ROW._replace(next="")), "1", moved(None) + stored("s@1")),
        Case("with headers", DUE, fire(ROW._replace(headers=b"\xfe h")), "1", FIRED + World(headers={"s@1": "\xfe h"})),
        Case(
            "with attributes",
            DUE,
            fire(ROW._replace(attributes=b"name=n retention=60000")),
            "1",
            with_meta(FIRED + World(attributes={"s@1": "name=n retention=60000"}), World(meta={"schema": 2})),
        ),
        Case(
            "with a priority, beside one without",
            DUE + World(schedules={"o": -20}, schedule_specs={"o": "{}"}, schedule_states={"o": "T-5 3 -60000 0"}),
            fire(
                ROW._replace(attributes=b"priority=2"),
                ROW._replace(name="o", revision=str(T - 5), occurrences=f"o@1 {NOW - 20}"),
            ),
            "11",
            with_meta(
                moved(60_000)
                + World(schedules={"o": 60_000}, schedule_specs={"o": "{}"}, schedule_states={"o": "T+0 4 -50 0"})
                + stored("s@1", "o@1").but(pending={"s@1": -50, "o@1": -20})
                + World(attributes={"s@1": "priority=2"}),
                World(meta={"schema": 2, "priority_step": 60_000}),
            ),
        ),
        Case(
            "any bytes as payload",
            DUE,
            fire(ROW._replace(payload=b"\x00\r\n\xff ")),
            "1",
            FIRED.but(messages={"s@1": "\x00\r\n\xff "}),
        ),
        Case(
            "no payload, no retries",
            DUE,
            fire(ROW._replace(payload=b"", retries=0)),
            "1",
            FIRED.but(messages={"s@1": ""}, retries={"s@1": 0}),
        ),
        Case(
            "two occurrences",
            DUE,
            fire(ROW._replace(last=NOW + 10, occurrences=two)),
            "1",
            moved(60_000, 5, 10) + stored("s@1", "s@2").but(pending={"s@1": -50, "s@2": 10}),
        ),
        Case(
            "its very first",
            DUE.but(schedule_states={"s": "T-9 0 - 0"}),
            fire(ROW),
            "1",
            moved(60_000, 1) + stored("s@1"),
        ),
        Case("none of the missed", DUE, fire(ROW._replace(occurrences="")), "1", moved(60_000, 3, -60_000)),
        Case(
            "none of the missed, and that was it",
            DUE,
            fire(ROW._replace(occurrences="", next="")),
            "1",
            moved(None, 3, -60_000),
        ),
        Case(
            "twice in a microsecond, or when the clock was set back",
            DUE.but(schedule_states={"s": "T+7 3 -60000 0"}),
            fire(ROW._replace(revision=str(T + 7))),
            "1",
            moved(60_000, revision="T+8") + stored("s@1"),
        ),
    ]


def _stands_otherwise() -> list[Case]:
    other = World(schedules={"o": -20}, schedule_specs={"o": "{}"}, schedule_states={"o": "T-5 0 - 0"})
    row = ScheduleFire("o", str(T - 5), NOW + 7000, NOW - 20, 3, b"new", b"", f"o@1 {NOW - 20}")
    both = FIRED + World(
        schedules={"o": 7000},
        schedule_specs={"o": "{}"},
        schedule_states={"o": "T+0 1 -20 0"},
        pending={"o@1": -20},
        retries={"o@1": 3},
        messages={"o@1": "new"},
    )
    return [
        Case("fired or changed meanwhile", DUE, fire(ROW._replace(revision=str(T - 8))), "0", DUE),
        Case("removed meanwhile", World(), fire(ROW), "0", World()),
        Case("one of two, the first", DUE + other, fire(ROW, row._replace(revision="7")), "10", FIRED + other),
        Case(
            "one of two, the second",
            DUE + other,
            fire(ROW._replace(revision="7"), row),
            "01",
            both.but(
                schedules={"s": -50, "o": 7000},
                schedule_states={"s": "T-9 3 -60000 0", "o": "T+0 1 -20 0"},
                pending={"o@1": -20},
                retries={"o@1": 3},
                messages={"o@1": "new"},
            ),
        ),
        Case("both", DUE + other, fire(ROW, row), "11", both.but(meta={"sent": 2})),
        Case("one twice", DUE, fire(ROW, ROW._replace(occurrences=f"s@9 {NOW}")), "10", FIRED),
    ]


def _ids_that_live() -> list[Case]:
    """Fire an occurrence whose id is that of a message in each state."""
    row = ROW._replace(occurrences=f"a {NOW - 50}")
    cases = []
    for name, world in STATES.items():
        after = moved(60_000) + world
        if name in ("dead", "gone"):
            after += stored("a")
        cases.append(Case(f"{name} before", DUE + world, fire(row), "1", after))
    mixed = ROW._replace(occurrences=f"a {NOW - 60} s@1 {NOW - 50}")
    there = World(pending={"a": 5}, retries={"a": 1}, messages={"a": "old"})
    fresh = stored("s@1").but(
        pending={"a": 5, "s@1": -50}, retries={"a": 1, "s@1": 3}, messages={"a": "old", "s@1": "new"}
    )
    return [*cases, Case("one of two ids lives", DUE + there, fire(mixed), "1", moved(60_000, 5) + fresh)]


def _overlapping() -> list[Case]:
    """Fire an occurrence that may not overlap another, while the message of that is in each state."""
    cases = []
    for policy, status, after in (("skip", "3", moved(60_000, 3, -60_000)), ("after", "2", DUE)):
        row = ROW._replace(overlap=f"{policy} a")
        for name, world in STATES.items():
            case = f"{policy} while {name}"
            if name in ("dead", "gone"):
                cases.append(Case(case, DUE + world, fire(row), "1", FIRED + world))
            else:
                cases.append(Case(case, DUE + world, fire(row), status, after + world))
        second = World(pending={"b": 9}, retries={"b": 1}, messages={"b": "B"})
        both = ROW._replace(overlap=f"{policy} a b")
        cases.append(Case(f"{policy} while the second of two lives", DUE + second, fire(both), status, after + second))
        cases.append(Case(f"{policy} while none lives", DUE, fire(both), "1", FIRED))
        changed = both._replace(revision="7")
        cases.append(Case(f"{policy}, but it has changed", DUE + second, fire(changed), "0", DUE + second))
    other = World(schedules={"o": -20}, schedule_specs={"o": "{}"}, schedule_states={"o": "T-5 3 -60000 0"})
    held = ScheduleFire("o", str(T - 5), NOW + 7000, NOW - 20, 3, b"new", b"", f"o@1 {NOW - 20}", "after a")
    there = World(pending={"a": 5}, retries={"a": 1}, messages={"a": "old"})
    fired = FIRED.but(pending={"a": 5, "s@1": -50}, retries={"a": 1, "s@1": 3}, messages={"a": "old", "s@1": "new"})
    cases.append(Case("one waits, another fires", DUE + other + there, fire(held, ROW), "21", fired + other))
    last = ROW._replace(next="", overlap="skip a")
    cases.append(Case("its last is skipped", DUE + there, fire(last), "3", moved(None, 3, -60_000) + there))
    return cases


def _noting() -> list[Case]:
    """Note the time, which counts from `NOW`, if it is a minute later than the one noted."""
    noted = [World(meta={"schedules_at": at}) for at in (-60_000, -59_999, 60_000)]
    return [
        Case("noted a minute ago", DUE + noted[0], fire(ROW), "1", FIRED),
        Case("noted less than a minute ago", DUE + noted[1], fire(ROW), "1", FIRED + noted[1]),
        Case("noted before the clock was set back", DUE + noted[2], fire(ROW), "1", FIRED + noted[2]),
        Case("noted a minute ago, and it fires nothing", noted[0], fire(ROW), "0", noted[0]),
    ]


def _waking() -> list[Case]:
    there = World(pending={"z": -50}, retries={"z": 1}, messages={"z": "Z"})
    with_it = FIRED.but(wake=0) + there
    return [
        Case("due with another, it wakes nobody", DUE + there, fire(ROW), "1", with_it),
        Case(
            "due before another, it wakes a consumer",
            DUE + there.but(pending={"z": -49}),
            fire(ROW),
            "1",
            with_it.but(pending={"z": -49, "s@1": -50}, wake=1),
        ),
        Case(
            "one due before another, one after it: they wake a consumer",
            DUE + there.but(pending={"z": 0}),
            fire(ROW._replace(last=NOW + 10, occurrences=f"s@1 {NOW - 50} s@2 {NOW + 10}")),
            "1",
            moved(60_000, 5, 10) + stored("s@1", "s@2") + there.but(pending={"z": 0, "s@1": -50, "s@2": 10}),
        ),
        Case("a wake-up waits", DUE + World(wake=1), fire(ROW), "1", FIRED),
        Case(
            "counts add up",
            DUE.but(meta={"sent": 7, "token": "T-9"}),
            fire(ROW),
            "1",
            FIRED.but(meta={"sent": 8, "token": "T-9"}),
        ),
    ]


CASES = [*_fired(), *_stands_otherwise(), *_ids_that_live(), *_overlapping(), *_noting(), *_waking()]
CASES += logged(
    CASES,
    {
        "one occurrence": ["sent 0; ids s@1; dues -50; retries 3"],
        "two occurrences": ["sent 0; ids s@1 s@2; dues -50 10; retries 3 3"],
        "one of two ids lives": ["sent 0; ids s@1; dues -50; retries 3"],
        "pending before": [],
        "none of the missed": [],
        "removed meanwhile": [],
    },
)
