"""The part of one queue in the loop of a worker: its consumer loop, the step it is at, and whether it rests.

A queue rests while its loop sleeps and nothing of it is here: then it costs its worker nothing until its time has
come, a wake-up arrives, or a look at many resting queues finds something in it.
"""

from __future__ import annotations

import math

from delayq.worker.loop.loop_parts import next_of
from delayq.worker.loop.loop_steps import Sleep, Step, StepResult
from delayq.worker.pool.pool import PoolQueue

SAME_TIME = 1e-6
"""Seconds by which two computations of the same time may differ."""


class QueuePart:
    """The loop of one queue and its current step."""

    def __init__(self, queue: PoolQueue, *, watched: bool) -> None:
        """Start the loop of a queue; others look at it while it rests if it is `watched`."""
        self.queue = queue
        self.watched = watched
        self.ended = False
        self.removed = False
        """Whether the worker is to serve the queue no more: its loop ends once nothing of it runs."""
        self.rests_until: float | None = None
        """Time until which it rests unless something happens; None while it does not."""
        self.stop_at: float | None = None
        """The end of the stop, as the loop knows it."""
        self.start()

    def start(self) -> None:
        """Begin with the loop of the queue."""
        self._generator = self.queue.loop.run()
        self.step: Step = next(self._generator)
        self.wake_at = 0.0

    def resume(self, result: StepResult) -> None:
        """Continue the loop with the result of its step; note when it is to continue after a sleep."""
        queue = self.queue
        if queue.woken:
            queue.woken, result.woken = False, True
        result.stop_at = self._stop_at(result.stop_at)
        news, self.stop_at = result.woken or result.stop_at != self.stop_at, result.stop_at
        try:
            self.step = self._generator.send(result)
        except StopIteration:
            self.ended = True
            return
        if isinstance(self.step, Sleep):
            # What arrived in the middle of a turn is acted upon in the next one.
            self.wake_at = result.now + (0.0 if news else self.step.seconds)

    def _stop_at(self, stop_at: float | None) -> float | None:
        return math.inf if stop_at is None and self.removed else stop_at

    def is_due(self, now: float, stop_at: float | None) -> bool:
        """Return whether the loop sleeps and has something to do."""
        if self.ended or not isinstance(self.step, Sleep):
            return False
        queue = self.queue
        if queue.woken and queue.loop.outlook.ready:  # it says what is known; others that block get the next
            queue.woken = False
        if self.wake_at <= now or queue.woken or queue.buffer.finished or self._stop_at(stop_at) != self.stop_at:
            return True
        return queue.in_flight.allotted > 0 and queue.claimable_from(now) <= now

    @property
    def is_empty(self) -> bool:
        """Whether the last look has found nothing at all, and others look again."""
        return self.watched and self.queue.loop.outlook.empty

    def rest(self, now: float, look_every: float) -> bool:
        """Rest if nothing of the queue is here; a watched queue that is not empty is looked at so often (seconds)."""
        queue, loop = self.queue, self.queue.loop
        here = queue.woken or queue.in_flight or queue.buffer.backlog or queue.buffer.finished or loop.parts.pending()
        due_at = queue.claimable_from(now)
        if here or queue.in_flight.held or not isinstance(self.step, Sleep) or due_at <= now or self.removed:
            return False
        until = min(self.wake_at, due_at)
        if self.watched and not loop.outlook.paused:
            outlook, feeds_at = loop.outlook, next_of(loop.parts.feed, now)
            others = min(outlook.collect_at, outlook.deadline_at, due_at, feeds_at)
            if abs(until - min(outlook.look_at, others)) < SAME_TIME:  # the loop itself waits for nothing else
                until = others if outlook.empty else min(others, max(outlook.look_at, outlook.looked_at + look_every))
        if until <= now:
            return False
        self.rests_until = until
        queue.in_flight.allotted = 0
        return True

    def awake(self, now: float, look_every: float, *, found: bool = False) -> None:
        """Rest no more; with `found`, another look has found something, so look at once.

        Else a claim tells as much as a look, unless the last one is too long ago.
        """
        outlook = self.queue.loop.outlook
        if found:
            outlook.look_at = self.wake_at = 0.0
        elif self.watched:
            every = self.queue.context.settings.tick / 1000 if outlook.empty else look_every
            outlook.look_at = max(outlook.look_at, outlook.looked_at + every)
        if self.rests_until is not None and self.rests_until <= now:
            self.wake_at = 0.0
        self.rests_until = None
