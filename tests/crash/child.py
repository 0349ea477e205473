"""A process that is killed in the midst of an operation: URL, name of the operation, command, side."""

from __future__ import annotations

import sys

from tests.crash.cuts import Cut, Cutter, killed
from tests.crash.operations import BY_NAME, OCCURRENCE, begun


def main() -> None:
    """Do what the arguments say; never returns."""
    url, name, at, cut = sys.argv[1:]
    operation, cutter = BY_NAME[name], Cutter()
    with begun(url, operation, cutter) as (queue, prepared):
        cutter.arm(int(at), Cut(cut), ends=killed)
        operation.act(queue, prepared)
        if operation is OCCURRENCE:  # how many commands it takes depends on the time
            killed()
    raise AssertionError(f"{name} has ended before command {at}")
