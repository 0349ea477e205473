"""The relay: due messages of a delay queue go into a stream, so that consumers in any language get delays before it."""

from __future__ import annotations

import logging
from typing import Any

from delayq.calls import Calls
from delayq.clients import Cluster
from delayq.clock import monotonic
from delayq.config import find_url
from delayq.conversation import Patience
from delayq.errors import ConfigurationError, DelayqError
from delayq.executor import AsyncExecutor, Executor
from delayq.flows.recurring import Recurring
from delayq.operation import Operation, Pause
from delayq.puller import CLOSE
from delayq.queue import AsyncDelayQueue, DelayQueue
from delayq.streams.calls import relay
from delayq.streams.keys import check_stream, hash_tag
from delayq.streams.queue import AsyncStreamQueue, StreamQueue
from delayq.twins import twin

log = logging.getLogger("delayq.relay")

AFTER_TROUBLE = 1.0
"""Seconds of rest after Redis has refused a call."""
LONGEST_WAIT = 1.0
"""Seconds between two looks at least so often: the guard against a lost wake-up, and how long a stop may take."""


class _Relay:
    """The decisions behind both faces."""

    def __init__(self, queue: Any, stream: Any) -> None:
        """Validate both ends; nothing is sent to Redis."""
        self._queue = queue
        self._tools = queue._tools  # noqa: SLF001 - a relay is a consumer of the queue
        self._executor: Executor | AsyncExecutor = queue._executor  # noqa: SLF001
        self.stream = check_stream(stream.name if isinstance(stream, StreamQueue | AsyncStreamQueue) else stream)
        """The stream's key."""
        self._recurring = Recurring(self._tools.calls, LONGEST_WAIT)
        self.stopped = False
        """Whether a stop was asked for."""
        if stream is not self.stream:
            _check_shared(queue._options, stream._options)  # noqa: SLF001
        calls: Calls = self._tools.calls
        if isinstance(self._executor.client, Cluster) and hash_tag(calls.keys.pending) != hash_tag(self.stream):
            text = "in a Redis Cluster queue and stream must share a hash tag, so that one script reaches both"
            raise ConfigurationError(f"{text}: give the stream a name with {{{queue.name}}} in it")

    def stop(self) -> None:
        """Ask for an end and return at once. For any thread, or a signal.

        `run` returns within about a second, or where Redis is silent, when the socket's time-out is over. A relay that
        was stopped stays so.
        """
        self.stopped = True

    def _moves(self, *, burst: bool) -> Operation[int]:
        """Move what is due until stopped; in a burst, until nothing is due."""
        moved, late, trouble = 0, True, ""
        while not self.stopped:
            try:
                now_moved, late, ahead = yield from self._move(late=late)
                moved, trouble = moved + now_moved, ""
                if ahead is None:
                    continue
                if burst:
                    return moved
                yield from self._rest(ahead)
            except DelayqError as error:
                if burst:
                    raise
                if self.stopped:
                    break
                if trouble != str(error):
                    log.error("the relay goes on in a second: %s", error, extra={"stream": self.stream})  # noqa: TRY400
                trouble = str(error)
                yield Pause(AFTER_TROUBLE)
        return moved

    def _patience(self, *, burst: bool) -> Patience | None:
        """Return how long to go on trying while Redis does not answer: in a burst, until a call's deadline."""
        return None if burst else lambda: not self.stopped

    def _move(self, *, late: bool) -> Operation[tuple[int, bool, float | None]]:
        """Move a slice; returns how many, whether leases have run out, and how long nothing is due (None: more is)."""
        calls: Calls = self._tools.calls
        yield from self._fire()
        # What a consumer of the queue has left behind comes back as it would to another consumer.
        before = [calls.unack_to_retry()] if late else []
        *expired, promoted = yield [*before, relay(calls, self.stream, holder=f"relay:{self.stream}")]
        if promoted.garbage:
            yield [self._tools.collect()]
        now, next_ = monotonic(), promoted.next_schedule
        self._recurring.occurs(None if next_ == -1 else now + (next_ - promoted.now) / 1000)
        ahead = [] if self._recurring.at is None else [self._recurring.at - now]
        late = 0 <= promoted.next_deadline <= promoted.now
        more = late or promoted.waiting or 0 <= promoted.next_due <= promoted.now or any(one <= 0 for one in ahead)
        if more or any(one.retried or one.spent for one in expired):
            return promoted.moved, late, None
        ahead += [(at - promoted.now) / 1000 for at in (promoted.next_due, promoted.next_deadline) if at != -1]
        return promoted.moved, late, min([LONGEST_WAIT, *ahead])

    def _fire(self) -> Operation[None]:
        """Fire the schedules of the queue that are due; what is wrong with them keeps the relay from nothing else."""
        for call, read in [*self._recurring.plan(monotonic())]:
            try:
                (answer,) = yield [call]
            except DelayqError as error:
                answer = error
            read(answer)

    def _rest(self, ahead: float) -> Operation[None]:
        """Sleep until a message may be due; a wake-up ends it, and is passed on if it comes to one that stops."""
        if ahead <= CLOSE:
            yield Pause(ahead)
            return
        calls: Calls = self._tools.calls
        (woken,) = yield [calls.await_wake(min(ahead - CLOSE / 2, self._executor.longest_block))]
        if woken and self.stopped:
            yield [calls.wake()]


def _check_shared(ours: Any, theirs: Any) -> None:
    """Refuse a stream that is evidently on another Redis than the queue."""
    if "redis" in ours or "redis" in theirs:
        return
    if find_url(ours) != find_url(theirs):
        raise ConfigurationError("queue and stream must be on one Redis: one script moves a message from one to other")


class Relay(_Relay):
    """Moves the due messages of a `DelayQueue` into a stream, each exactly once, by one script.

    `stream` is the key of a stream on the queue's Redis, or a `StreamQueue`. To the queue a message that was moved is
    delivered and acknowledged; in the stream it is an entry with the fields `id`, `payload`, `retries`, `due` and
    `headers`. Several relays of one queue share the work, and a crash of one loses and doubles nothing.
    """

    _executor: Executor

    def __init__(self, queue: DelayQueue[Any], stream: str | StreamQueue[Any]) -> None:
        """Relay from `queue` to `stream`; in a Redis Cluster they must share a hash tag."""
        super().__init__(queue, stream)

    def open(self) -> None:
        """Connect and check the server, as the queue's `open` does; `run` does it by itself."""
        self._queue.open()

    def run(self, *, burst: bool = False) -> int:
        """Move messages as they become due until `stop` is called; with `burst`, until nothing is due any more.

        Returns how many were moved. While Redis does not answer it goes on trying, except in a burst.
        """
        self.open()
        return int(self._executor.perform(self._moves(burst=burst), patience=self._patience(burst=burst)))


class AsyncRelay(_Relay):
    """Moves the due messages of an `AsyncDelayQueue` into a stream; see `Relay`."""

    _executor: AsyncExecutor

    def __init__(self, queue: AsyncDelayQueue[Any], stream: str | AsyncStreamQueue[Any]) -> None:
        """Relay from `queue` to `stream`; in a Redis Cluster they must share a hash tag."""
        super().__init__(queue, stream)

    @twin(Relay.open)
    async def open(self) -> None:
        await self._queue.open()

    @twin(Relay.run)
    async def run(self, *, burst: bool = False) -> int:
        await self.open()
        return int(await self._executor.perform(self._moves(burst=burst), patience=self._patience(burst=burst)))
