"""Group commit: concurrent sends share round trips; a lone sender is never delayed.

The first send goes out at once, alone. The sends that arrive before its reply go out together in the next call, and so
on. Over a network, several calls are under way at a time, so that a send does not pay the latency twice. A send with
`replace`, or to a queue with a `max_length`, always goes alone: the other messages of a call could change its result.
"""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Awaitable, Callable
from copy import copy
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from delayq.broker.batches import BATCH
from delayq.broker.requests import Outgoing, Replace
from delayq.broker.transport.operation import Operation
from delayq.errors import NotReplicatedError, OutcomeUnknown, QueueFullError
from delayq.queue.sending.producer import BATCH_BYTES, Producer, Sent
from delayq.safe_log import SafeLog
from delayq.values.times import Latency, monotonic
from delayq.worker.drivers.own_threads import OwnThreads, start_task

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor

log = SafeLog("delayq.queue")

MAX_WAIT = 0.1
"""Seconds a send waits for the one before it; after that, Redis may be down and it goes alone."""
IDLE_TIMEOUT = 1.0
"""Seconds without work after which a thread that stores waiting sends ends."""
CALL_EVERY = 0.0005
"""Seconds of a round trip for each call under way: on one machine, a round trip takes less."""
MESSAGE_TIME = 0.00003
"""Seconds that a message adds to a call at most, without any latency."""
MAX_CALLS = 8
"""Calls under way at a time."""


def _max_calls(latency: Latency) -> int:
    """Return how many calls may be under way: one where the server is near, more where a round trip takes long."""
    return min(MAX_CALLS, max(1, int(latency.seconds / CALL_EVERY)))


class _WaitingSend:
    """A send that waits for the one before it."""

    __slots__ = ("claim", "done", "error", "outgoing", "sent")

    def __init__(self, outgoing: Outgoing) -> None:
        self.outgoing = outgoing
        self.sent: Sent | None = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()
        self.claim = threading.Lock()
        """Taken by the first: the thread that stores the message, or the sender that stops waiting."""


class GroupCommit:
    """The sends of the threads that share a queue."""

    def __init__(self, producer: Producer, perform: Callable[[Operation[list[Sent]]], list[Sent]]) -> None:
        self._producer = producer
        self._perform = perform
        self._own_threads = OwnThreads(self._on_death)
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._waiting: SimpleQueue[_WaitingSend] = SimpleQueue()
        self._latency = Latency(MESSAGE_TIME)
        """That of calls beside which no other was under way."""
        self._lock = threading.RLock()  # reentrant: a signal handler may send
        """Guards the counts below."""
        self._changing = threading.Condition(self._lock)
        """Notified when a call has ended."""
        self._under_way = 0
        self._workers = 0
        """Threads that store waiting sends."""
        self._gathering = 0
        """How many of them wait for a call to end."""

    def send(self, outgoing: Outgoing, *, replace: Replace) -> Sent:
        """Send a message, alone or together with others."""
        warn_in_event_loop()
        if replace or self._producer.is_limited:
            return self._alone(outgoing, replace=replace)
        if self._pid != os.getpid():  # a fork has none of its parent's threads
            self._begin()
        with self._lock:
            enters = not self._gathering and (not self._under_way or self._under_way < _max_calls(self._latency))
            self._under_way += enters
        if enters:
            return self._store([outgoing])[0]
        waiting = _WaitingSend(outgoing)
        self._waiting.put(waiting)
        with self._lock:
            starts = self._workers < _max_calls(self._latency)
            if starts:
                self._workers += 1
        if starts and self._own_threads.start(self._work, "delayq-sends") is None:
            self._on_death()
            if waiting.claim.acquire(blocking=False):
                return self._alone(outgoing)
        if not waiting.done.acquire(timeout=MAX_WAIT):
            if waiting.claim.acquire(blocking=False):
                return self._alone(outgoing)
            waiting.done.acquire()
        if waiting.sent is None:
            raise _own_error(waiting.error, outgoing)
        return waiting.sent

    def _alone(self, outgoing: Outgoing, *, replace: Replace = False) -> Sent:
        return self._perform(self._producer.send([outgoing], replace=replace))[0]

    def _store(self, messages: list[Outgoing]) -> list[Sent]:
        """Send messages in a call that is counted already."""
        began = monotonic() if self._under_way == 1 else None
        try:
            stored = self._perform(self._producer.send(messages))
            if began is not None:
                self._latency.measure(monotonic() - began, len(messages))
            return stored
        finally:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._under_way -= 1
            if self._gathering:
                self._changing.notify()

    def _on_death(self, *_: object) -> None:
        """Forget a thread that has died, or for which there was no room."""
        with self._lock:
            self._workers -= 1

    def _work(self) -> None:
        while True:
            try:
                first = self._waiting.get(timeout=IDLE_TIMEOUT)
            except Empty:
                with self._lock:
                    # A send that arrives after this starts another thread; one that came just before it does not.
                    if self._waiting.empty():
                        self._workers -= 1
                        return
                continue
            with self._lock:
                self._gathering += 1  # so that the thread that has just sent does not go first again
                while self._under_way >= _max_calls(self._latency):
                    self._changing.wait()
                self._gathering -= 1
                self._under_way += 1
            if group := self._gather(first):
                self._store_all(group)
            else:
                self._end()

    def _gather(self, first: _WaitingSend) -> list[_WaitingSend]:
        group, size, one = [], 0, first
        while True:
            if one.claim.acquire(blocking=False):
                group.append(one)
                size += len(one.outgoing.payload)
            if len(group) == BATCH or size >= BATCH_BYTES:
                return group
            try:
                one = self._waiting.get_nowait()
            except Empty:
                return group

    def _store_all(self, group: list[_WaitingSend]) -> None:
        try:
            for one, sent in zip(group, self._store([one.outgoing for one in group]), strict=True):
                one.sent = sent
        except BaseException as error:  # noqa: BLE001 - the waiting senders raise it
            for one in group:
                one.error = error
        finally:
            for one in group:
                one.done.release()


class AsyncGroupCommit:
    """The sends of the tasks that share a queue; see `GroupCommit`."""

    def __init__(
        self,
        producer: Producer,
        perform: Callable[[Operation[list[Sent]]], Awaitable[list[Sent]]],
        executor: AsyncExecutor,
    ) -> None:
        """Send by `perform`, in the event loop of the executor."""
        self._producer = producer
        self._perform = perform
        self._check_loop = executor.check_loop
        executor.on_new_loop.append(self._begin)
        self._begin()

    def _begin(self) -> None:
        self._latency = Latency(MESSAGE_TIME)
        """That of calls beside which no other was under way."""
        self._under_way = 0
        self._waiting: deque[tuple[Outgoing, asyncio.Future[Sent]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, outgoing: Outgoing, *, replace: Replace) -> Sent:
        """Send a message, alone or together with others."""
        self._check_loop()
        if replace or self._producer.is_limited:
            return await self._alone(outgoing, replace=replace)
        if self._waiting or (self._under_way and self._under_way >= _max_calls(self._latency)):
            loop = asyncio.get_running_loop()
            if not self._waiting:
                self._timer = loop.call_later(MAX_WAIT, self._store_waiting)
            future: asyncio.Future[Sent] = loop.create_future()
            self._waiting.append((outgoing, future))
            return await future
        self._under_way += 1
        return (await self._store([outgoing]))[0]

    async def _alone(self, outgoing: Outgoing, *, replace: Replace = False) -> Sent:
        return (await self._perform(self._producer.send([outgoing], replace=replace)))[0]

    async def _store(self, messages: list[Outgoing]) -> list[Sent]:
        """Send messages in a call that is counted already."""
        began = monotonic() if self._under_way == 1 else None
        try:
            stored = await self._perform(self._producer.send(messages))
            if began is not None:
                self._latency.measure(monotonic() - began, len(messages))
            return stored
        finally:
            self._end()

    def _end(self) -> None:
        self._under_way = max(0, self._under_way - 1)  # a send of a closed event loop is not counted any more
        if self._waiting:
            self._store_waiting()

    def _store_waiting(self) -> None:
        """Store the waiting sends in a task of its own, so that cancelling one of them does not cancel the others."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        group: dict[asyncio.Future[Sent], Outgoing] = {}
        size = 0
        while self._waiting and len(group) < BATCH and size < BATCH_BYTES:
            outgoing, future = self._waiting.popleft()
            if not future.done():
                group[future] = outgoing
                size += len(outgoing.payload)
        if group:
            self._under_way += 1
            task = start_task(partial(self._store_all, group), "delayq-sends")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _store_all(self, group: dict[asyncio.Future[Sent], Outgoing]) -> None:
        try:
            stored = await self._store(list(group.values()))
        except BaseException as error:
            for future, outgoing in group.items():
                if not future.done():
                    future.set_exception(_own_error(error, outgoing))
            if not isinstance(error, Exception):
                raise
        else:
            for future, sent in zip(group, stored, strict=True):
                if not future.done():
                    future.set_result(sent)


_warned: list[bool] = []
"""Has an item once a blocking send was warned of."""


def warn_in_event_loop(*, blocks: bool = True) -> None:
    """Warn once of a send that blocks, in an event loop, which runs nothing else meanwhile."""
    if blocks and not _warned and _get_running_loop() is not None:
        _warned.append(True)
        log.warning(
            "a blocking send in a running event loop holds up everything in it: use an AsyncDelayQueue or "
            "AsyncStreamQueue there, or send in a thread by asyncio.to_thread"
        )


def _own_error(error: Any, outgoing: Outgoing) -> BaseException:
    """Return a copy of a group's error for one of its messages, since several threads may raise it at a time."""
    own: BaseException = copy(error)
    if isinstance(own, OutcomeUnknown | QueueFullError | NotReplicatedError):
        own.ids = (outgoing.id,)
    return own
