"""The consumer that a drain runs: it processes what is due at one time and calls the callbacks itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from delayq.broker.context import EngineContext
from delayq.broker.replies import PromoteReply
from delayq.broker.stored_presence import presence_call
from delayq.errors import DelayqError, StoppedByCallbackError
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.testing.clock import Clock
from delayq.testing.deliveries import Delivered, End, describe_delivery
from delayq.testing.fault_injection import Crash
from delayq.testing.queue_factory import AnyQueue
from delayq.values.outcomes import Outcome
from delayq.values.times import monotonic
from delayq.worker.delivery.disposition import Completion
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery
from delayq.worker.delivery.message import AsyncMessage, Message
from delayq.worker.drivers.callbacks import CallbackThreads, Ending, StartContext
from delayq.worker.drivers.own_threads import OwnThreads
from delayq.worker.drivers.work_buffer import WorkBuffer
from delayq.worker.loop.consumer_loop import ConsumerLoop
from delayq.worker.loop.loop_steps import RoundTrip, Run, Sleep, StepResult
from delayq.worker.parts.presence import Tally

T = TypeVar("T")

Step = Callable[[], Any]
"""Something to call, and to await if the queue is asynchronous."""
Steps = Generator[Step, tuple[Any, BaseException | None], T]
"""Yields what is to be called, and gets what that returned and what it raised."""


def perform(function: Callable[..., Any], *args: Any) -> Steps[Any]:
    """Call a function and return its result; raise what it raises."""
    __tracebackhide__ = True
    result, error = yield partial(function, *args)
    if error is not None:
        raise error
    return result


@dataclass(slots=True)
class DrainState:
    """What all consumers of one drain share: its clock, its options, its threads, and what they have delivered."""

    clock: Clock
    raising: bool
    most: int
    delivered: list[Delivered] = field(default_factory=list)
    threads: CallbackThreads = field(default_factory=partial(CallbackThreads, "drain", OwnThreads()))
    """They run the blocking callbacks of asyncio queues."""

    def check_limit(self) -> None:
        """Fail if the next delivery exceeds the limit."""
        if len(self.delivered) >= self.most:
            raise AssertionError(f"{self.most} messages were delivered and more are due: raise `most` if that is right")


class DrainWorker:
    """A consumer of one queue; it uses no socket, and yields what is to be done."""

    def __init__(self, queue: AnyQueue, state: DrainState) -> None:
        context = queue.context
        # One at a time and without prefetch: in the order of the queue, and a crash affects no other message.
        settings = replace(context.settings, concurrency=1, prefetch=0)
        self.lifespan = None if queue.own_lifespan is None else queue.own_lifespan.anew()
        self._context = context.with_settings(settings).with_lifespan(self.lifespan)
        self._queue = queue
        self._executor = queue.executor
        self._callback = queue.handlers.find()
        self._state = state
        self._raised: BaseException | None = None
        self._contexts = StartContext()

    def process_due(self) -> Steps[PromoteReply | None]:
        """Process all that is due now; returns the last promotion's reply, None if the worker crashed."""
        buffer = WorkBuffer(self._callback, self._make_message, self._context, self._executor)
        of_callback: Any = {"batch": self._callback.batch, "more": self._callback.parts}
        consumer = ConsumerLoop(self._context, "drain", reports_starts=False, promotes=True, **of_callback)
        loop = consumer.run()
        step = next(loop)
        before = promoted = None
        while True:
            result = StepResult(0.0)
            if isinstance(step, RoundTrip):
                if self._raised is not None:  # settle before raising, but claim nothing more
                    calls = [call for call in step.calls if call.script.name != "ready_to_unack"]
                    yield from perform(self._executor.run, calls)
                    yield from self._count(consumer)
                    raise self._raised
                result.replies = yield from perform(self._executor.run, step.calls)
                for found in _promotions(result.replies):
                    before, promoted = promoted, found._replace(now=0)  # the server's clock may run
            elif isinstance(step, Run):
                before = promoted = None
                buffer.put(step.deliveries)
                completions = yield from self._work(buffer)
                if completions is None:
                    return None
                result.completions = completions
            elif isinstance(step, Sleep) and step.seconds > 0:
                # Done after two equal replies: if Redis had to load a script first, a promotion may have run before the
                # calls whose effect it should see.
                if promoted is not None and promoted == before:
                    yield from self._count(consumer)
                    return promoted
                result.woken = True  # so that it looks once more
            result.now = monotonic()
            step = loop.send(result)

    def _count(self, consumer: ConsumerLoop) -> Steps[None]:
        """Add what was counted to the history of the queue, as the report of a consumer does, and let its parts end."""
        for leave in consumer.parts.leave:
            leave()
        tally = consumer.parts.find(Tally)
        if tally and (counted := tally.take()):
            yield from perform(self._executor.run, [presence_call(self._context.calls, "drain", None, counted)])

    def _make_message(
        self, delivery: InFlightDelivery, context: EngineContext, executor: Any, _: float
    ) -> Message[Any] | AsyncMessage[Any]:
        """Return a message handed over at the time of its claim: real time between the two does not count."""
        kind = AsyncMessage if isinstance(self._queue, AsyncDelayQueue) else Message
        delivery.claimed_at = 0.0  # subtracting two equal large numbers would cost the lateness its last digits
        return kind(delivery, context, executor, 0.0)

    def _work(self, buffer: WorkBuffer) -> Steps[list[Completion] | None]:
        """Call the callback with all deliveries in the buffer; returns the completions, None after a crash."""
        completions: list[Completion] = []
        while (taken := buffer.get()) is not None:
            batch, deliveries, argument = taken
            at = self._state.clock.now
            if argument is not None:
                self._state.check_limit()
                with _deadlines_following(self._state.clock, deliveries):
                    result, error = yield from self._call(argument)
                if isinstance(error, Crash):
                    self._record(deliveries, at, "crashed")
                    return None
                if error is not None and not _is_callback_error(error):
                    raise error
                if error is not None and self._state.raising and not isinstance(error, Outcome):
                    self._raised = error
                buffer.complete(batch, deliveries, result, error)
                if buffer.stop_reason is not None:
                    self._raised = StoppedByCallbackError(buffer.stop_reason)
            for completion in buffer.drain():
                completions.append(completion)
                self._record(completion.deliveries, at, completion)
        return completions

    def _call(self, argument: Any) -> Steps[Ending]:
        """Call the callback as a consumer does; returns what it returned and what it raised."""
        context = self._contexts.copy()
        if not isinstance(self._queue, AsyncDelayQueue):
            return (yield partial(context.run, self._callback.function, argument))
        ending, error = yield partial(self._state.threads.call, self._callback, argument, context)
        return (None, error) if error is not None else ending

    def _record(self, deliveries: Sequence[InFlightDelivery], at: datetime, end: End) -> None:
        name, decode = self._queue.name, self._context.decode
        self._state.delivered += [describe_delivery(name, delivery, decode, at, end) for delivery in deliveries]


def _promotions(replies: Iterable[Any]) -> Iterator[PromoteReply]:
    """Yield the promotion's reply of a turn, if it promotes; raises the error if Redis refused a call."""
    for reply in replies:
        if isinstance(reply, DelayqError):
            raise reply
        if isinstance(reply, PromoteReply):
            yield reply


def _is_callback_error(error: BaseException) -> bool:
    """Return whether a consumer would handle this exception, rather than it being about the test itself."""
    pytest = sys.modules.get("_pytest.outcomes")
    return not isinstance(error, KeyboardInterrupt | (pytest.OutcomeException if pytest else KeyboardInterrupt))


@contextmanager
def _deadlines_following(clock: Clock, deliveries: list[InFlightDelivery]) -> Iterator[None]:
    """Let the leases that messages see expire when the callback itself moves the clock."""

    def follow(passed: int) -> None:
        for delivery in deliveries:
            delivery.deadline -= passed / 1000

    clock.watchers.append(follow)
    try:
        yield
    finally:
        clock.watchers.remove(follow)
