"""Group commit: sends of several threads or tasks at a time are stored together.

The first send goes at once, alone. Those that come while it is under way go as one call when it is back, and so on: a
queue that many send to needs fewer round trips a message, and who is alone waits for nobody. What is to replace others,
or may be refused by a `max_length`, always goes alone: its answer would depend on its company.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from copy import copy
from queue import Empty, SimpleQueue
from typing import Any

from delayq.errors import NotReplicatedError, OutcomeUnknown, QueueFullError
from delayq.operation import Operation
from delayq.producer import SLICE, SLICE_BYTES, Producer, Sent
from delayq.values import Outgoing

PATIENCE = 0.1
"""Seconds after which a send waits no longer for the one before it, which Redis does not answer, and goes alone."""
LINGERING = 1.0
"""Seconds without work after which the thread that stores what has waited ends."""


class _Waiting:
    """A send that waits for the one before it."""

    __slots__ = ("_untaken", "done", "error", "outgoing", "sent")

    def __init__(self, outgoing: Outgoing) -> None:
        self.outgoing = outgoing
        self.sent: Sent | None = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()
        self._untaken = [True]

    def take(self) -> bool:
        """Answer True to the first who asks: the thread that stores it, or the one that waits no longer."""
        try:
            return self._untaken.pop()
        except IndexError:
            return False


class GroupCommit:
    """The sends of the threads that share a queue."""

    def __init__(self, producer: Producer, perform: Callable[[Operation[list[Sent]]], list[Sent]]) -> None:
        """Send by the operations of `producer`."""
        self._producer = producer
        self._perform = perform
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._line = threading.Lock()
        """Held by who is sending."""
        self._working = threading.Lock()
        """Held by the thread that stores what waits, while there is one."""
        self._waiting: SimpleQueue[_Waiting] = SimpleQueue()
        self._gathering = False

    def send(self, outgoing: Outgoing, *, replace: bool) -> Sent:
        """Send a message; raises what went wrong."""
        if replace or self._producer.is_limited:
            return self._alone(outgoing, replace=replace)
        if self._pid != os.getpid():  # a fork has none of its parent's threads
            self._begin()
        if not self._gathering and self._line.acquire(blocking=False):
            try:
                return self._alone(outgoing)
            finally:
                self._line.release()
        one = _Waiting(outgoing)
        self._waiting.put(one)
        if self._working.acquire(blocking=False):
            threading.Thread(target=self._work, name="delayq-sends", daemon=True).start()
        if not one.done.acquire(timeout=PATIENCE):
            if one.take():
                return self._alone(outgoing)
            one.done.acquire()
        if one.sent is None:
            raise _of_one(one.error, outgoing)
        return one.sent

    def _alone(self, outgoing: Outgoing, *, replace: bool = False) -> Sent:
        return self._perform(self._producer.send([outgoing], replace=replace))[0]

    def _work(self) -> None:
        while True:
            try:
                first = self._waiting.get(timeout=LINGERING)
            except Empty:
                self._working.release()
                # Who comes after this has another thread made; who came just before it has not.
                if self._waiting.empty() or not self._working.acquire(blocking=False):
                    return
                continue
            self._gathering = True  # so that who has just sent does not go first again
            with self._line:
                self._gathering = False
                self._store_all(self._gather(first))

    def _gather(self, first: _Waiting) -> list[_Waiting]:
        found, size, one = [], 0, first
        while True:
            if one.take():
                found.append(one)
                size += len(one.outgoing.payload)
            if len(found) == SLICE or size >= SLICE_BYTES:
                return found
            try:
                one = self._waiting.get_nowait()
            except Empty:
                return found

    def _store_all(self, group: list[_Waiting]) -> None:
        try:
            stored = self._perform(self._producer.send([one.outgoing for one in group])) if group else []
            for one, sent in zip(group, stored, strict=True):
                one.sent = sent
        except BaseException as error:  # noqa: BLE001 - it is for those that wait
            for one in group:
                one.error = error
        finally:
            for one in group:
                one.done.release()


class AsyncGroupCommit:
    """The sends of the tasks that share a queue; see `GroupCommit`."""

    def __init__(self, producer: Producer, perform: Callable[[Operation[list[Sent]]], Awaitable[list[Sent]]]) -> None:
        """Send by the operations of `producer`."""
        self._producer = producer
        self._perform = perform
        self._under_way = 0
        self._waiting: deque[tuple[Outgoing, asyncio.Future[Sent]]] = deque()
        self._impatience: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, outgoing: Outgoing, *, replace: bool) -> Sent:
        """Send a message; raises what went wrong."""
        if replace or self._producer.is_limited:
            return await self._alone(outgoing, replace=replace)
        if self._under_way:
            loop = asyncio.get_running_loop()
            if not self._waiting:
                self._impatience = loop.call_later(PATIENCE, self._go_on)
            future: asyncio.Future[Sent] = loop.create_future()
            self._waiting.append((outgoing, future))
            return await future
        self._under_way += 1
        try:
            return await self._alone(outgoing)
        finally:
            self._ended()

    async def _alone(self, outgoing: Outgoing, *, replace: bool = False) -> Sent:
        return (await self._perform(self._producer.send([outgoing], replace=replace)))[0]

    def _ended(self) -> None:
        self._under_way -= 1
        if self._waiting:
            self._go_on()

    def _go_on(self) -> None:
        """Store what waits, in a task of its own: one that waits may be cancelled, and the others not with it."""
        if self._impatience:
            self._impatience.cancel()
            self._impatience = None
        group: dict[asyncio.Future[Sent], Outgoing] = {}
        size = 0
        while self._waiting and len(group) < SLICE and size < SLICE_BYTES:
            outgoing, future = self._waiting.popleft()
            if not future.done():
                group[future] = outgoing
                size += len(outgoing.payload)
        if group:
            self._under_way += 1
            task = asyncio.get_running_loop().create_task(self._store_all(group), name="delayq-sends")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _store_all(self, group: dict[asyncio.Future[Sent], Outgoing]) -> None:
        try:
            stored = await self._perform(self._producer.send(list(group.values())))
        except BaseException as error:
            for future, outgoing in group.items():
                if not future.done():
                    future.set_exception(_of_one(error, outgoing))
            if not isinstance(error, Exception):
                raise
        else:
            for future, sent in zip(group, stored, strict=True):
                if not future.done():
                    future.set_result(sent)
        finally:
            self._ended()


def _of_one(error: Any, outgoing: Outgoing) -> BaseException:
    """Return the error of a group as that of one of its messages, which many may raise at a time."""
    own: BaseException = copy(error)
    if isinstance(own, OutcomeUnknown | QueueFullError | NotReplicatedError):
        own.ids = (outgoing.id,)
    return own
