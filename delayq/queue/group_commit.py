"""Group commit: concurrent sends share round trips; a lone sender is never delayed.

The first send goes out at once, alone. The sends that arrive before its reply go out together in the next call, and so
on. A send with `replace`, or to a queue with a `max_length`, always goes alone: the other messages of a call could
change its result.
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

from delayq.broker.requests import Outgoing
from delayq.broker.transport.operation import Operation
from delayq.errors import NotReplicatedError, OutcomeUnknown, QueueFullError
from delayq.queue.producer import BATCH, BATCH_BYTES, Producer, Sent

MAX_WAIT = 0.1
"""Seconds a send waits for the one before it; after that, Redis may be down and it goes alone."""
IDLE_TIMEOUT = 1.0
"""Seconds without work after which the thread that stores the waiting sends ends."""


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
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._sending = threading.Lock()
        """Locked while a thread is sending."""
        self._working = threading.Lock()
        """Locked while there is a thread that stores the waiting sends."""
        self._waiting: SimpleQueue[_WaitingSend] = SimpleQueue()
        self._gathering = False

    def send(self, outgoing: Outgoing, *, replace: bool) -> Sent:
        """Send a message, alone or together with others."""
        if replace or self._producer.is_limited:
            return self._alone(outgoing, replace=replace)
        if self._pid != os.getpid():  # a fork has none of its parent's threads
            self._begin()
        if not self._gathering and self._sending.acquire(blocking=False):
            try:
                return self._alone(outgoing)
            finally:
                self._sending.release()
        waiting = _WaitingSend(outgoing)
        self._waiting.put(waiting)
        if self._working.acquire(blocking=False):
            threading.Thread(target=self._work, name="delayq-sends", daemon=True).start()
        if not waiting.done.acquire(timeout=MAX_WAIT):
            if waiting.claim.acquire(blocking=False):
                return self._alone(outgoing)
            waiting.done.acquire()
        if waiting.sent is None:
            raise _own_error(waiting.error, outgoing)
        return waiting.sent

    def _alone(self, outgoing: Outgoing, *, replace: bool = False) -> Sent:
        return self._perform(self._producer.send([outgoing], replace=replace))[0]

    def _work(self) -> None:
        while True:
            try:
                first = self._waiting.get(timeout=IDLE_TIMEOUT)
            except Empty:
                self._working.release()
                # A send that arrives after this starts another thread; one that came just before it does not.
                if self._waiting.empty() or not self._working.acquire(blocking=False):
                    return
                continue
            self._gathering = True  # so that the thread that has just sent does not go first again
            with self._sending:
                self._gathering = False
                self._store_all(self._gather(first))

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
            stored = self._perform(self._producer.send([one.outgoing for one in group])) if group else []
            for one, sent in zip(group, stored, strict=True):
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
        check_loop: Callable[[], None],
    ) -> None:
        """Send by `perform`; `check_loop` raises an error in another event loop than that of the other sends."""
        self._producer = producer
        self._perform = perform
        self._check_loop = check_loop
        self._in_flight = 0
        self._waiting: deque[tuple[Outgoing, asyncio.Future[Sent]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, outgoing: Outgoing, *, replace: bool) -> Sent:
        """Send a message, alone or together with others."""
        self._check_loop()
        if replace or self._producer.is_limited:
            return await self._alone(outgoing, replace=replace)
        if self._in_flight:
            loop = asyncio.get_running_loop()
            if not self._waiting:
                self._timer = loop.call_later(MAX_WAIT, self._store_waiting)
            future: asyncio.Future[Sent] = loop.create_future()
            self._waiting.append((outgoing, future))
            return await future
        self._in_flight += 1
        try:
            return await self._alone(outgoing)
        finally:
            self._ended()

    async def _alone(self, outgoing: Outgoing, *, replace: bool = False) -> Sent:
        return (await self._perform(self._producer.send([outgoing], replace=replace)))[0]

    def _ended(self) -> None:
        self._in_flight -= 1
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
            self._in_flight += 1
            task = asyncio.get_running_loop().create_task(self._store_all(group), name="delayq-sends")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _store_all(self, group: dict[asyncio.Future[Sent], Outgoing]) -> None:
        try:
            stored = await self._perform(self._producer.send(list(group.values())))
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
        finally:
            self._ended()


def _own_error(error: Any, outgoing: Outgoing) -> BaseException:
    """Return a copy of a group's error for one of its messages, since several threads may raise it at a time."""
    own: BaseException = copy(error)
    if isinstance(own, OutcomeUnknown | QueueFullError | NotReplicatedError):
        own.ids = (outgoing.id,)
    return own
