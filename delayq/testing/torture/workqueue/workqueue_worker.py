"""A worker of a work queue: it leases, processes and completes items, and cleans now and then, as any user may.

What it does is written once, as coroutines. Tasks run them on an asyncio client; threads run them on a blocking one,
where nothing is ever awaited.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from redis.exceptions import RedisError

from delayq.testing.torture.history import EndRecord, Recorder, StartRecord, now
from delayq.testing.torture.process_task import TICK, ProcessTask, tolerate
from delayq.testing.torture.workload import MessageProfile, profile_of
from delayq.testing.torture.workqueue.recorded_workqueue import DELIVERED
from delayq.workqueue import Item

PROFILES = {
    "good": MessageProfile(8780),
    "slow": MessageProfile(800, takes=(0.005, 0.03)),
    "drops": MessageProfile(300, failure="drop"),
    "twice": MessageProfile(100, success="twice"),
    "long": MessageProfile(20, leases=1.3),
}
"""How items behave: half of the deliveries are dropped, it is completed twice, or after its lease."""
HALF = 0.5
CONCURRENCY = 4
RETRY_PAUSE = 0.05
"""Seconds after a call that raised."""
DEEP_EVERY = 8
"""Every so many cleans one is deep."""


def fraction_of(token: int) -> float:
    """Return a number from 0 to 1 for a delivery."""
    return crc32(b"%d" % token) % 100 / 100


@dataclass(frozen=True, slots=True)
class WorkQueueWorker:
    """Works on a queue until it is stopped, or one of its jobs raises."""

    task: ProcessTask
    recorder: Recorder
    queue: Any
    db: Any
    """A blocking client or one for asyncio, as the queue needs it."""
    stopped: threading.Event

    def run(self) -> None:
        """Work in threads, a job and an event loop each."""
        jobs = self._jobs()
        with ThreadPoolExecutor(len(jobs)) as pool:
            running = [pool.submit(asyncio.run, job) for job in jobs]
            wait(running, return_when=FIRST_EXCEPTION)
            self.stopped.set()
        for future in running:
            future.result()

    async def run_async(self) -> None:
        """Work in tasks."""
        running = [asyncio.create_task(job) for job in self._jobs()]
        await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
        self.stopped.set()
        await asyncio.gather(*running)

    def _jobs(self) -> list[Coroutine[Any, Any, None]]:
        return [*(self._consume() for _ in range(CONCURRENCY)), self._clean()]

    async def _consume(self) -> None:
        while not self.stopped.is_set():
            item: Item | None = await self._call("lease", self.task.lease, True, TICK)  # noqa: FBT003 - to block
            if item is None:
                continue
            token, profile = DELIVERED.get(), profile_of(item.data(), PROFILES)
            self.recorder.write(StartRecord(at=now(), id=item.id(), token=token))
            drawn = fraction_of(token)
            await asyncio.sleep(profile.duration(drawn, self.task.lease))
            dropped = profile.failure == "drop" and drawn < HALF
            outcome: Any = "failed" if dropped or profile.leases else "acked"
            self.recorder.write(EndRecord(at=now(), id=item.id(), token=token, outcome=outcome))
            for _ in range(0 if dropped else 2 if profile.success == "twice" else 1):
                while await self._call("complete", item) is None and not self.stopped.is_set():
                    pass

    async def _clean(self) -> None:
        number = self.task.number
        while not self.stopped.is_set():
            number += 1
            await asyncio.sleep(self.task.lease / 6)
            await self._call("light_clean" if number % DEEP_EVERY else "deep_clean")

    async def _call(self, method: str, *args: Any) -> Any:
        """Call a method of the queue; return None, after a pause, if it raised what a fault explains."""
        try:
            result = getattr(self.queue, method)(self.db, *args)
            return await result if inspect.isawaitable(result) else result
        except RedisError as error:
            tolerate(error)
        await asyncio.sleep(RETRY_PAUSE)
        return None
