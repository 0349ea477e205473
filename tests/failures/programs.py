"""Programs that a test starts as processes of their own, to freeze and to kill them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.faces import Blocking

SOURCE = str(Path(__file__).parents[2])


one_face = pytest.mark.parametrize("face", [Blocking], indirect=True, ids=["blocking"])
"""For a test in which what is shown happens in a process of its own."""


def assert_soon(measure: Callable[[int], float], seconds: float, tries: int = 3) -> None:
    """Assert that something takes less than so long: a busy machine may be late once, a mistake is late every time."""
    took = []
    for number in range(tries):
        took.append(measure(number))
        if took[-1] < seconds:
            return
    raise AssertionError(f"not once within {seconds} s, but {took}")


@contextmanager
def program(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start Python on a script; what it prints is read as text, and it is gone at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | {"PYTHONPATH": SOURCE},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()
