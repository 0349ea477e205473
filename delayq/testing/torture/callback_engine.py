"""Base of the engines whose queues have callbacks: how their workers, producers and inspectors use the queue.

A worker drains at SIGTERM and when its standard input ends.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from delayq.broker.requests import Failure
from delayq.broker.transport.executor import open_async_executor
from delayq.options import QueueOptions, read_settings
from delayq.queue.inspecting.counts import Counts
from delayq.testing.torture.engine_interface import Engine, WrongCountError
from delayq.testing.torture.history import EndRecord, Recorder, StartRecord, now
from delayq.testing.torture.process_task import (
    CALL_ERRORS,
    EXIT_SIGNAL,
    TICK,
    ProcessTask,
    ServerClock,
    on_shutdown,
    report_ready,
    tolerate,
)
from delayq.testing.torture.workload import BACKOFF, MAX_BACKOFF, CallbackBehavior, behavior_of
from delayq.values.backoff import Backoff
from delayq.worker.delivery.message import AsyncMessage, Message

CONCURRENCY = 12
HOARD = 20
"""Messages that a worker of one thread holds beside the one that runs."""
ECHO = 0.5
"""Seconds after which a message that was settled is settled again."""
RETRY_PAUSE = 0.05
"""Seconds before a start that was refused is repeated."""
REDRIVE_SHARE = 0.01
"""The share of inspections that redrive the dead letter."""


class CallbackEngine(Engine):
    """An engine whose queues have callbacks."""

    @abstractmethod
    def create(self, task: ProcessTask, options: QueueOptions, *, is_async: bool = False) -> Any:
        """Return the queue, for threads or asyncio."""

    @abstractmethod
    def record(self, queue: Any, recorder: Recorder) -> None:
        """Record the calls of a queue that is not in use yet."""

    @contextmanager
    def open(self, task: ProcessTask, options: QueueOptions, recorder: Recorder | None = None) -> Iterator[Any]:
        with self.create(task, options) as queue:
            if recorder:
                self.record(queue, recorder)
            yield queue

    def record_failure(self, queue: Any, error: Exception) -> None:
        queue._context.calls.failed(error)  # noqa: SLF001 - a queue does not expose its calls

    def inspect(self, queue: Any, chance: random.Random) -> None:
        counts = queue.counts()
        if min(numbers(counts).values()) < 0:
            raise WrongCountError(f"negative count: {counts}")
        queue.dead.list(limit=5)
        if chance.random() < REDRIVE_SHARE:
            queue.dead.redrive(all=True)

    def attach(self, queue: Any, task: ProcessTask, recorder: Recorder) -> None:
        """Process the messages of a queue as their profiles say."""
        clock = ServerClock(task.direct)

        def callback(message: Message[bytes]) -> bool:
            behavior = _start(recorder, message, task, clock(), threading.get_ident())
            time.sleep(behavior.takes)
            recorder.write(EndRecord(at=now(), id=message.id, token=message.token, outcome=behavior.outcome))
            if behavior.method:
                getattr(message, behavior.method)()
            if behavior.repeats:
                time.sleep(ECHO)
                with _tolerated():
                    queue._executor.call(_repeated(queue, message, behavior))  # noqa: SLF001 - a queue does not do that
            return behavior.finish()

        queue.callback(callback)

    def work(self, task: ProcessTask, recorder: Recorder) -> None:
        queue = self.create(task, consumer_options(task))
        self.record(queue, recorder)
        self.attach(queue, task, recorder)
        consuming = None
        while consuming is None:
            try:
                consuming = queue.start_consume()
            except CALL_ERRORS as error:  # a start, unlike a running consumer, waits for nothing
                tolerate(error)
                time.sleep(RETRY_PAUSE)
        signal.signal(signal.SIGTERM, lambda *_: consuming.stop())
        signal.signal(EXIT_SIGNAL, lambda *_: sys.exit())  # the consumer goes on until the interpreter ends
        on_shutdown(consuming.stop)
        report_ready()
        consuming.wait()
        queue.close()

    async def work_async(self, task: ProcessTask, recorder: Recorder) -> None:
        queue = self.create(task, consumer_options(task), is_async=True)
        clock_options = ServerClock.options(task.direct)
        clock = open_async_executor(clock_options, read_settings(clock_options))

        async def callback(message: AsyncMessage[bytes]) -> bool:
            (server,) = await clock.run([ServerClock.command], deadline=0)
            runner = id(asyncio.current_task())
            behavior = _start(recorder, message, task, server if isinstance(server, int) else 0, runner)
            await asyncio.sleep(behavior.takes)
            recorder.write(EndRecord(at=now(), id=message.id, token=message.token, outcome=behavior.outcome))
            if behavior.method:
                await getattr(message, behavior.method)()
            if behavior.repeats:
                await asyncio.sleep(ECHO)
                with _tolerated():
                    await queue._executor.call(_repeated(queue, message, behavior))  # noqa: SLF001 - as above
            return behavior.finish()

        self.record(queue, recorder)
        queue.callback(callback)
        loop, left = asyncio.get_running_loop(), asyncio.Event()
        consuming = None
        while consuming is None:
            try:
                consuming = await queue.start_consume()
            except CALL_ERRORS as error:
                tolerate(error)
                await asyncio.sleep(RETRY_PAUSE)
        loop.add_signal_handler(signal.SIGTERM, consuming.stop)
        loop.add_signal_handler(EXIT_SIGNAL, left.set)
        on_shutdown(lambda: loop.call_soon_threadsafe(consuming.stop))
        report_ready()
        leaving, waiting = asyncio.create_task(left.wait()), asyncio.create_task(consuming.wait())
        await asyncio.wait([leaving, waiting], return_when=asyncio.FIRST_COMPLETED)
        if left.is_set():
            return  # the end of the event loop cancels the consumer and its callbacks
        await waiting
        await queue.close()
        await clock.close()


def consumer_options(task: ProcessTask) -> QueueOptions:
    """Return the options of a worker's queue."""
    nack_delay = Backoff.exponential(BACKOFF, max=MAX_BACKOFF)
    load: Any = {"concurrency": 1, "prefetch": HOARD} if _hoards(task) else {"concurrency": CONCURRENCY}
    return task.options(tick=TICK, nack_delay=nack_delay, grace=3 * task.lease, **load)


def _hoards(task: ProcessTask) -> bool:
    """Return whether a worker holds messages for longer than a lease before it starts them: one of four."""
    return task.number % 4 == 3  # noqa: PLR2004


def _start(recorder: Recorder, message: Any, task: ProcessTask, server: int, runner: int) -> CallbackBehavior:
    """Record that a callback has started, and return how it behaves."""
    at, facts = now(), {"id": message.id, "token": message.token}
    recorder.write(StartRecord(at=at, server=server, lost=message.lease_lost, runner=runner, **facts))
    behavior = behavior_of(message.payload, message.attempt, at, task.lease)
    return behavior._replace(takes=behavior.takes + 1.3 * task.lease / HOARD) if _hoards(task) else behavior


def _repeated(queue: Any, message: Any, behavior: CallbackBehavior) -> Any:
    """Return the call that settles a message by hand once more, as a program that is late may do."""
    calls, receipt = queue._context.calls, message._delivery.receipt  # noqa: SLF001 - a message is settled once
    if behavior.method == "nack":
        return calls.nack([Failure(receipt.id, receipt.token, round(BACKOFF * 1000), "late")])
    return calls.ack([receipt])


@contextmanager
def _tolerated() -> Iterator[None]:
    try:
        yield
    except CALL_ERRORS as error:
        tolerate(error)


def numbers(counts: Counts) -> dict[str, int]:
    """Return the number of messages in each state, by name."""
    return {name: number for name, number in asdict(counts).items() if name != "paused"}
