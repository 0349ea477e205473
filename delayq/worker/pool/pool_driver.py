"""The driver of a worker with several queues: a loop for each server, and one pool of threads for all callbacks."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from delayq.broker.batches import batched
from delayq.broker.requests import Release
from delayq.broker.scripts import MAX_MOVED
from delayq.errors import StoppedByCallbackError
from delayq.values.times import Duration, monotonic
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery
from delayq.worker.drivers.drivers import (
    EXIT_WITHIN,
    HasMissing,
    ThreadDriver,
    ThreadSignal,
    ThreadSignals,
    WorkerStarts,
    stop_log,
)
from delayq.worker.drivers.health import OnHealthChange
from delayq.worker.drivers.wakeup import Listener, check_connections
from delayq.worker.loop.consumer_loop import ConsumerLoop
from delayq.worker.loop.loop_steps import RoundTrip, Run, Sleep, StepResult
from delayq.worker.pool.pool import Pool
from delayq.worker.pool.pool_chores import ChoreSteps
from delayq.worker.pool.pool_loop import PoolLoop
from delayq.worker.pool.pool_queue import PoolQueue
from delayq.worker.pool.shared_wakeup import SharedListener, SharedWaits

if TYPE_CHECKING:
    from delayq.broker.transport.executor import Executor


WAITED_TOGETHER = 100
"""Queues that one blocking command waits for: each that it waits for costs the server a microsecond at each wake-up."""


class ServerLoop:
    """The loop of the queues on one server, and what its driver knows of that server."""

    def __init__(
        self,
        executor: Any,
        queues: Sequence[PoolQueue],
        pool: Pool,
        *,
        burst: bool,
        discovers: Callable[[PoolLoop], ChoreSteps[None]] | None = None,
    ) -> None:
        """Send the calls of all queues over the connections of `executor`.

        `discovers` makes a chore that adds and removes queues.
        """
        self.executor = executor
        self.loop = PoolLoop(queues, pool, in_cluster=executor.is_cluster, burst=burst)
        if discovers is not None:
            self.loop.begin(discovers(self.loop), stays=True)
        shared, alone = split_listening(queues)
        check_connections(executor, 1 + bool(shared) + len(alone))
        self.listeners: dict[PoolQueue | SharedWaits, Any] = {}
        """Who listens for wake-ups: of a queue, or of those that share a wait."""
        self.error: Exception | None = None
        """Why the server does not answer, or what it refuses; None while all is well."""
        self.cancelled = False
        """Whether the task of this loop was cancelled."""
        self._idle_since: float | None = None
        self.give_up_at = math.inf
        """Time until which a stop waits for the server once no callback runs."""

    def listen(self, listener: Callable[[PoolQueue | SharedWaits], Any]) -> list[Any]:
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
        needed: list[PoolQueue | SharedWaits] = [*alone, *(one for one in waits if one.queues)]
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
        """Yield the calls that release what no worker has taken, after the loop has failed."""
        for queue in self.loop.queues:
            queue.buffer.withdraw(queue.withdrawn)
            for part in batched(
                [Release(*delivery.receipt, unstarted=True) for delivery in queue.withdrawn], MAX_MOVED
            ):
                yield queue.context.calls.release(part)

    def wakes(self) -> list[Any]:
        """Return the calls that pass on the wake-ups that came too late for the loop."""
        return [queue.context.calls.wake() for queue in dict.fromkeys(self.loop.news) if queue.woken]


def split_listening(queues: Iterable[PoolQueue]) -> tuple[list[PoolQueue], list[PoolQueue]]:
    """Return the queues that one blocking command can wait for together, and those that need one each.

    These are streams, and the queues of a cluster, whose keys may be on different nodes.
    """
    shared: list[PoolQueue] = []
    alone: list[PoolQueue] = []
    for queue in queues:
        (alone if queue.context.calls.waiting_takes or queue.executor.is_cluster else shared).append(queue)
    return shared, alone


class PoolState(WorkerStarts):
    """What the drivers with threads and with tasks share: stopping, health, and starting workers."""

    pool: Pool
    servers: Sequence[ServerLoop]
    claimed: int
    _stop_at: float | None
    _grace: float
    _signal_worker: Callable[[], None]

    @property
    def grace(self) -> float:
        """Seconds that a stop waits for running callbacks unless it says otherwise."""
        return self._grace

    def _loops(self) -> list[ConsumerLoop]:
        return [queue.loop for queue in [*self.pool.queues.values()] if queue.started]

    def leave_hung(self) -> None:
        """Let a stop not wait for callbacks that have taken too long: the process ends with them."""
        self.pool.leaves_hung = True
        for loop in self._loops():
            loop.leaves_hung = True

    def _raise_stop(self) -> None:
        """Log and raise the error of a worker that a callback has stopped."""
        self._raise_death()
        if (queue := self.pool.stopped_by) is not None:
            reason, name = str(queue.buffer.stop_reason), queue.context.queue
            stop_log.error("a callback of %s stopped the worker: %s", name, reason, extra={"queue": name})
            raise StoppedByCallbackError(reason)

    def _report_of(self, server: ServerLoop, result: StepResult) -> StepResult:
        """Add what has happened meanwhile to the result of a step."""
        result.now = monotonic()
        self.health.turn(result.now, server)
        self._fill_up()
        if self.pool.stop_reason is not None and self._stop_at is None:
            self.stop(None)
        result.stop_at = None if self._stop_at is None else min(self._stop_at, server.give_up_at)
        return result

    def _report_error(self, server: ServerLoop, error: Exception | None) -> None:
        """Report the health of the worker: the error of any server."""
        if error is not server.error or error is not None:
            server.error = error
            self.health.report(next((one.error for one in self.servers if one.error), None))

    def _retries(self, server: ServerLoop, error: Exception) -> bool:
        self._report_error(server, error)
        self.health.turn(monotonic(), server)
        return server.waits_for_server(self._stop_at)

    def _start(self, deliveries: list[InFlightDelivery]) -> None:
        """Start as many workers as the deliveries need, and signal one."""
        self.claimed += len(deliveries)
        self._start_workers(self.pool.workers)
        self._signal_worker()

    def _full_number(self) -> tuple[int, HasMissing]:
        return self.pool.concurrency + self.pool.abandoned, self.pool


class PoolDriver(PoolState, ThreadDriver):
    """Drives the queues of a worker with threads: one loop a server, and up to `concurrency` workers."""

    _executor: Executor

    def __init__(
        self,
        pool: Pool,
        servers: Sequence[ServerLoop],
        name: str,
        *,
        grace: float,
        on_health_change: OnHealthChange | None = None,
    ) -> None:
        """Drive the queues of a pool, which are on these servers."""
        self.pool, self.servers = pool, servers
        self._grace = grace
        self._buffer: Any = pool
        self._prepare(name, on_health_change)
        self._prepare_threads()
        self._signals = {server: ThreadSignal() for server in self.servers}
        self._loop_signal: Any = ThreadSignals([*self._signals.values()])
        self._starting = threading.Lock()
        self._loops_to_start = [*self.servers[1:]]
        self._loop_threads: list[threading.Thread] = []
        self._failure: BaseException | None = None

    def stop(self, grace: Duration | None) -> None:
        """Stop within `grace`, by default the worker's; harmless when stopped already, and from inside a callback."""
        self._stop_within(grace)
        self.pool.withdraw()  # at once: no callback may start while a loop is busy
        self._loop_signal.send()

    def run(self) -> None:
        """Run the loops to their end; raises `StoppedByCallbackError` if a callback stopped the worker."""
        with self._starting:
            self._start_loops()
        self._run_server(self.servers[0])
        while (server := self._next_to_start()) is not None:  # there was no room for its thread
            self._run_server(server)
        for thread in self._loop_threads:
            thread.join()
        self._ended = True
        for _ in list(self._workers):
            self._worker_signal.put(None)
        if self._failure is not None:
            raise self._failure
        self._raise_stop()

    def _start_loops(self) -> None:
        """Start the loops of the other servers, as far as there is room for their threads; for who holds the lock."""
        while self._loops_to_start and not self.stopped:
            server = self._loops_to_start.pop()
            thread = self._own_threads.start(partial(self._run_server, server), f"{self.name}-loop")
            if thread is None:
                self._loops_to_start.append(server)
                return
            self._loop_threads.append(thread)

    def _next_to_start(self) -> ServerLoop | None:
        with self._starting:
            return self._loops_to_start.pop() if self._loops_to_start else None

    def _fill_up(self) -> None:
        if self._missing or self._loops_to_start:
            with self._starting:
                self._start_loops()
                self._start_workers()

    def _run_server(self, server: ServerLoop) -> None:
        try:
            self._drive(server)
        except BaseException as error:  # noqa: BLE001 - raised by `run`
            self._failure = self._failure or error
            self.stop(None)  # a worker serves all of its queues or none
        finally:
            self.health.end(server)

    def _drive(self, server: ServerLoop) -> None:
        server.loop.on_change = partial(self._listen, server)
        steps = server.loop.run()
        try:
            step = next(steps)
            while True:
                result = StepResult(0.0)
                if isinstance(step, RoundTrip):
                    result.replies = self._exchange(server, step.calls)
                elif isinstance(step, Run):
                    with self._starting:
                        self._start(step.deliveries)
                elif isinstance(step, Sleep):
                    for listener in server.listeners.values():
                        listener.listen(on=step.listen)
                    self._signals[server].sleep(0 if server.loop.finished else self._own_threads.sleeping(step.seconds))
                step = steps.send(self._report_of(server, result))
                self._report_error(server, server.loop.error)
        except StopIteration:
            return
        except BaseException:
            with suppress(Exception):
                server.executor.run(list(server.releases()), deadline=0)
            raise
        finally:
            for listener in server.listeners.values():
                listener.close(wait=self._exiting)
            if wakes := server.wakes():
                server.executor.run(wakes, deadline=0)

    def _listen(self, server: ServerLoop) -> None:
        """Listen for the wake-ups of the queues that the loop has now."""
        signal, executor = self._signals[server], server.executor

        def make(source: PoolQueue | SharedWaits) -> Listener:
            if isinstance(source, SharedWaits):
                return SharedListener(executor, source, signal.send, self._own_threads)
            on_wakeup = partial(self._on_queue_woken, source, signal)
            return Listener(executor, source.context.calls, on_wakeup, self._own_threads)

        over = server.listen(make)
        for listener in over:
            listener.close()

    def _exchange(self, server: ServerLoop, calls: list[Any]) -> list[Any]:
        return list(server.executor.run(calls, should_retry=partial(self._retries, server)))

    def _on_queue_woken(self, queue: PoolQueue, signal: ThreadSignal) -> None:
        queue.wake()
        signal.send()
