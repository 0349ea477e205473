"""What the engines with callbacks have in common: workers that consume, and senders and inspectors that bear faults.

Every other worker works in threads, the others in tasks of an event loop. SIGTERM and the end of standard input drain
it.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from delayq.backoff import Backoff
from delayq.config import QueueOptions, read_settings
from delayq.errors import DelayqError
from delayq.executor import open_async_executor
from delayq.message import AsyncMessage, Message
from delayq.torture.history import End, Recorder, Start, now
from delayq.torture.process import TICK, Clock, Task, at_the_end, bear, ready
from delayq.torture.recorded import Telling
from delayq.torture.workload import BACKOFF, LONGEST_BACKOFF, Act, Deed, decide

CONCURRENCY = 12


class Opened:
    """A queue of a producer or an inspector, whose errors are put down and borne."""

    def __init__(self, engine: CallbackEngine, queue: Any, calls: Telling) -> None:
        """Work on `queue`, whose `calls` are recorded."""
        self._engine = engine
        self._queue = queue
        self._calls = calls

    def attempt(self, deed: Deed, dues: list[int]) -> bool:
        """See `Sender.attempt`."""
        try:
            self._engine.do(self._queue, deed, dues)
        except DelayqError as error:
            bear(self._calls, error)
            return False
        return True

    def look(self, chance: random.Random) -> None:
        """See `Inspector.look`."""
        try:
            self._engine.look(self._queue, chance)
        except DelayqError as error:
            bear(self._calls, error)


class CallbackEngine(ABC):
    """An engine whose queues have callbacks."""

    does: frozenset[str]

    @abstractmethod
    def open(self, options: QueueOptions, task: Task) -> Any:
        """Return the queue."""

    @abstractmethod
    def open_async(self, options: QueueOptions, task: Task) -> Any:
        """Return the queue for asyncio."""

    @abstractmethod
    def record(self, queue: Any, recorder: Recorder) -> Telling:
        """Have a queue's calls recorded, before it is used."""

    @abstractmethod
    def do(self, queue: Any, deed: Deed, dues: list[int]) -> None:
        """Do a deed."""

    @abstractmethod
    def look(self, queue: Any, chance: random.Random) -> None:
        """Read whatever can be read."""

    @contextmanager
    def sender(self, task: Task, recorder: Recorder) -> Iterator[Opened]:
        """See `Engine.sender`."""
        with self.open(task.options(), task) as queue:
            yield Opened(self, queue, self.record(queue, recorder))

    inspector = sender
    """See `Engine.inspector`."""

    def attach(self, queue: Any, task: Task, recorder: Recorder) -> None:
        """Have a queue's messages processed by their fates, and its calls recorded."""
        clock = task.clock()

        def callback(message: Message[bytes]) -> bool:
            act = _begin(recorder, message, task.lease, clock())
            if act.takes:
                time.sleep(act.takes)
            recorder.write(End(at=now(), id=message.id, token=message.token, outcome=act.said))
            if act.by_hand:
                getattr(message, act.by_hand)()
            return act.end()

        self.record(queue, recorder)
        queue.callback(callback)

    def work(self, task: Task, recorder: Recorder) -> None:
        """See `Engine.work`."""
        with self.open(consumer_options(task), task) as queue:
            self.attach(queue, task, recorder)
            consuming = queue.start_consume()
            signal.signal(signal.SIGTERM, lambda *_: consuming.stop())
            at_the_end(consuming.stop)
            ready()
            consuming.wait()

    async def work_async(self, task: Task, recorder: Recorder) -> None:
        """See `Engine.work_async`."""
        queue = self.open_async(consumer_options(task), task)
        asking = Clock.options(task.direct)
        clock = open_async_executor(asking, read_settings(asking))

        async def callback(message: AsyncMessage[bytes]) -> bool:
            (server,) = await clock.run([Clock.command], patience=lambda: False)
            act = _begin(recorder, message, task.lease, server if isinstance(server, int) else 0)
            if act.takes:
                await asyncio.sleep(act.takes)
            recorder.write(End(at=now(), id=message.id, token=message.token, outcome=act.said))
            if act.by_hand:
                await getattr(message, act.by_hand)()
            return act.end()

        async with queue:
            self.record(queue, recorder)
            queue.callback(callback)
            loop = asyncio.get_running_loop()
            consuming = await queue.start_consume()
            loop.add_signal_handler(signal.SIGTERM, consuming.stop)
            at_the_end(lambda: loop.call_soon_threadsafe(consuming.stop))
            ready()
            await consuming.wait()
        await clock.close()


def consumer_options(task: Task) -> QueueOptions:
    """Return the options of a worker's queue."""
    return task.options(
        tick=TICK,
        concurrency=CONCURRENCY,
        nack_delay=Backoff.exponential(BACKOFF, max=LONGEST_BACKOFF),
        grace=3 * task.lease,
    )


def _begin(recorder: Recorder, message: Any, lease: float, server: int) -> Act:
    """Put down that a callback has begun, and decide how it ends."""
    at = now()
    recorder.write(Start(at=at, id=message.id, token=message.token, server=server))
    return decide(message.payload, message.attempt, at, lease)
