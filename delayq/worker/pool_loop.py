"""Composes the consumer loops of the queues on one server: one turn is one round trip for all of them.

It is a generator like each of them, without I/O. It carries out itself the steps that need none, passes calls and
sleeps on together, and continues each loop when there is something for it: replies, completions, a wake-up, its time,
a stop, or messages that it may claim because a callback of any queue has ended.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence

from delayq.errors import DelayqError
from delayq.worker.loop_steps import Cancel, RoundTrip, Run, Sleep, Step, StepResult, Withdraw
from delayq.worker.message import InFlightDelivery
from delayq.worker.pool import Pool, PoolQueue


class _QueueLoop:
    """The loop of one queue and its current step."""

    def __init__(self, queue: PoolQueue) -> None:
        self.queue = queue
        self.ended = False
        self.stop_at: float | None = None
        """The end of the stop, as the loop knows it."""
        self.start()

    def start(self) -> None:
        self._generator = self.queue.loop.run()
        self.step: Step = next(self._generator)
        self.wake_at = 0.0

    def resume(self, result: StepResult) -> None:
        """Continue the loop with the result of its step; note when it is to continue after a sleep."""
        queue = self.queue
        if queue.woken:
            queue.woken, result.woken = False, True
        news, self.stop_at = result.woken or result.stop_at != self.stop_at, result.stop_at
        try:
            self.step = self._generator.send(result)
        except StopIteration:
            self.ended = True
            return
        if isinstance(self.step, Sleep):
            # What arrived in the middle of a turn is acted upon in the next one.
            self.wake_at = result.now + (0.0 if news else self.step.seconds)

    def is_due(self, now: float, stop_at: float | None) -> bool:
        """Return whether the loop sleeps and has something to do."""
        if self.ended or not isinstance(self.step, Sleep):
            return False
        queue = self.queue
        if queue.woken and queue.loop.outlook.ready:  # it says what is known; others that block get the next
            queue.woken = False
        if self.wake_at <= now or queue.woken or queue.buffer.finished or stop_at != self.stop_at:
            return True
        return queue.in_flight.allotted > 0 and queue.claimable_from(now) <= now


class PoolLoop:
    """The decisions for the queues of a worker that are on one server."""

    def __init__(self, queues: Sequence[PoolQueue], pool: Pool, *, burst: bool = False) -> None:
        """Consume the queues, whose callbacks the pool picks; with `burst`, until nothing is due in any of them."""
        self._queues = queues
        self._pool = pool
        self._burst = burst
        self._parts: list[_QueueLoop] = []
        self._started: list[tuple[PoolQueue, list[InFlightDelivery]]] = []
        self._cancels = False

    @property
    def error(self) -> DelayqError | None:
        """What Redis refuses one of the queues; None if nothing."""
        return next((error for queue in self._queues if (error := queue.loop.refusals.error)), None)

    def any_running(self) -> bool:
        """Return whether a callback runs that is not overdue."""
        return any(queue.in_flight.any_running() for queue in self._queues)

    def run(self) -> Generator[Step, StepResult, None]:
        """Consume until stopped; in a burst, until a round over all queues has found nothing."""
        while True:
            self._parts = [_QueueLoop(queue) for queue in self._queues]
            stopped = yield from self._run()
            if not self._burst or stopped or not any(queue.claimed for queue in self._queues):
                return
            for queue in self._queues:  # a callback may have sent messages to a queue that had drained before
                queue.restart()

    def _run(self) -> Generator[Step, StepResult, bool]:
        result = yield Sleep(0, listen=False)
        while True:
            for part in self._parts:
                part.queue.count_hung()
            self._pool.allot([part.queue for part in self._parts if not part.ended], result.now)
            self._advance(result, {part: () for part in self._parts if part.is_due(result.now, result.stop_at)})
            result = yield from self._act(result)
            trips = [part for part in self._parts if not part.ended and isinstance(part.step, RoundTrip)]
            if trips:
                result = yield RoundTrip([call for part in trips for call in part.step.calls])  # type: ignore[union-attr]
                result = yield from self._deal(trips, result)
            elif all(part.ended for part in self._parts):
                return result.stop_at is not None
            else:
                result = yield Sleep(self._idle_time(result.now), listen=result.stop_at is None)

    def _deal(self, trips: list[_QueueLoop], result: StepResult) -> Generator[Step, StepResult, StepResult]:
        """Give each loop the replies to its calls, and start what they have claimed together."""
        given: dict[_QueueLoop, Sequence[object]] = {}
        first = 0
        for part in trips:
            last = first + len(part.step.calls)  # type: ignore[union-attr]
            given[part], first = result.replies[first:last], last
        self._advance(result, given)
        return (yield from self._act(result))

    def _advance(self, result: StepResult, replies: Mapping[_QueueLoop, Sequence[object]]) -> None:
        """Continue loops with replies until each waits: for a round trip, or for something to happen."""
        for part, replied in replies.items():
            self._resume(part, result, replies=replied)
            while not part.ended and not isinstance(part.step, RoundTrip | Sleep):
                withdrawn: list[InFlightDelivery] = []
                if isinstance(part.step, Run):
                    if part.step.deliveries:
                        self._started.append((part.queue, part.step.deliveries))
                elif isinstance(part.step, Withdraw):
                    withdrawn, part.queue.withdrawn = part.queue.withdrawn, []
                    part.queue.buffer.withdraw(withdrawn)
                else:
                    self._cancels = True
                self._resume(part, result, withdrawn=withdrawn)

    def _resume(
        self,
        part: _QueueLoop,
        result: StepResult,
        *,
        replies: Sequence[object] = (),
        withdrawn: Sequence[InFlightDelivery] = (),
    ) -> None:
        completions = part.queue.buffer.drain()
        part.resume(
            StepResult(
                result.now, replies=replies, completions=completions, withdrawn=withdrawn, stop_at=result.stop_at
            )
        )

    def _act(self, result: StepResult) -> Generator[Step, StepResult, StepResult]:
        """Have the driver start what was claimed, and cancel what a stop cuts off."""
        if self._started:
            started, self._started = self._started, []
            self._pool.put(started)
            result = yield Run([delivery for _, deliveries in started for delivery in deliveries])
        if self._cancels:
            self._cancels = False
            result = yield Cancel()
        return result

    def _idle_time(self, now: float) -> float:
        """Return the seconds for which there is nothing to do unless something happens."""
        until = math.inf
        for part in self._parts:
            if not part.ended:
                due_at = part.queue.claimable_from(now)
                until = min(until, part.wake_at, due_at if due_at > now else math.inf)
        return max(0.0, until - now)
