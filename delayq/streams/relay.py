"""The relay moves due messages of a delay queue into a stream, so that consumers in any language get delays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from delayq._parity import mirrors
from delayq.broker.calls import Calls
from delayq.broker.transport.clients import Cluster
from delayq.broker.transport.operation import Operation, Wait
from delayq.broker.transport.protocol import ShouldRetry
from delayq.errors import ConfigurationError, DelayqError
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.base import parts_of
from delayq.queue.consuming.lease import CLOSE
from delayq.queue.consuming.loaded import load_all
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.placing.layout import refuse_partitions
from delayq.safe_log import SafeLog
from delayq.streams.calls import relay
from delayq.streams.keys import check_stream, hash_tag
from delayq.streams.queue import AsyncStreamQueue, StreamBase, StreamQueue
from delayq.values.times import monotonic
from delayq.worker.parts.presence import Presence, Tally
from delayq.worker.parts.schedule_firing import ScheduleFirer

log = SafeLog("delayq.relay")

Q = TypeVar("Q")
S = TypeVar("S")

ERROR_WAIT = 1.0
"""Seconds to wait after Redis has refused a call."""
MAX_WAIT = 1.0
"""Longest wait between two polls, in seconds: it bounds the delay of a lost wake-up, and how long a stop takes."""


class _Relay(Generic[Q, S]):
    """What both relays share: the operations, not how they run."""

    def __init__(self, queue: Q, stream: str | S) -> None:
        """Relay from `queue` to `stream`; on a Redis Cluster they must share a hash tag. Nothing is sent to Redis."""
        inner: Any = queue
        self._queue = inner
        self._context, self._executor = inner.context, inner.executor
        name: Any = stream.name if isinstance(stream, StreamBase) else stream
        self.stream = check_stream(name)
        """The stream's key."""
        self._tally = Tally()
        self._presence = Presence(self._context, self._executor.consumer_id, concurrency=1, tally=self._tally)
        self._schedule_firer = ScheduleFirer(self._context.calls, self._context.settings, MAX_WAIT)
        self.stopped = False
        """Whether `stop` was called."""
        if isinstance(stream, StreamBase):
            ours, theirs = parts_of(inner).source[-1], parts_of(stream).source[-1]
            if isinstance(ours, str) and isinstance(theirs, str) and ours != theirs:
                raise ConfigurationError(
                    "queue and stream must be on one Redis, but their urls differ: give both the same url"
                )
        calls: Calls = self._context.calls
        if isinstance(self._executor.client, Cluster) and hash_tag(calls.keys.pending) != hash_tag(self.stream):
            raise ConfigurationError(
                f"on a Redis Cluster queue {inner.name!r} and stream {self.stream!r} must share a hash tag: "
                f"give the stream a name with {{{inner.name}}} in it"
            )

    def stop(self) -> None:
        """Stop `run`, and return at once. Safe to call from any thread or signal handler.

        `run` returns within about a second; if Redis does not answer, after the socket's time-out. A stopped relay
        cannot be started again.
        """
        self.stopped = True

    def _check_partitions(self) -> None:
        """Raise `PartitionsError` for a queue that has several: they are queues on their own, maybe on other nodes."""
        layout = getattr(self._queue, "layout", None)
        if layout is not None:
            refuse_partitions(layout.name, layout.names(), "relay each of them")

    def _run(self, *, burst: bool) -> Operation[int]:
        """Move due messages until stopped; in a burst, until nothing is due."""
        moved, late, last_error = 0, True, ""
        while not self.stopped:
            try:
                yield from self._read_each([] if burst else self._presence.plan(monotonic()))
                now_moved, late, ahead = yield from self._move_batch(late=late)
                moved, last_error = moved + now_moved, ""
                self._tally.move(now_moved)
                if ahead is None:
                    continue
                if burst:
                    break
                yield from self._rest(ahead)
            except DelayqError as error:
                if burst:
                    raise
                if self.stopped:
                    return moved
                if last_error != str(error):
                    log.error("relay failed, will retry: %s", error, extra={"stream": self.stream})  # noqa: TRY400
                last_error = str(error)
                yield Wait(ERROR_WAIT)
        yield from self._read_each((call, self._presence.read) for call in self._presence.leave())
        return moved

    def _should_retry(self, *, burst: bool) -> ShouldRetry:
        """Return whether to retry while Redis does not answer: until stopped; in a burst, until a call's deadline."""
        return None if burst else lambda _: not self.stopped

    def _move_batch(self, *, late: bool) -> Operation[tuple[int, bool, float | None]]:
        """Move a batch; returns how many, whether leases have expired, and seconds until more is due (None: now)."""
        calls: Calls = self._context.calls
        yield from self._fire()
        # Messages whose consumer has died are taken over, as another consumer of the queue would do.
        take_back = [calls.unack_to_retry()] if late else []
        *expired, promoted = yield [*take_back, relay(calls, self.stream, consumer_id=f"relay:{self.stream}")]
        if promoted.garbage:
            yield [self._context.calls.collect(self._context.settings)]
        now, next_ = monotonic(), promoted.next_schedule
        self._schedule_firer.occurs_at = None if next_ == -1 else now + (next_ - promoted.now) / 1000
        fires_at = self._schedule_firer.next_at(now)
        ahead = [] if fires_at == math.inf else [fires_at - now]
        late = 0 <= promoted.next_deadline <= promoted.now
        more = late or promoted.waiting or 0 <= promoted.next_due <= promoted.now or any(wait <= 0 for wait in ahead)
        if more or any(reply.retried or reply.spent for reply in expired):
            return promoted.moved, late, None
        ahead += [(at - promoted.now) / 1000 for at in (promoted.next_due, promoted.next_deadline) if at != -1]
        return promoted.moved, late, min([MAX_WAIT, *ahead])

    def _fire(self) -> Operation[None]:
        """Fire the schedules of the queue that are due; their errors do not stop the relay."""
        yield from self._read_each([*self._schedule_firer.plan(monotonic())])

    def _read_each(self, plan: Iterable[tuple[Any, Callable[[Any], None]]]) -> Operation[None]:
        """Send calls one by one; their errors are read like replies."""
        for call, read in plan:
            try:
                (reply,) = yield [call]
            except DelayqError as error:
                reply = error
            read(reply)

    def _rest(self, ahead: float) -> Operation[None]:
        """Sleep until a message may be due, or until a wake-up; a stopping relay passes the wake-up on."""
        if ahead <= CLOSE:
            yield Wait(ahead)
            return
        calls: Calls = self._context.calls
        (woken,) = yield [calls.await_wake(min(ahead - CLOSE / 2, self._executor.max_block))]
        if woken and self.stopped:
            yield [calls.wake()]


class Relay(_Relay[DelayQueue[Any], StreamQueue[Any]]):
    """Moves the due messages of a `DelayQueue` into a stream, each exactly once, by one script.

    `stream` is the key of a stream on the queue's Redis, or a `StreamQueue`. The queue counts a moved message as
    delivered and acknowledged; in the stream it is an entry with the fields `id`, `payload`, `retries`, `due` and
    `headers`. Several relays of one queue share the work. If one crashes, no message is lost or duplicated.
    """

    def open(self) -> None:
        """Connect and check the server, as the queue's `open` does; `run` calls it."""
        self._queue.open()
        self._check_partitions()

    def run(self, *, burst: bool = False) -> int:
        """Move messages as they become due until `stop` is called; with `burst`, until no message is due.

        Returns how many were moved. While Redis does not answer, it retries, except in a burst.
        """
        load_all()
        self.open()
        return int(self._executor.perform(self._run(burst=burst), should_retry=self._should_retry(burst=burst)))


class AsyncRelay(_Relay[AsyncDelayQueue[Any], AsyncStreamQueue[Any]]):
    """Moves the due messages of an `AsyncDelayQueue` into a stream; see `Relay`."""

    @mirrors(Relay.open)
    async def open(self) -> None:
        await self._queue.open()
        self._check_partitions()

    @mirrors(Relay.run)
    async def run(self, *, burst: bool = False) -> int:
        load_all()
        await self.open()
        return int(await self._executor.perform(self._run(burst=burst), should_retry=self._should_retry(burst=burst)))
