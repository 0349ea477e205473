"""Composes the consumer loops of the queues on one server: one turn is one round trip for all of them.

It is a generator like each of them, without I/O. It carries out itself the steps that need none, passes calls and
sleeps on together, and continues each loop when there is something for it: replies, completions, a wake-up, its time,
a stop, or messages that it may claim because a callback of any queue has ended.

A turn looks at the queues that are awake only. Those that rest wait in a heap for their time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Any

from delayq.errors import DelayqError
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.loop.loop_parts import PlannedCall, calls_of, next_of
from delayq.worker.loop.loop_steps import Cancel, RoundTrip, Run, Sleep, Step, StepResult, Withdraw
from delayq.worker.pool.pool import Pool, PoolQueue
from delayq.worker.pool.pool_chores import Chore, ChoreSteps, EmptyWatch, IdentityWatch
from delayq.worker.pool.pool_part import QueuePart

TOGETHER = 50
"""Queues whose calls one round trip takes along."""
LOOK_AGAIN = 1.0
"""Seconds until the next look at a queue that does not rest: it tells in its own turns."""


class RestingPresence:
    """When which of the queues is to tell that its worker works. Times are local and monotonic, in seconds."""

    def __init__(self) -> None:
        """Start without queues."""
        self._next: list[tuple[float, int, QueuePart]] = []
        self._number = count()

    def add(self, part: QueuePart) -> None:
        """Look after a queue until its loop has ended."""
        if next_of(part.queue.loop.parts.beside, 0.0) < math.inf:
            heappush(self._next, (0.0, next(self._number), part))

    def plan(self, now: float) -> Iterator[PlannedCall]:
        """Yield the calls that are due, whose readers take errors as well."""
        planned = 0
        while self._next and self._next[0][0] <= now and planned < TOGETHER:
            part = self._next[0][2]
            beside = part.queue.loop.parts.beside
            if part.ended:
                heappop(self._next)
                continue
            if part.rests_until is not None:
                yield from calls_of(beside, now)
                planned += 1
            heapreplace(self._next, (max(next_of(beside, now), now + LOOK_AGAIN), next(self._number), part))


LOOKS = 30
"""Resting queues with messages that are looked at in a second, at most; those without cost a command for many."""


class PoolLoop:
    """The decisions for the queues of a worker that are on one server; see `served.OneQueue`, which has the same."""

    looks_after_queues = True
    """By an `IdentityWatch`."""

    def __init__(self, queues: Sequence[PoolQueue], pool: Pool, *, in_cluster: bool, burst: bool = False) -> None:
        """Consume the queues, whose callbacks the pool picks; with `burst`, until nothing is due in any of them."""
        self.parts: dict[PoolQueue, QueuePart] = {}
        """The queues that the worker serves, until their loops have ended."""
        self.news: deque[PoolQueue] = deque()
        """Queues that a wake-up has come for; any thread appends to it."""
        self.on_change: Callable[[], object] = lambda: None
        """Called when queues have been added or have ended."""
        self._pool = pool
        self._burst, self._in_cluster = burst, in_cluster
        self._first = [*queues]
        self._awake: dict[QueuePart, None] = {}
        self._timers: list[tuple[float, int, QueuePart]] = []
        self._timer_number = count()
        self._with_messages: set[QueuePart] = set()
        """Those that rest, and are looked at one by one."""
        self._refused: dict[QueuePart, None] = {}
        self._stop_at: float | None = None
        self._started: list[tuple[PoolQueue, list[InFlightDelivery]]] = []
        self._interrupted: list[Batch] = []
        self._cancels = False
        self._passed_on: list[Any] = []
        self._resting_presence = RestingPresence()
        self._empty_watch = EmptyWatch(self.parts)
        self._chores: list[Chore] = []
        self._staying: list[Chore] = []
        """The chores during which it goes on without any queue."""
        if not burst:
            self.begin(IdentityWatch(self.parts, in_cluster=in_cluster).run())
            self.begin(self._empty_watch.run())

    def begin(self, steps: ChoreSteps[None], *, stays: bool = False) -> None:
        """Begin a chore; until one that `stays` has ended, the loop goes on without any queue."""
        self._chores.append(Chore(steps))
        if stays:
            self._staying.append(self._chores[-1])

    @property
    def queues(self) -> Iterable[PoolQueue]:
        """The queues that it serves, also before it runs."""
        return self.parts or self._first

    @property
    def error(self) -> DelayqError | None:
        """What Redis refuses one of the queues; None if nothing."""
        return next((part.queue.loop.refusals.error for part in self._refused), None)

    @property
    def finished(self) -> bool:
        """Whether a completion waits for the loop of a queue."""
        return any(part.queue.buffer.finished for part in self._awake)

    @property
    def late(self) -> list[PoolQueue]:
        """The queues whose last wake-ups have come too late for the loop."""
        return [queue for queue in dict.fromkeys(self.news) if queue.woken]

    def runs(self, batch: Batch) -> bool:
        """Return whether a batch that runners have taken is of one of its queues."""
        return self._pool.queue_of(batch) in self.parts

    def any_running(self) -> bool:
        """Return whether a callback runs that is not overdue."""
        return any(queue.in_flight.any_running() for queue in self.queues)

    # Called within a turn only: by a chore, or by the driver between two steps

    def add(self, queues: Sequence[PoolQueue]) -> None:
        """Serve more queues, which the pool has already."""
        if self._burst:
            self._first = [*dict.fromkeys([*self._first, *queues])]
        for queue in queues:
            queue.news = self.news
            watched = not (self._burst or self._in_cluster) and queue.context.calls.is_empty() is not None
            part = self.parts[queue] = QueuePart(queue, watched=watched)
            self._awake[part] = None
            self._resting_presence.add(part)
        self.on_change()

    def add_new(self, queues: Sequence[PoolQueue]) -> None:
        """Serve more queues, which the pool does not have yet."""
        self._pool.add(queues)
        self.add(queues)

    def remove(self, queues: Iterable[PoolQueue]) -> None:
        """Serve some queues no more: release what has not started, and forget each once its callbacks have ended."""
        for queue in queues:
            if (part := self.parts.get(queue)) is not None:
                part.removed = True
                self._wake(part, 0.0)

    # The turns

    def run(self) -> Generator[Step, StepResult, None]:
        """Consume until stopped; in a burst, until a round over all queues has found nothing."""
        while True:
            self.parts.clear()
            self._awake.clear()
            self.add(self._first)
            stopped = yield from self._run()
            if not self._burst or stopped or not any(queue.claimed for queue in self._first):
                return
            for queue in self._first:  # a callback may have sent messages to a queue that had drained before
                queue.start()

    def _run(self) -> Generator[Step, StepResult, bool]:
        result = yield Sleep(0, listen=False)
        while True:
            self._gather(result)
            self._pool.allot([part.queue for part in self._awake], result.now)
            self._advance(result, {part: () for part in [*self._awake] if part.is_due(result.now, result.stop_at)})
            result = yield from self._act(result)
            trips = [part for part in self._awake if isinstance(part.step, RoundTrip)]
            chores = self._chores if result.stop_at is None else ()
            doing = [(chore, calls) for chore in chores if (calls := chore.calls(result.now))]
            if trips or doing or self._passed_on:
                result = yield from self._exchange(trips, doing, [*self._resting_presence.plan(result.now)])
            elif not self.parts and (result.stop_at is not None or all(chore.ended for chore in self._staying)):
                return result.stop_at is not None
            else:
                self._rest(result.now)
                listen = result.stop_at is None and bool(self.parts)
                result = yield Sleep(self._idle_time(result.now), listen=listen)

    def _gather(self, result: StepResult) -> None:
        """Wake the queues that something has happened to, and count what those that are awake have overdue."""
        while self.news:
            queue = self.news.popleft()
            if (part := self.parts.get(queue)) is not None:
                self._wake(part, result.now)
            elif queue.woken:  # it has ended meanwhile: another process may serve it
                queue.woken = False
                self._passed_on.append(queue.context.calls.wake())
        while self._timers and self._timers[0][0] <= result.now:
            at, _, part = heappop(self._timers)
            if part.rests_until == at:
                self._wake(part, result.now)
        for part in self._empty_watch.found:
            self._wake(part, result.now, found=True)
        self._empty_watch.found.clear()
        if result.stop_at != self._stop_at:
            self._stop_at = result.stop_at
            for part in self.parts.values():
                self._wake(part, result.now)
        for part in self._awake:
            part.queue.count_hung()

    def _wake(self, part: QueuePart, now: float, *, found: bool = False) -> None:
        if part.rests_until is not None:
            part.awake(now, self._look_every, found=found)
            self._with_messages.discard(part)
            self._awake[part] = None

    @property
    def _look_every(self) -> float:
        return len(self._with_messages) / LOOKS

    def _rest(self, now: float) -> None:
        """Let the queues rest that have nothing here."""
        look_every = self._look_every
        resting = [part for part in self._awake if part.rest(now, look_every)]
        for part in resting:
            del self._awake[part]
            heappush(self._timers, (part.rests_until or 0.0, next(self._timer_number), part))
            if part.watched and not part.is_empty:
                self._with_messages.add(part)

    def _exchange(
        self, trips: list[QueuePart], doing: list[tuple[Chore, list[Any]]], resting: list[PlannedCall]
    ) -> Generator[Step, StepResult, StepResult]:
        """Send the calls of loops, chores and resting queues; give each its replies; start all claimed together."""
        passed_on, self._passed_on = self._passed_on, []
        calls = [call for part in trips for call in part.step.calls]  # type: ignore[union-attr]
        beside = [call for _, of_chore in doing for call in of_chore]
        result = yield RoundTrip([*calls, *beside, *(call for call, _, _ in resting), *passed_on])
        given: dict[QueuePart, Sequence[object]] = {}
        first = 0
        for part in trips:
            last = first + len(part.step.calls)  # type: ignore[union-attr]
            given[part], first = result.replies[first:last], last
        self._advance(result, given)
        for chore, of_chore in doing:
            last = first + len(of_chore)
            chore.answer(result.replies[first:last], result.now)
            first = last
        # What is passed on has no reader.
        for (_, read, _), reply in zip(resting, result.replies[first:], strict=False):
            read(reply)
        result = yield from self._act(result)
        self._rest(result.now)
        return result

    def _advance(self, result: StepResult, replies: Mapping[QueuePart, Sequence[object]]) -> None:
        """Continue loops with replies until each waits: for a round trip, or for something to happen."""
        for part, replied in replies.items():
            self._resume(part, result, replies=replied)
            while not part.ended and not isinstance(part.step, RoundTrip | Sleep):
                withdrawn: list[InFlightDelivery] = []
                if isinstance(part.step, Run):
                    if part.step.deliveries:
                        self._started.append((part.queue, part.step.deliveries))
                    self._interrupted += part.step.interrupted
                elif isinstance(part.step, Withdraw):
                    withdrawn = part.queue.take_back()
                else:
                    self._cancels = True
                self._resume(part, result, withdrawn=withdrawn)
            if part.queue.loop.refusals.error is not None:
                self._refused[part] = None
            else:
                self._refused.pop(part, None)
            if part.ended:
                self._end(part)

    def _end(self, part: QueuePart) -> None:
        """Forget a queue whose loop has ended; in a burst another round may begin it again."""
        queue = part.queue
        queue.count_hung()
        del self.parts[queue], self._awake[part]
        self._refused.pop(part, None)
        if queue.woken:  # too late for its loop
            queue.woken = False
            self._passed_on.append(queue.context.calls.wake())
        if part.removed:
            self._pool.remove(queue)
            self.on_change()

    def _resume(
        self,
        part: QueuePart,
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
        """Have the driver start what was claimed, interrupt what runs too long, and cancel what a stop cuts off."""
        if self._started or self._interrupted:
            started, self._started = self._started, []
            interrupted, self._interrupted = self._interrupted, []
            self._pool.put(started)
            result = yield Run([delivery for _, deliveries in started for delivery in deliveries], interrupted)
        if self._cancels:
            self._cancels = False
            result = yield Cancel()
        return result

    def _idle_time(self, now: float) -> float:
        """Return the seconds for which there is nothing to do unless something happens."""
        until = min((chore.next_at for chore in self._chores if self._stop_at is None), default=math.inf)
        if self._timers:
            until = min(until, self._timers[0][0])
        for part in self._awake:
            due_at = part.queue.claimable_from(now)
            until = min(until, part.wake_at, due_at if due_at > now else math.inf)
        return max(0.0, until - now)
