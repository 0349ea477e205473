"""The loops of a worker that shares out the limit of its queue among the partitions; see `sharing`."""

from __future__ import annotations

from collections.abc import Generator
from copy import copy
from typing import Any

from delayq.broker.transport.operation import Wait
from delayq.queue.sharing.sharing import Sharing, Turn, share_while_busy
from delayq.worker.drivers.served import ServerLoop
from delayq.worker.loop.loop_steps import RoundTrip, Sleep, Step, StepResult
from delayq.worker.pool.pool import Pool, PoolQueue
from delayq.worker.pool.pool_chores import Answered, attempt
from delayq.worker.pool.pool_loop import PoolLoop


class PartitionsLoop(PoolLoop):
    """The loop of the partitions on one server. A burst goes on while a limit lets others start."""

    sharing: Sharing | None = None

    def run(self) -> Generator[Step, StepResult, None]:
        """Consume; see `PoolLoop.run`."""
        while True:
            yield from super().run()
            if not self._burst or self._stop_at is not None or not (yield from self._share()):
                return
            for queue in self._first:
                queue.start()

    def _share(self) -> Generator[Step, StepResult, bool]:
        """Share out the limit of the queue, if there is one; returns whether something that waits may start now."""
        if self.sharing is None or not any(queue.loop.outlook.ranks for queue in self._first):
            return False
        while True:
            found = yield from _performed(self.sharing)
            if not isinstance(found, Turn) or not found.whole.limits:
                return False
            if found.is_own or self._stop_at is not None:
                return found.opened
            yield Sleep(found.next_in, listen=False)


def _performed(sharing: Sharing) -> Generator[Step, StepResult, Any]:
    steps = attempt(sharing.turn())
    step = next(steps)
    while True:
        result = yield Sleep(step.seconds, listen=False) if isinstance(step, Wait) else RoundTrip(step)
        try:
            step = steps.send(Answered(result.replies, result.now))
        except StopIteration as end:
            return end.value


def begin_sharing(queue: Any, servers: list[ServerLoop], pool: Pool, *, burst: bool) -> None:
    """Have one of the loops of a worker share out the limit of a queue: one of its own where there are several nodes.

    So a node that does not answer holds up only that.
    """
    sharing = Sharing(queue)
    has_own = len(servers) > 1 and not burst
    loop = servers[0].loop
    if burst:
        for server in servers:
            server.loop.sharing = sharing
    elif has_own:
        executor = copy(queue.executor)
        executor.opening = executor.checking = None
        loop = PoolLoop([], pool, in_cluster=True)
        servers.append(ServerLoop(executor, loop))

    def served() -> list[PoolQueue]:
        return [one for server in [*servers] for one in [*server.loop.queues]]  # copied: both may change meanwhile

    loop.begin(share_while_busy(sharing, served), stays=has_own)
