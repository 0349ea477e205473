"""`presence`: what consumers report, and what becomes of it when they are silent."""

from __future__ import annotations

from collections.abc import Mapping

from delayq.broker.requests import ScriptCall
from delayq.broker.stored_presence import (
    HOUR,
    KEPT_HOURS,
    SILENT_KEPT,
    HourCounts,
    PresenceReply,
    WorkerEntry,
    presence_call,
    write_counts,
    write_entry,
)
from tests.lua.cases.states import CROWD
from tests.support.scripts import NOW, Case, World, calls

ENTRY = WorkerEntry("host", 7, "1.0", ["tables"], 1, 10, 10_000, 500, 2, [("a", 30)])
TEXT = write_entry(ENTRY).decode()
LASTS, LONG_AGO = 30_000, -SILENT_KEPT


def report(consumer: str = "w") -> ScriptCall[PresenceReply]:
    return presence_call(calls, consumer, ENTRY)


def stop(consumer: str = "w") -> ScriptCall[PresenceReply]:
    return presence_call(calls, consumer, None)


def done(removed: int = 0, *, before: int = 0, workers: int = 1) -> PresenceReply:
    return PresenceReply(removed, before, workers, NOW)


def told(ends: Mapping[str, int], text: str = "{}") -> World:
    """Return consumers with the ends of their entries, in milliseconds from now."""
    return World(workers=dict.fromkeys(ends, text), beats=dict(ends))


_W = told({"w": LASTS}, TEXT)
_MANY = {f"x{number:03}": LONG_AGO - 200 + number for number in range(150)}
_REST = dict(list(_MANY.items())[100:])

COUNTS = HourCounts(3, 2, 0, 1, busy=5_000_000_000_000_000)
COUNTED = write_counts(COUNTS)
HOUR_NOW = NOW // HOUR
OLDEST = HOUR_NOW - KEPT_HOURS
_TALLIED = presence_call(calls, "w", ENTRY, COUNTS)
_TWICE = write_counts(HourCounts(6, 4, 0, 2, busy=10_000_000_000_000_000))
_ONE_MORE = write_counts(COUNTS._replace(delivered=4))


def hours(first: int | str, records: Mapping[int, str], total: str = "") -> World:
    told = {"total": total} if total else {}
    return World(history={"first": f"{first}", **{f"{hour}": text for hour, text in records.items()}, **told})


_OLD = {OLDEST - 150 + number: "1" for number in range(151)}

CASES = [
    Case("the first", World(), report(), done(), _W),
    Case("beside messages", CROWD, report(), done(), CROWD + _W),
    Case("again", told({"w": 5}), report(), done(), _W),
    Case("beside another", told({"v": 5}), report(), done(before=1, workers=2), told({"v": 5}) + _W),
    Case(
        "beside some before it and some after it",
        told({"a": 0, "b": 5, "x": 5, "y": -1}),
        report(),
        done(before=2, workers=4),
        told({"a": 0, "b": 5, "x": 5, "y": -1}) + _W,
    ),
    Case(
        "beside more than a hundred",
        told({f"x{number:03}": 5 for number in range(150)}),
        report(),
        done(workers=101),
        told({f"x{number:03}": 5 for number in range(150)}) + _W,
    ),
    Case("after a silence", told({"w": -5}), report(), done(), _W),
    Case("after a long silence", told({"w": LONG_AGO}), report(), done(1), _W),
    Case("another is silent", told({"v": -1}), report(), done(), told({"v": -1}) + _W),
    Case(
        "another is silent for almost too long",
        told({"v": LONG_AGO + 1}),
        report(),
        done(),
        told({"v": LONG_AGO + 1}) + _W,
    ),
    Case("another is silent for too long", told({"v": LONG_AGO}), report(), done(1), _W),
    Case("a hundred of those who are silent for too long", told(_MANY), report(), done(100), told(_REST) + _W),
    # a stop
    Case("a stop", _W, stop(), done(1), World()),
    Case("a stop beside another", _W + told({"v": 5}), stop(), done(1, before=1, workers=2), told({"v": 5})),
    Case("a stop of one that has not told", told({"v": 5}), stop(), done(before=1, workers=2), told({"v": 5})),
    Case("a stop of one that has not told, alone", World(), stop(), done(), World()),
    Case("a stop when another is silent for too long", _W + told({"v": LONG_AGO}), stop(), done(2), World()),
    Case("a stop after a long silence", told({"w": LONG_AGO}), stop(), done(1), World()),
    # what it has counted
    Case("counts of a new hour", World(), _TALLIED, done(), _W + hours(HOUR_NOW, {HOUR_NOW: COUNTED}, COUNTED)),
    Case(
        "counts of a new hour beside another",
        hours(OLDEST, {OLDEST: "7"}, "7 0 0 0 5"),
        _TALLIED,
        done(),
        _W + hours(OLDEST, {OLDEST: "7", HOUR_NOW: COUNTED}, write_counts(COUNTS._replace(delivered=10, rejected=5))),
    ),
    Case(
        "counts of the same hour",
        hours(HOUR_NOW, {HOUR_NOW: COUNTED}, COUNTED),
        _TALLIED,
        done(),
        _W + hours(HOUR_NOW, {HOUR_NOW: _TWICE}, _TWICE),
    ),
    Case(
        "counts beside fewer",
        hours(HOUR_NOW, {HOUR_NOW: "10 20"}),
        _TALLIED,
        done(),
        _W + hours(HOUR_NOW, {HOUR_NOW: write_counts(COUNTS._replace(delivered=13, acked=22))}, COUNTED),
    ),
    Case(
        "counts beside those of a later version",
        hours(HOUR_NOW, {HOUR_NOW: f"{COUNTED} 17"}, f"{COUNTED} 18"),
        presence_call(calls, "w", ENTRY, HourCounts(1)),
        done(),
        _W + hours(HOUR_NOW, {HOUR_NOW: f"{_ONE_MORE} 17"}, f"{_ONE_MORE} 18"),
    ),
    Case(
        "counts at a stop",
        _W,
        presence_call(calls, "w", None, COUNTS),
        done(1),
        hours(HOUR_NOW, {HOUR_NOW: COUNTED}, COUNTED),
    ),
    Case(
        "counts after the clock went back",
        hours(HOUR_NOW + 5, {HOUR_NOW + 5: "1"}),
        _TALLIED,
        done(),
        _W + hours(HOUR_NOW, {HOUR_NOW: COUNTED, HOUR_NOW + 5: "1"}, COUNTED),
    ),
    Case("no counts", hours(OLDEST, {OLDEST: "7"}, "9"), report(), done(), _W + hours(OLDEST, {OLDEST: "7"}, "9")),
    Case(
        "an hour that is too old",
        hours(OLDEST - 1, {OLDEST - 1: "7", OLDEST: "8"}, "15"),
        report(),
        done(),
        _W + hours(OLDEST, {OLDEST: "8"}, "15"),
    ),
    Case(
        "a hundred of the hours that are too old",
        hours(OLDEST - 150, _OLD),
        _TALLIED,
        done(),
        _W + hours(OLDEST - 50, dict(list(_OLD.items())[100:]) | {HOUR_NOW: COUNTED}, COUNTED),
    ),
    # what another program has left
    Case(
        "a first hour that is none",
        hours("x", {HOUR_NOW: "many"}, "much"),
        _TALLIED,
        done(),
        _W + hours(HOUR_NOW, {HOUR_NOW: COUNTED}, COUNTED),
    ),
    Case("an entry without an end", World(workers={"v": "{}"}), report(), done(1), _W),
    Case(
        "an entry without an end, beside others",
        told({"u": 5}) + World(workers={"v": "{}"}),
        report(),
        done(1, before=1, workers=2),
        told({"u": 5}) + _W,
    ),
    Case("its own entry without an end", World(workers={"w": "{}"}), report(), done(1), _W),
    Case(
        "an end without an entry",
        World(beats={"v": 5}),
        report(),
        done(before=1, workers=2),
        World(beats={"v": 5}) + _W,
    ),
    Case("an end without an entry, silent for too long", World(beats={"v": LONG_AGO}), report(), done(), _W),
    Case(
        "as many ends as entries, of others",
        World(beats={"v": 5}, workers={"u": "{}"}),
        stop(),
        done(before=1, workers=2),
        World(beats={"v": 5}, workers={"u": "{}"}),
    ),
]
