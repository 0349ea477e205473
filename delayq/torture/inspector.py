"""An inspector of a run, as a process: looks at the queue all the time, and sends dead messages again now and then.

It asserts what must hold at any moment, faults or not: reading never fails but for want of an answer, and no count is
negative.
"""

from __future__ import annotations

import random
import threading
from dataclasses import astuple

from delayq.errors import DelayqError
from delayq.queue import DelayQueue
from delayq.states import State
from delayq.torture.history import Recorder
from delayq.torture.process import at_the_end, bear, read_task, ready, record

EVERY = 0.05
"""Seconds between two looks."""
REDRIVING = 0.01
"""How often a look redrives."""


class WrongCountError(AssertionError):
    """What was read cannot be."""


def look(queue: DelayQueue[bytes], chance: random.Random) -> None:
    """Read whatever can be read."""
    counts, stats = queue.counts(), queue.stats()
    if min(*astuple(counts), *astuple(stats.counts), *stats.totals.values()) < 0:
        raise WrongCountError(f"negative: {counts}, {stats}")
    state = chance.choice(list(State))
    page = queue.list(state, limit=20)
    if any(message.state is not state for message in page.messages):
        raise WrongCountError(f"another state than {state}: {page}")
    for message in page.messages[:3]:
        queue.get(message.id)
    queue.dead.list(limit=5)
    if chance.random() < REDRIVING:
        queue.dead.redrive(everything=True)


def main() -> None:
    """Be an inspector: `python -m delayq.torture.inspector`, with its task in the environment."""
    task = read_task()
    chance = random.Random(f"{task.seed}/inspector-{task.number}")  # noqa: S311 - to be repeated
    gone = threading.Event()
    with Recorder(task.history, task.process) as recorder, DelayQueue(task.queue, **task.options()) as queue:
        calls = record(queue, recorder)
        at_the_end(gone.set)
        ready()
        while not gone.wait(EVERY):
            try:
                look(queue, chance)
            except DelayqError as error:
                bear(calls, error)


if __name__ == "__main__":
    main()
