"""What a driver drives: a loop for each server, and the work of all queues. Here those of a consumer of one queue.

A worker of many queues has the same in `worker.pool`: a `PoolLoop` for each server, and the `Pool` as work.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any

from delayq.broker.batches import batched
from delayq.broker.context import EngineContext
from delayq.broker.requests import Release
from delayq.broker.scripts import MAX_MOVED
from delayq.errors import DelayqError
from delayq.values.times import monotonic
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.drivers.callbacks import is_blocking
from delayq.worker.drivers.wakeup import SharedWaits, check_connections
from delayq.worker.drivers.work_buffer import Callback, WorkBuffer
from delayq.worker.loop.consumer_loop import ConsumerLoop
from delayq.worker.loop.loop_steps import Run, Step, StepResult, Withdraw
from delayq.worker.parts.in_flight import InFlight
from delayq.worker.parts.presence import Presence

EXIT_WITHIN = 2.0
"""Seconds to settle and release messages if Redis does not answer: when a process or event loop ends, and in a stop."""
WAITED_TOGETHER = 100
"""Queues that one blocking command waits for: each that it waits for costs the server a microsecond at each wake-up."""


class ServedQueue:
    """One queue of a consumer: its loop, its hand-off buffer, and what has happened to it beside the loop."""

    loop: ConsumerLoop

    def __init__(
        self, context: EngineContext, callback: Callback, executor: Any, message_class: Any, *, burst: bool
    ) -> None:
        """Run `callback` on the messages of the queue; with `burst`, until nothing is due."""
        self.context, self.callback, self.executor, self.burst = context, callback, executor, burst
        self.blocks = is_blocking(callback.function)
        """Whether asyncio must call the callback in a thread."""
        self.buffer = WorkBuffer(callback, message_class, context, executor)
        self.woken = False
        """Whether a wake-up has come that its loop has not seen."""
        self._withdrawn: list[InFlightDelivery] = []
        """What a stop has taken back while the loop was busy."""
        self._withdrawing = threading.RLock()  # a signal handler may stop while its own thread is doing so

    def begin(self, in_flight: InFlight, **presence: Any) -> None:
        """Begin with a new loop; `in_flight` decides how much to claim, and `presence` is told beside the rest."""
        consumer_id = self.executor.consumer_id
        self.loop = ConsumerLoop(
            self.context,
            consumer_id,
            batch=self.callback.batch,
            burst=self.burst,
            in_flight=in_flight,
            presence=partial(Presence, self.context, consumer_id, burst=self.burst, **presence),
            breakers=self.callback.breakers,
            more=self.callback.parts,
        )
        self.buffer.connect(self.loop)

    def wake(self) -> None:
        """Note a wake-up through Redis, from any thread."""
        self.woken = True

    def put(self, deliveries: list[InFlightDelivery], *, stopping: bool) -> None:
        """Hand deliveries to the runners, unless a stop came while they were claimed."""
        if stopping:
            self._withdrawn.extend(deliveries)
        else:
            self.buffer.put(deliveries)

    def withdraw(self) -> None:
        """Take back what no runner has taken, from any thread."""
        with self._withdrawing:
            self.buffer.withdraw(self._withdrawn)

    def take_back(self) -> list[InFlightDelivery]:
        """Take back what no runner has taken; returns it, with what was taken back before."""
        with self._withdrawing:
            self.withdraw()
            taken, self._withdrawn = self._withdrawn, []
        return taken


class OneQueue(ServedQueue):
    """The queue of a consumer of one queue; it is the loop of its server and the work of its driver as well."""

    looks_after_queues = False
    """Whether the loop itself checks from time to time that Redis still has its queues."""
    on_change: Callable[[], object]
    """Called when the loop begins, and when its queues have changed."""

    def __init__(self, *args: Any, burst: bool) -> None:
        """Begin with the loop; see `ServedQueue`."""
        super().__init__(*args, burst=burst)
        self._in_flight = InFlight(self.context, self.callback.batch, limited=self.callback.limited)
        self.begin(self._in_flight)
        self.queues = [self]
        self._stopping = False

    # As the loop of its server

    @property
    def late(self) -> list[OneQueue]:
        """The queues whose last wake-ups have come too late for the loop."""
        return [self] if self.woken else []

    @property
    def error(self) -> DelayqError | None:
        """What Redis refuses; None if nothing."""
        return self.loop.refusals.error

    @property
    def finished(self) -> bool:
        """Whether a completion waits for the loop."""
        return self.buffer.finished

    def any_running(self) -> bool:
        """Return whether a callback runs that is not overdue."""
        return self._in_flight.any_running()

    def runs(self, batch: Batch) -> bool:  # noqa: ARG002 - it has only its own
        """Return whether a batch that runners have taken is of one of its queues."""
        return True

    def run(self) -> Generator[Step, StepResult, None]:
        """Consume until stopped; in a burst, until nothing is due. A driver does its steps but `Withdraw`."""
        self.on_change()
        steps, result = self.loop.run(), StepResult(0.0)
        step = next(steps)
        while True:
            if isinstance(step, Withdraw):
                result.replies, result.withdrawn = (), self.take_back()
            else:
                if isinstance(step, Run):
                    self.put(step.deliveries, stopping=self._stopping)
                result = yield step
            result.completions = self.buffer.drain()
            result.woken = self.woken
            if result.woken:  # not swapped: the listener's thread may set it meanwhile
                self.woken = False
            try:
                step = steps.send(result)
            except StopIteration:
                return

    # As the work of its driver

    @property
    def stopped_by(self) -> OneQueue | None:
        """The queue whose callback has stopped the consumer."""
        return None if self.buffer.stop_reason is None else self

    @property
    def runners(self) -> int:
        """How many runners are needed now."""
        return min(self.context.settings.concurrency, len(self._in_flight.deliveries)) + self._in_flight.abandoned

    @property
    def most_runners(self) -> int:
        """How many runners may be needed."""
        return self.context.settings.concurrency + self._in_flight.abandoned

    def set_missing(self, missing: int) -> None:
        """Claim for so many runners less: there is no room for them."""
        self._in_flight.missing = missing

    def loops(self) -> list[ConsumerLoop]:
        """Return the loops of the queues; any thread may ask."""
        return [self.loop]

    def leave_hung(self) -> None:
        """Let a stop not wait for callbacks that have taken too long."""
        self.loop.leaves_hung = True

    def queue_of(self, batch: Batch) -> OneQueue:  # noqa: ARG002
        """Return the queue of a batch that a runner has taken."""
        return self

    def stop(self) -> None:
        """Take back what no runner has taken, from any thread; no callback starts any more."""
        self._stopping = True
        self.withdraw()


class ServerLoop:
    """The loop of the queues on one server, and what its driver knows of that server."""

    def __init__(self, executor: Any, loop: Any) -> None:
        """Send the calls of all queues over the connections of `executor`; the loop is an `OneQueue` or `PoolLoop`."""
        self.executor = executor
        self.loop = loop
        shared, alone = split_listening(loop.queues)
        check_connections(executor, 1 + bool(shared) + len(alone))
        self.listeners: dict[ServedQueue | SharedWaits, Any] = {}
        """Who listens for wake-ups: of a queue, or of those that share a wait."""
        self.error: Exception | None = None
        """Why the server does not answer, or what it refuses; None while all is well."""
        self.cancelled = False
        """Whether the task of this loop was cancelled."""
        self._idle_since: float | None = None
        """When a stop found that no callback runs while the server does not answer."""
        self.give_up_at = math.inf
        """Time until which a stop waits for the server once no callback runs."""

    def listen(self, listener: Callable[[ServedQueue | SharedWaits], Any]) -> list[Any]:
        """Listen for the wake-ups of all its queues; returns the listeners that are needed no more."""
        shared, alone = split_listening(self.loop.queues)
        waits = [one for one in self.listeners if isinstance(one, SharedWaits)]
        room = max(WAITED_TOGETHER, -(-len(shared) // max(1, int(min(self.executor.max_connections, 1 << 20)) - 1)))
        new = dict.fromkeys(shared)
        for one in waits:
            kept = [queue for queue in one.queues if new.pop(queue, alone) is None]
            added = [*new][: max(0, room - len(kept))]
            for queue in added:
                del new[queue]
            one.serve([*kept, *added])
        waits += map(SharedWaits, batched(new, room))
        needed: list[ServedQueue | SharedWaits] = [*alone, *(one for one in waits if one.queues)]
        for source in needed:
            if source not in self.listeners:
                self.listeners[source] = listener(source)
        over = self.listeners.keys() - {*needed}
        return [self.listeners.pop(one) for one in over]

    def waits_for_server(self, stop_at: float | None) -> bool:
        """Return whether to try again; a stop waits for running callbacks, but not for a server."""
        if stop_at is None:
            return True
        now = monotonic()
        if self.loop.any_running():
            self._idle_since = None
        else:
            self._idle_since = self._idle_since or now
            self.give_up_at = min(self.give_up_at, self._idle_since + EXIT_WITHIN)
        return now < min(stop_at, self.give_up_at)

    def releases(self) -> Iterator[Any]:
        """Yield the calls that release what no runner has taken, after the loop has failed."""
        for queue in self.loop.queues:
            taken: list[InFlightDelivery] = queue.take_back()
            for part in batched(taken, MAX_MOVED):
                yield queue.context.calls.release([Release(*one.receipt, unstarted=True) for one in part])

    def wakes(self) -> list[Any]:
        """Return the calls that pass on the wake-ups that came too late for the loop."""
        return [queue.context.calls.wake() for queue in self.loop.late]


def split_listening(queues: Iterable[ServedQueue]) -> tuple[list[ServedQueue], list[ServedQueue]]:
    """Return the queues that one blocking command can wait for together, and those that need one each.

    These are streams, and the queues of a cluster, whose keys may be on different nodes.
    """
    shared: list[ServedQueue] = []
    alone: list[ServedQueue] = []
    for queue in queues:
        (alone if queue.context.calls.waiting_takes or queue.executor.is_cluster else shared).append(queue)
    return shared, alone
