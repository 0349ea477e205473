"""`beat`: what consumers tell of themselves, and what becomes of it when they are silent."""

from __future__ import annotations

from collections.abc import Mapping

from delayq.broker.requests import ScriptCall
from delayq.broker.worker_calls import SILENT_KEPT
from delayq.broker.worker_entries import WorkerEntry, write_entry
from tests.lua.cases.states import CROWD
from tests.support.scripts import Case, World, calls

ENTRY = WorkerEntry("host", 7, "1.0", ["tables"], 1, 10, 10_000, 500, 2, [("a", 30)])
TEXT = write_entry(ENTRY).decode()
LASTS, LONG_AGO = 30_000, -SILENT_KEPT


def beat(consumer: str = "w") -> ScriptCall[int]:
    return calls.beat(consumer, ENTRY)


def stop(consumer: str = "w") -> ScriptCall[int]:
    return calls.beat(consumer, None)


def told(ends: Mapping[str, int], text: str = "{}") -> World:
    """Return consumers with the ends of their entries, in milliseconds from now."""
    return World(workers=dict.fromkeys(ends, text), beats=dict(ends))


_W = told({"w": LASTS}, TEXT)
_MANY = {f"x{number:03}": LONG_AGO - 200 + number for number in range(150)}
_REST = dict(list(_MANY.items())[100:])

CASES = [
    Case("the first", World(), beat(), 0, _W),
    Case("beside messages", CROWD, beat(), 0, CROWD + _W),
    Case("again", told({"w": 5}), beat(), 0, _W),
    Case("beside another", told({"v": 5}), beat(), 0, told({"v": 5}) + _W),
    Case("after a silence", told({"w": -5}), beat(), 0, _W),
    Case("after a long silence", told({"w": LONG_AGO}), beat(), 1, _W),
    Case("another is silent", told({"v": -1}), beat(), 0, told({"v": -1}) + _W),
    Case("another is silent for almost too long", told({"v": LONG_AGO + 1}), beat(), 0, told({"v": LONG_AGO + 1}) + _W),
    Case("another is silent for too long", told({"v": LONG_AGO}), beat(), 1, _W),
    Case("a hundred of those who are silent for too long", told(_MANY), beat(), 100, told(_REST) + _W),
    # a stop
    Case("a stop", _W, stop(), 1, World()),
    Case("a stop beside another", _W + told({"v": 5}), stop(), 1, told({"v": 5})),
    Case("a stop of one that has not told", told({"v": 5}), stop(), 0, told({"v": 5})),
    Case("a stop of one that has not told, alone", World(), stop(), 0, World()),
    Case("a stop when another is silent for too long", _W + told({"v": LONG_AGO}), stop(), 2, World()),
    Case("a stop after a long silence", told({"w": LONG_AGO}), stop(), 1, World()),
    # what another program has left
    Case("an entry without an end", World(workers={"v": "{}"}), beat(), 1, _W),
    Case(
        "an entry without an end, beside others",
        told({"u": 5}) + World(workers={"v": "{}"}),
        beat(),
        1,
        told({"u": 5}) + _W,
    ),
    Case("its own entry without an end", World(workers={"w": "{}"}), beat(), 1, _W),
    Case("an end without an entry", World(beats={"v": 5}), beat(), 0, World(beats={"v": 5}) + _W),
    Case("an end without an entry, silent for too long", World(beats={"v": LONG_AGO}), beat(), 0, _W),
    Case(
        "as many ends as entries, of others",
        World(beats={"v": 5}, workers={"u": "{}"}),
        stop(),
        0,
        World(beats={"v": 5}, workers={"u": "{}"}),
    ),
]
