"""The tables of all mutating scripts: those that execute once, which is all but `wake`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import delayq
from delayq.script import script
from tests.support.scripts import Case

LUA = Path(delayq.__file__).parent / "lua"
SCRIPTS = sorted(path.stem for path in LUA.glob("*.lua"))
MUTATING = [name for name in SCRIPTS if script(name).executes_once]
TABLES: dict[str, list[Case]] = {name: import_module(f"tests.lua.cases.{name}").CASES for name in MUTATING}


def parameters(*, refused: bool = True) -> list[Any]:
    """Return every case of every table as a parameter; without those that are an error if `refused` is false."""
    return [
        pytest.param(case, id=f"{name}: {case.name}")
        for name, cases in TABLES.items()
        for case in cases
        if refused or not isinstance(case.answer, type)
    ]
