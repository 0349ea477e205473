"""The case tables of all scripts that execute once."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import delayq
from delayq.broker.replies import TurnReply
from delayq.broker.scripts import names, read_all, script
from tests.support.scripts import Case

LUA = Path(delayq.__file__).parent / "broker" / "lua"
TEXTS = dict(read_all(""))
"""The scripts and fragments as they are, also while another text is in the place of one."""
SCRIPTS = list(names())
MUTATING = [name for name in SCRIPTS if script(name).executes_once]
TABLES: dict[str, list[Case]] = {name: import_module(f"tests.lua.cases.{name}").CASES for name in MUTATING}


def with_log(case: Case) -> Case:
    """Return what a case comes to in a queue with an event log, which a turn leaves to other scripts."""
    return replace(case, reply=TurnReply("", None), after=case.before) if case.call.script.name == "turn" else case


def parameters(*, refused: bool = True) -> list[Any]:
    """Return every case of every table as a parameter, without those that raise if `refused` is false."""
    return [
        pytest.param(case, id=f"{name}: {case.name}")
        for name, cases in TABLES.items()
        for case in cases
        if refused or not isinstance(case.reply, type)
    ]


def every_case(*, refused: bool = True, some: int = 1) -> pytest.MarkDecorator:
    """Run a test for every case, as one test for each script; with `some=4`, most cases in the long tests."""
    return pytest.mark.table("case", parameters(refused=refused), apart=lambda name: name.partition(":")[0], some=some)


on_both = pytest.mark.parametrize(
    "executor", ["redis", "embedded, sample", pytest.param("embedded", marks=pytest.mark.torture)], indirect=True
)
"""Runs a table test with all rows on the real server and a sample on the embedded one; `make torture` uses all rows."""
