"""`end_run`: a run of bulk sends is over, or an epoch of it is."""

from __future__ import annotations

from delayq.broker.requests import ScriptCall
from delayq.queue.sweeps.bulk_runs import MAX_RUNS, RunRecord, end_run_call
from tests.lua.cases.states import CROWD, logged
from tests.support.scripts import NOW, Case, World, calls


def end(
    run: str = "r", *, state: str = "committed", epoch: int = -1, refused: int = 0, texts: str = ""
) -> ScriptCall[RunRecord]:
    return end_run_call(calls, run, state=state, epoch=epoch, refused=refused, refusals=texts.encode())


def ended(state: str, *numbers: int, started: int = 0, epoch: int = -1) -> RunRecord:
    """Return what a run that ends at `NOW` answers; the numbers from `new` to `refused`."""
    return RunRecord(state, NOW + started, NOW, epoch, *(numbers or (0,) * 6))


_WRITTEN = World(runs={"r": "writing -50 - -1 5 4 3 2 1 0", "other": "writing -60 - -1 1 1 1 1 1 1"})


def _left(record: str, **refusals: str) -> World:
    return _WRITTEN.but(runs=_WRITTEN.runs | {"r": record}, refusals=refusals)


def _once_and_again() -> list[Case]:
    return [
        Case(
            "a run that sent nothing",
            World(),
            end(),
            ended("committed"),
            World(runs={"r": "committed 0 0 -1 0 0 0 0 0 0"}),
        ),
        Case(
            "committed",
            _WRITTEN + CROWD,
            end(),
            ended("committed", 5, 4, 3, 2, 1, 0, started=-50),
            _left("committed -50 0 -1 5 4 3 2 1 0") + CROWD,
        ),
        Case(
            "aborted",
            _WRITTEN,
            end(state="aborted"),
            ended("aborted", 5, 4, 3, 2, 1, 0, started=-50),
            _left("aborted -50 0 -1 5 4 3 2 1 0"),
        ),
        Case(
            "with what was refused",
            _WRITTEN,
            end(refused=7, texts="[no]"),
            ended("committed", 5, 4, 3, 2, 1, 7, started=-50),
            _left("committed -50 0 -1 5 4 3 2 1 7", r="[no]"),
        ),
        Case(
            "ended before: the refused are added, the last list is kept",
            _left("aborted -50 -40 -1 5 4 3 2 1 6", r="[old]", other="[else]"),
            end(refused=1, texts="[new]"),
            ended("committed", 5, 4, 3, 2, 1, 7, started=-50),
            _left("committed -50 0 -1 5 4 3 2 1 7", r="[new]", other="[else]"),
        ),
        Case(
            "nothing refused: the list stays",
            _left("committed -50 -40 -1 5 4 3 2 1 6", r="[old]"),
            end(),
            ended("committed", 5, 4, 3, 2, 1, 6, started=-50),
            _left("committed -50 0 -1 5 4 3 2 1 6", r="[old]"),
        ),
    ]


def _epochs() -> list[Case]:
    fourth = _left("committed -50 -40 4 5 4 3 2 1 6", r="[old]")

    def case(name: str, epoch: int, kept: int, refused: int, texts: str) -> Case:
        return Case(
            name,
            fourth,
            end(epoch=epoch, refused=1, texts="[new]"),
            ended("committed", 5, 4, 3, 2, 1, refused, started=-50, epoch=kept),
            _left(f"committed -50 0 {kept} 5 4 3 2 1 {refused}", r=texts),
        )

    return [
        case("the next epoch counts", 5, 5, 7, "[new]"),
        case("a later epoch counts", 9, 9, 7, "[new]"),
        case("the same epoch counts once", 4, 4, 6, "[old]"),
        case("an earlier epoch has been counted", 0, 4, 6, "[old]"),
        case("no epoch counts, and takes none back", -1, 4, 7, "[new]"),
        Case(
            "the first epoch is 0",
            _WRITTEN,
            end(epoch=0, refused=3),
            ended("committed", 5, 4, 3, 2, 1, 3, started=-50, epoch=0),
            _left("committed -50 0 0 5 4 3 2 1 3"),
        ),
        Case(
            "an epoch as large as may be",
            _WRITTEN,
            end(epoch=2**53, refused=2**53),
            ended("committed", 5, 4, 3, 2, 1, 2**53, started=-50, epoch=2**53),
            _left(f"committed -50 0 {2**53} 5 4 3 2 1 {2**53}"),
        ),
    ]


def _forgotten() -> list[Case]:
    most = {f"r{n}": f"committed -{n + 1} -{n} -1 0 0 0 0 0 0" for n in range(1, MAX_RUNS + 1)}
    first = f"r{MAX_RUNS}"
    kept = {run: record for run, record in most.items() if run != first}
    unended = {run: record.replace(f"-{run[1:]} -1", "- -1") for run, record in most.items()}
    new = {"r": "committed 0 0 -1 0 0 0 0 0 0"}
    return [
        Case("as many as may be kept", World(runs=kept), end(), ended("committed"), World(runs=kept | new)),
        Case(
            "too many: the one that ended first goes, and what was refused in it",
            World(runs=most, refusals={first: "[first]", "r1": "[1]"}),
            end(),
            ended("committed"),
            World(runs=kept | new, refusals={"r1": "[1]"}),
        ),
        Case(
            "too many: one that has not ended stays, though it began first",
            World(runs=most | {first: f"writing -{10 * MAX_RUNS} - -1 0 0 0 0 0 0"}),
            end(),
            ended("committed"),
            World(
                runs={run: record for run, record in most.items() if run not in (first, f"r{MAX_RUNS - 1}")}
                | {first: f"writing -{10 * MAX_RUNS} - -1 0 0 0 0 0 0"}
                | new
            ),
        ),
        Case("none has ended but this", World(runs=unended), end(), ended("committed"), World(runs=unended | new)),
    ]


CASES = [*_once_and_again(), *_epochs(), *_forgotten()]
CASES += logged(CASES, {"with what was refused": []})
