"""The processes of a run: `python -m delayq.testing.torture.process_roles ROLE`, with the task in the environment.

- A worker processes messages: in threads or, if its number is even, in asyncio tasks.
- A producer sends its share of the messages and cancels, reschedules or replaces some. It does what the guarantees
  ask of users: a send that raised is repeated under the same ids until it returns.
- An inspector reads from the queue all the time. Whatever the faults, a read may fail only for lack of a reply, and
  no count is ever negative.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time

from delayq.testing.torture.engine_registry import ENGINES
from delayq.testing.torture.history import Recorder
from delayq.testing.torture.process_task import (
    ProcessTask,
    ServerClock,
    on_shutdown,
    read_task,
    record_stalls,
    report_ready,
)
from delayq.testing.torture.workload import actions

RETRY_PAUSE = 0.05
"""Seconds before an action that raised is repeated."""
INSPECT_EVERY = 0.05
"""Seconds between two inspections."""


def work(task: ProcessTask, recorder: Recorder) -> None:
    """Run as a worker."""
    engine = ENGINES[task.engine]
    with record_stalls(recorder, task.lease, task.process):
        if task.number % 2:
            engine.work(task, recorder)
        else:
            asyncio.run(engine.work_async(task, recorder))


def produce(task: ProcessTask, recorder: Recorder) -> None:
    """Run as a producer: perform action after action, each at its time."""
    engine, clock, stopped = ENGINES[task.engine], ServerClock(task.direct), threading.Event()
    todo = sorted((one for one in actions(task) if one.what in engine.supported_actions), key=lambda one: one.at)
    with engine.open(task, task.options(), recorder) as queue:
        on_shutdown(stopped.set)
        report_ready()
        began = time.monotonic()
        for action in todo:
            stopped.wait(max(0.0, began + action.at - time.monotonic()))
            if stopped.is_set():
                return
            now = clock.estimate()
            dues = [now + round(ahead * 1000) for ahead in action.ahead]
            while not engine.attempt(engine.perform, queue, action, dues) and not stopped.wait(RETRY_PAUSE):
                pass


def inspect(task: ProcessTask, recorder: Recorder) -> None:
    """Run as an inspector."""
    engine, stopped = ENGINES[task.engine], threading.Event()
    chance = random.Random(f"{task.seed}/inspector-{task.number}")  # noqa: S311 - reproducible, not secret
    with engine.open(task, task.options(), recorder) as queue:
        on_shutdown(stopped.set)
        report_ready()
        while not stopped.wait(INSPECT_EVERY):
            engine.attempt(engine.inspect, queue, chance)


ROLES = {"worker": work, "producer": produce, "inspector": inspect}

if __name__ == "__main__":
    own_task = read_task()
    # Never closed: a worker that ends without stopping records to the last.
    ROLES[sys.argv[1]](own_task, Recorder(own_task.history, own_task.process))
