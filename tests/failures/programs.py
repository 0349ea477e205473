"""Programs that a test starts as processes, to freeze and kill them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.faces import Blocking
from tests.support.processes import Process

SOURCE = str(Path(__file__).parents[2])


one_face = pytest.mark.parametrize("face", [Blocking], indirect=True, ids=["blocking"])
"""For tests that run their subject in another process."""


def assert_soon(measure: Callable[[int], float], seconds: float, tries: int = 3) -> None:
    """Assert a duration limit: a busy machine may exceed it once, a defect exceeds it every time."""
    took = []
    for number in range(tries):
        took.append(measure(number))
        if took[-1] < seconds:
            return
    raise AssertionError(f"not once within {seconds} s, but {took}")


@contextmanager
def program(script: str, *arguments: str, **variables: str) -> Iterator[Process]:
    """Start a Python script with text output, and with environment variables; it is ended at the end."""
    process = Process(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | {"PYTHONPATH": SOURCE} | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()
