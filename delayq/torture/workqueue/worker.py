"""A worker of a work queue: it leases, works and completes, and cleans now and then, as whoever likes may.

What it does is a flow, which yields what to ask of the queue and how long to wait; threads carry several out, or tasks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, NamedTuple
from zlib import crc32

from redis.exceptions import OutOfMemoryError, RedisError, ResponseError

from delayq.operation import Pause
from delayq.torture.history import End, Recorder, Start, now
from delayq.torture.process import TICK, Task
from delayq.torture.workload import Fate, fate_of
from delayq.torture.workqueue.recorded import DELIVERED
from delayq.workqueue import Item

FATES = {
    "good": Fate(8780),
    "slow": Fate(800, takes=(0.005, 0.03)),
    "drops": Fate(300, how="drop"),
    "twice": Fate(100, says="twice"),
    "long": Fate(20, leases=1.3),
}
"""What becomes of an item: half of its deliveries are dropped, it is completed twice, or after its lease."""
HALF = 0.5
CONCURRENCY = 4
PAUSE = 0.05
"""Seconds after which what raised is done again."""
DEEP = 8
"""Of so many cleans one is deep."""


class Ask(NamedTuple):
    """A call of a method of the queue."""

    method: str
    args: tuple[Any, ...] = ()


Flow = Generator[Ask | Pause, Any, None]


def expect(error: RedisError) -> None:
    """Raise anew what no fault explains; a full memory and a full disk are refused as such."""
    if isinstance(error, ResponseError) and not isinstance(error, OutOfMemoryError) and "MISCONF" not in str(error):
        raise error


def draw(token: int) -> float:
    """Return a number from 0 to 1 for a delivery."""
    return crc32(b"%d" % token) % 100 / 100


def consume(task: Task, recorder: Recorder, gone: Callable[[], bool]) -> Flow:
    """Work until all is gone."""
    while not gone():
        item: Item | None = yield from _borne(Ask("lease", (task.lease, True, TICK)))
        if item is None:
            continue
        token, fate = DELIVERED.get(), fate_of(item.data(), FATES)
        recorder.write(Start(at=now(), id=item.id(), token=token))
        shortest, longest = fate.takes
        yield Pause(shortest + (longest - shortest) * draw(token) + fate.leases * task.lease)
        dropped = fate.how == "drop" and draw(token) < HALF
        kept = not dropped and not fate.leases
        recorder.write(End(at=now(), id=item.id(), token=token, outcome="acked" if kept else "failed"))
        for _ in range(0 if dropped else 2 if fate.says == "twice" else 1):
            while (yield from _borne(Ask("complete", (item,)))) is None and not gone():
                pass


def clean(task: Task, gone: Callable[[], bool]) -> Flow:
    """Clean a few times in a lease."""
    number = task.number
    while not gone():
        number += 1
        yield Pause(task.lease / 6)
        yield from _borne(Ask("light_clean" if number % DEEP else "deep_clean"))


def _borne(ask: Ask) -> Generator[Ask | Pause, Any, Any]:
    """Return the answer; None, after a rest, if it raised what a fault explains."""
    try:
        return (yield ask)
    except RedisError as error:
        expect(error)
    yield Pause(PAUSE)
    return None


def flows(task: Task, recorder: Recorder, gone: Callable[[], bool]) -> list[Flow]:
    """Return all that a worker does at a time."""
    return [*(consume(task, recorder, gone) for _ in range(CONCURRENCY)), clean(task, gone)]


def work(flows: list[Flow], queue: Any, db: Any, gone: Callable[[], None]) -> None:
    """Carry out flows, each with a thread, until they end; if one raises, all are told to be `gone`."""
    with ThreadPoolExecutor(len(flows)) as pool:
        running = [pool.submit(_drive, flow, queue, db) for flow in flows]
        wait(running, return_when=FIRST_EXCEPTION)
        gone()
    for one in running:
        one.result()


def _drive(flow: Flow, queue: Any, db: Any) -> None:
    go, answer = flow.send, None
    while True:
        try:
            step = go(answer)
        except StopIteration:
            return
        go, answer = flow.send, None
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            continue
        try:
            answer = getattr(queue, step.method)(db, *step.args)
        except RedisError as error:
            go, answer = flow.throw, error


async def work_async(flows: list[Flow], queue: Any, db: Any, gone: Callable[[], None]) -> None:
    """Carry out flows, each with a task, as `work` does."""
    running = [asyncio.create_task(_drive_async(flow, queue, db)) for flow in flows]
    await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
    gone()
    await asyncio.gather(*running)


async def _drive_async(flow: Flow, queue: Any, db: Any) -> None:
    go, answer = flow.send, None
    while True:
        try:
            step = go(answer)
        except StopIteration:
            return
        go, answer = flow.send, None
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            continue
        try:
            answer = await getattr(queue, step.method)(db, *step.args)
        except RedisError as error:
            go, answer = flow.throw, error
