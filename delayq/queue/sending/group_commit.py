"""Group commit: concurrent sends share round trips; a lone sender is never delayed.

The first send goes out at once, alone. The sends that arrive before its reply go out together in the next call, and so
on: the first of them stores them all. Over a network, several calls are under way at a time, so that a send does not
pay the latency twice. A send with `replace`, or to a queue with a `max_length`, always goes alone: the other messages
of a call could change its result.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Awaitable, Callable
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from delayq.broker.batches import BATCH, BATCH_BYTES
from delayq.broker.requests import Outgoing, Replace
from delayq.broker.transport.operation import Operation
from delayq.errors import NotReplicatedError, OutcomeUnknown, QueueFullError
from delayq.queue.sending.producer import Producer, Sent
from delayq.safe_log import SafeLog
from delayq.values.times import monotonic
from delayq.worker.drivers.own_threads import start_task

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor, Executor

log = SafeLog("delayq.queue")

MAX_WAIT = 0.1
"""Seconds a send waits for the one before it; after that, Redis may be down and it goes alone."""
CALL_EVERY = 0.0005
"""Seconds of a round trip for each call under way: on one machine, a round trip takes less."""
MESSAGE_TIME = 0.00003
"""Seconds that a message adds to a call at most, without any latency."""
MAX_CALLS = 8
"""Calls under way at a time."""
SPAN, SPAN_CALLS, FIRST_CALLS = 10.0, 64, 16
"""The seconds and the calls of which the shortest counts, and the calls before which no server counts as far."""


class RoundTrips:
    """How many calls may be under way: one where the server is near, more where a round trip takes long.

    The shortest round trip of late counts. A busy server, or a process short of CPU, makes most calls slow; a way that
    is long makes all of them slow.
    """

    __slots__ = ("_before", "_calls", "_clock", "_ends", "_shortest", "limit")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Take the server as near."""
        self._clock = clock
        self._shortest = self._before = math.inf
        """The shortest of this span, and of the one before it."""
        self._calls = 0
        self._ends = clock() + SPAN
        self.limit = 1
        """How many calls may be under way."""

    def measure(self, began: float, messages: int) -> None:
        """Note that a call that carried so many messages began at this time, and has ended."""
        now = self._clock()
        latency = now - began - messages * MESSAGE_TIME
        changes = latency < self._shortest
        if changes:
            self._shortest = latency
        self._calls += 1
        if self._calls >= SPAN_CALLS and now >= self._ends:
            self._before, self._shortest, self._calls, self._ends = self._shortest, math.inf, 0, now + SPAN
            changes = True
        if changes or self._calls == FIRST_CALLS:
            self._judge()

    def _judge(self) -> None:
        if self._calls >= FIRST_CALLS or self._before < math.inf:
            calls = min(self._shortest, self._before) / CALL_EVERY
            self.limit = MAX_CALLS if calls >= MAX_CALLS else max(1, int(calls))


class _WaitingSend:
    """A send that waits for the one before it."""

    __slots__ = ("error", "leads", "may_lead", "outgoing", "sent", "turn")

    def __init__(self, outgoing: Outgoing) -> None:
        self.outgoing = outgoing
        self.sent: Sent | None = None
        self.error: BaseException | None = None
        self.leads = False
        """Whether its thread makes a call, which is counted already."""
        self.may_lead = threading.get_ident() != threading.main_thread().ident
        """Whether it may store the messages of others: Ctrl-C interrupts the main thread anywhere."""
        self.turn = threading.Lock()
        """Released when it is stored, or leads."""
        self.turn.acquire()


class GroupCommit:
    """The sends of the threads that share a queue."""

    def __init__(self, producer: Producer, executor: Executor) -> None:
        self._producer = producer
        self._executor = executor
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._trips = RoundTrips()
        self._lock = threading.RLock()  # reentrant: a signal handler may send
        """Guards what follows."""
        self._waiting: deque[_WaitingSend] = deque()
        """Those that no thread stores yet."""
        self._under_way = 0

    def send(self, outgoing: Outgoing, *, replace: Replace) -> Sent:
        """Send a message, alone or together with others."""
        warn_in_event_loop()
        if replace or self._producer.is_limited:
            return self._alone(outgoing, replace=replace)
        if self._pid != os.getpid():  # a fork has none of its parent's threads
            self._begin()
        with self._lock:
            enters = not self._under_way or (not self._waiting and self._under_way < self._trips.limit)
            if enters:
                self._under_way += 1
            else:
                waiting = _WaitingSend(outgoing)
                self._waiting.append(waiting)
        if not enters:
            return self._wait(waiting)
        try:
            return self._store([outgoing])[0]
        finally:
            self._end()

    def _alone(self, outgoing: Outgoing, *, replace: Replace = False) -> Sent:
        return self._executor.perform(self._producer.send([outgoing], replace=replace))[0]

    def _store(self, messages: list[Outgoing]) -> list[Sent]:
        """Send messages in a call that is counted already."""
        began = monotonic()
        stored = self._producer.send_by(self._executor, messages)
        self._trips.measure(began, len(messages))
        return stored

    def _end(self) -> None:
        """End a call, and have one of those that wait make the next."""
        with self._lock:
            self._under_way -= 1
            if self._waiting and self._under_way < self._trips.limit:
                first = next((one for one in self._waiting if one.may_lead), self._waiting[0])
                first.leads = True
                self._under_way += 1
                self._waiting.remove(first)
                first.turn.release()

    def _wait(self, own: _WaitingSend) -> Sent:
        try:
            if not own.turn.acquire(timeout=MAX_WAIT):
                if self._leave(own):
                    return self._alone(own.outgoing)
                own.turn.acquire()
            if own.leads:
                self._lead(own)
        except BaseException:
            self._leave(own)
            raise
        finally:
            if own.leads:
                own.leads = False
                self._end()
        if own.sent is None:
            raise _own_error(own.error, own.outgoing)
        return own.sent

    def _leave(self, own: _WaitingSend) -> bool:
        """Wait no more; returns whether no thread stores the message."""
        with self._lock:
            waits = own in self._waiting
            if waits:
                self._waiting.remove(own)
            return waits

    def _lead(self, own: _WaitingSend) -> None:
        """Store a message, and those that wait, in a call that is counted already."""
        group = [own]
        try:
            if own.may_lead:
                self._gather(group)
            for one, sent in zip(group, self._store([one.outgoing for one in group]), strict=True):
                one.sent = sent
        except BaseException as error:  # noqa: BLE001 - each sender raises its own
            for one in group:
                one.error = error
        finally:
            for one in group[1:]:
                one.turn.release()

    def _gather(self, group: list[_WaitingSend]) -> None:
        """Add those that wait to a group, as many as a batch takes."""
        size = len(group[0].outgoing.payload)
        with self._lock:
            while self._waiting and len(group) < BATCH and size < BATCH_BYTES:
                group.append(self._waiting.popleft())
                size += len(group[-1].outgoing.payload)


class AsyncGroupCommit:
    """The sends of the tasks that share a queue; see `GroupCommit`.

    Where several tasks send, those that are ready in the same turn of the event loop go together.
    """

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
        self._trips = RoundTrips()
        self._under_way = 0
        self._waiting: list[tuple[Outgoing, asyncio.Future[Sent]]] = []
        self._handle: asyncio.Handle | None = None
        """Stores what waits: after this turn of the event loop, or when it has waited too long."""
        self._shared = False
        """Whether the last call of a group carried several messages."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, outgoing: Outgoing, *, replace: Replace) -> Sent:
        """Send a message, alone or together with others."""
        self._check_loop()
        if replace or self._producer.is_limited:
            return (await self._perform(self._producer.send([outgoing], replace=replace)))[0]
        if not (self._waiting or self._under_way or self._shared):
            self._under_way += 1
            try:
                return (await self._store([outgoing]))[0]
            finally:
                self._end()
        loop = asyncio.get_running_loop()
        if not self._waiting:
            is_full = self._under_way >= self._trips.limit
            after = partial(loop.call_later, MAX_WAIT) if is_full else loop.call_soon
            self._handle = after(self._store_waiting)
        future: asyncio.Future[Sent] = loop.create_future()
        self._waiting.append((outgoing, future))
        return await future

    async def _store(self, messages: list[Outgoing]) -> list[Sent]:
        """Send messages in a call that is counted already."""
        began = monotonic()
        stored = await self._perform(self._producer.send(messages))
        self._trips.measure(began, len(messages))
        return stored

    def _end(self) -> None:
        self._under_way = max(0, self._under_way - 1)  # a send of a closed event loop is not counted any more
        if self._waiting:
            self._cancel_handle()
            # After this turn: what the tasks whose messages are stored send next goes with them.
            self._handle = asyncio.get_running_loop().call_soon(self._store_waiting)

    def _cancel_handle(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _store_waiting(self) -> None:
        """Store the waiting sends in a task of its own, so that cancelling one of them does not cancel the others."""
        self._cancel_handle()
        group: list[tuple[Outgoing, asyncio.Future[Sent]]] = []
        size = taken = 0
        for outgoing, future in self._waiting:
            if len(group) == BATCH or size >= BATCH_BYTES:
                break
            taken += 1
            if not future.done():
                group.append((outgoing, future))
                size += len(outgoing.payload)
        del self._waiting[:taken]
        self._shared = len(group) > 1
        if group:
            self._under_way += 1
            task = start_task(partial(self._store_all, group), "delayq-sends")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._waiting:
            self._handle = asyncio.get_running_loop().call_later(MAX_WAIT, self._store_waiting)

    async def _store_all(self, group: list[tuple[Outgoing, asyncio.Future[Sent]]]) -> None:
        try:
            stored = await self._store([outgoing for outgoing, _ in group])
        except BaseException as error:
            for outgoing, future in group:
                if not future.done():
                    future.set_exception(_own_error(error, outgoing))
            if not isinstance(error, Exception):
                raise
        else:
            for (_, future), sent in zip(group, stored, strict=True):
                if not future.done():
                    future.set_result(sent)
        finally:
            self._end()


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
