"""A worker of a run, as a process: `python -m delayq.torture.worker`, with its task in the environment.

Every other one works in threads, the others in tasks of an event loop.
"""

from __future__ import annotations

import asyncio

from delayq.torture.engines import ENGINES
from delayq.torture.history import Recorder
from delayq.torture.process import read_task, watch


def main() -> None:
    """Be a worker."""
    task = read_task()
    engine = ENGINES[task.engine]
    with Recorder(task.history, task.process) as recorder, watch(recorder, task.lease, task.process):
        if task.number % 2:
            engine.work(task, recorder)
        else:
            asyncio.run(engine.work_async(task, recorder))


if __name__ == "__main__":
    main()
