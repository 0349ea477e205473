"""Replaces scripts by mutants and runs tests until one fails."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple, Self

import pytest
import redis

from delayq.broker import scripts
from delayq.errors import OutcomeUnknown, UnavailableError
from tests.lua.tables import SCRIPTS
from tests.model.running import run
from tests.mutation.checks import Check, Stage, all_checks
from tests.mutation.mutants import Mutant, source
from tests.support.lua_files import in_place

NOT_IN_STATE_MACHINE = {
    *(
        "begin_run",
        "configure",
        "end_run",
        "forecast",
        "get",
        "keep_plan",
        "page",
        "recount",
        "repair",
        "repair_dead",
        "sample_names",
        "snapshot",
        "wake",
    ),
    *("stage", "commit_staged"),
    *("withdraw", "presence", "keep_presence", "workers_page", "history", "remove", "rekey"),
    *("rekey_page", "dead_import", "edit", "forget", "forget_events", "kept_ids"),
    *("move_out", "move_in", "deaths_out", "deaths_in", "schedules_out", "schedules_in", "moved", "repartition"),
    *("spill", "restore", "file_spilled", "merge_files", "drop_changes"),
}
"""Scripts that the state machine does not call, or only at the start."""
FAILED = (Exception, pytest.fail.Exception)


class Verdict(NamedTuple):
    """The test that killed a mutant, or None."""

    mutant: Mutant
    killer: str | None


class MutantRunner:
    """Runs mutants on separate servers, with the checks that use them and then with the state machine."""

    def __init__(self, *, steps: int) -> None:
        """`steps` are those of the state machine, which ends at the first failure."""
        self._steps = steps
        self._stage = Stage()
        self._checks = all_checks()

    def __enter__(self) -> Self:
        self._stage.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stage.__exit__(*exc)

    def run_all(self, mutants: Iterable[Mutant]) -> Iterator[Verdict]:
        """Return a verdict for each mutant. Mutants that the server cannot compile are left out."""
        for file, of_one in itertools.groupby(mutants, key=lambda mutant: mutant.file):
            users = {name for name in SCRIPTS if source(file).encode() in scripts.script(name).text}
            checks = [check for check in self._checks if users & check.scripts]
            checks.sort(key=lambda check: (check.is_heavy, not check.is_of_a_table))
            for mutant in of_one:
                with in_place(mutant.file, mutant.text), self._stage.shared_executor():
                    if self._loads(mutant):
                        machine = self._machine if users - NOT_IN_STATE_MACHINE else lambda: None
                        yield Verdict(mutant, self._killer(checks) or machine())

    def _loads(self, mutant: Mutant) -> bool:
        user = next(scripts.script(name) for name in SCRIPTS if mutant.text.encode() in scripts.script(name).text)
        try:
            self._stage.clients[0].script_load(user.text)
        except redis.ResponseError:
            return False
        return True

    def _killer(self, checks: list[Check]) -> str | None:
        """Return the name of the first failing check; it runs first for the next, similar mutant."""
        for n, check in enumerate(checks):
            if self._fails(partial(self._stage.call, check)):
                if not check.is_heavy:
                    checks.insert(0, checks.pop(n))
                return check.name
        return None

    def _machine(self) -> str | None:
        play = partial(run, self._stage.executor, self._steps, shrink=False)
        return "state machine" if self._fails(play) else None

    def _fails(self, play: Callable[[], None]) -> bool:
        """Return whether a check fails, ignoring time-outs of a slow machine."""
        for _ in range(3):
            try:
                play()
            except FAILED as error:
                if self._stage.is_stuck() or not isinstance(error, UnavailableError | OutcomeUnknown):
                    return True
            else:
                return False
        return True
