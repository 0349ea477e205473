"""A worker of a run, as a process: `python -m delayq.torture.worker`, with its task in the environment.

Every other one works in threads, the others in tasks of an event loop. SIGTERM and the end of standard input drain it.
"""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

from delayq.backoff import Backoff
from delayq.config import QueueOptions, read_settings
from delayq.executor import open_async_executor
from delayq.message import AsyncMessage, Message
from delayq.queue import AsyncDelayQueue, DelayQueue
from delayq.torture.history import End, Recorder, Start, now
from delayq.torture.process import Clock, Task, at_the_end, read_task, ready, record, watch
from delayq.torture.workload import BACKOFF, LONGEST_BACKOFF, Act, decide

CONCURRENCY = 12
TICK = 0.25
"""Seconds: a run waits for what comes back, so it looks more often than by default."""


def options(task: Task) -> QueueOptions:
    """Return the options of a worker's queue."""
    return task.options(
        tick=TICK,
        concurrency=CONCURRENCY,
        nack_delay=Backoff.exponential(BACKOFF, max=LONGEST_BACKOFF),
        grace=3 * task.lease,
    )


def begin(recorder: Recorder, message: Any, lease: float, server: int) -> Act:
    """Put down that a callback has begun, and decide how it ends."""
    recorder.write(Start(at=now(), id=message.id, token=message.token, server=server))
    return decide(message.payload, message.attempt, message.token, lease)


def work(task: Task, recorder: Recorder) -> None:
    """Consume with threads."""
    clock = task.clock()

    def callback(message: Message[bytes]) -> bool:
        act = begin(recorder, message, task.lease, clock())
        if act.takes:
            time.sleep(act.takes)
        recorder.write(End(at=now(), id=message.id, token=message.token, outcome=act.said))
        if act.by_hand:
            getattr(message, act.by_hand)()
        return act.end()

    with DelayQueue(task.queue, callback=callback, **options(task)) as queue:
        record(queue, recorder)
        consuming = queue.start_consume()
        signal.signal(signal.SIGTERM, lambda *_: consuming.stop())
        at_the_end(consuming.stop)
        ready()
        consuming.wait()


async def work_async(task: Task, recorder: Recorder) -> None:
    """Consume with tasks."""
    queue: AsyncDelayQueue[bytes] = AsyncDelayQueue(task.queue, **options(task))
    asking = Clock.options(task.direct)
    clock = open_async_executor(asking, read_settings(asking))

    @queue.callback
    async def callback(message: AsyncMessage[bytes]) -> bool:
        (server,) = await clock.run([Clock.command], patience=lambda: False)
        act = begin(recorder, message, task.lease, server if isinstance(server, int) else 0)
        if act.takes:
            await asyncio.sleep(act.takes)
        recorder.write(End(at=now(), id=message.id, token=message.token, outcome=act.said))
        if act.by_hand:
            await getattr(message, act.by_hand)()
        return act.end()

    async with queue:
        record(queue, recorder)
        loop = asyncio.get_running_loop()
        consuming = await queue.start_consume()
        loop.add_signal_handler(signal.SIGTERM, consuming.stop)
        at_the_end(lambda: loop.call_soon_threadsafe(consuming.stop))
        ready()
        await consuming.wait()
    await clock.close()


def main() -> None:
    """Be a worker."""
    task = read_task()
    with Recorder(task.history, task.process) as recorder, watch(recorder, task.lease, task.process):
        if task.number % 2:
            work(task, recorder)
        else:
            asyncio.run(work_async(task, recorder))


if __name__ == "__main__":
    main()
