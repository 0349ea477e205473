"""`begin_run`: a run of bulk sends begins, or is resumed."""

from __future__ import annotations

from delayq.broker.requests import ScriptCall
from delayq.queue.sweeps.bulk_runs import RunRecord, begin_run_call
from tests.lua.cases.states import CROWD, logged
from tests.support.scripts import NOW, Case, World, calls

_NONE = (0,) * 6
_COUNTS = (5, 4, 3, 2, 1, 6)


def begin(start: int | None = None, until: int | None = None, source: str = "files") -> ScriptCall[RunRecord]:
    return begin_run_call(calls, "r", start=start, until=until, source=source)


def _left(record: str) -> World:
    return World(runs={"r": record, "other": "writing -60 - -1 1 1 1 1 1 1 7 - -"})


def _spans(name: str, known: str, start: int | None, until: int | None, spanned: str) -> Case:
    ends = [None if text == "-" else int(text) for text in spanned.split()]
    return Case(
        f"resumed: {name}",
        _left(f"aborted -50 -40 -1 5 4 3 2 1 6 {known} old"),
        begin(start, until, "new"),
        RunRecord("writing", NOW - 50, 0, -1, *_COUNTS, *ends, "new"),
        _left(f"writing -50 - -1 5 4 3 2 1 6 {spanned} new"),
    )


CASES = [
    Case(
        "new",
        CROWD,
        begin(10, 20),
        RunRecord("writing", NOW, 0, -1, *_NONE, 10, 20, "files"),
        World(runs={"r": "writing 0 - -1 0 0 0 0 0 0 10 20 files"}) + CROWD,
    ),
    Case(
        "new, without limits",
        World(),
        begin(source="-"),
        RunRecord("writing", NOW, 0, -1, *_NONE, None, None, "-"),
        World(runs={"r": "writing 0 - -1 0 0 0 0 0 0 - - -"}),
    ),
    Case(
        "resumed: it had no horizon",
        _left("committed -50 -40 7 5 4 3 2 1 6"),
        begin(10, 20),
        RunRecord("writing", NOW - 50, 0, 7, *_COUNTS, 10, 20, "files"),
        _left("writing -50 - 7 5 4 3 2 1 6 10 20 files"),
    ),
    _spans("the same", "10 20", 10, 20, "10 20"),
    _spans("a wider one", "10 20", 9, 100, "9 100"),
    _spans("a smaller one", "9 100", 10, 20, "9 100"),
    _spans("no limits now", "10 20", None, None, "- -"),
    _spans("no limits before", "- -", 10, 20, "- -"),
    _spans("no start", "- 20", 10, 21, "- 21"),
    _spans("large times", f"{2**52} {2**53 - 1}", 2**52 + 1, 2**53, f"{2**52} {2**53}"),
]
CASES += logged(CASES, {"new": []})
