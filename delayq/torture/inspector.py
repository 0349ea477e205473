"""An inspector of a run, as a process: looks at the queue all the time, and does what its engine's inspector does.

It asserts what must hold at any moment, faults or not: reading never fails but for want of an answer, and no count is
negative.
"""

from __future__ import annotations

import random
import threading

from delayq.torture.engines import ENGINES
from delayq.torture.history import Recorder
from delayq.torture.process import at_the_end, read_task, ready

EVERY = 0.05
"""Seconds between two looks."""


def main() -> None:
    """Be an inspector: `python -m delayq.torture.inspector`, with its task in the environment."""
    task = read_task()
    chance = random.Random(f"{task.seed}/inspector-{task.number}")  # noqa: S311 - to be repeated
    gone = threading.Event()
    with (
        Recorder(task.history, task.process) as recorder,
        ENGINES[task.engine].inspector(task, recorder) as inspector,
    ):
        at_the_end(gone.set)
        ready()
        while not gone.wait(EVERY):
            inspector.look(chance)


if __name__ == "__main__":
    main()
