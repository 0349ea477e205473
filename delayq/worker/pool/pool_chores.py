"""What the loop of a worker does for all of its queues together, beside their own loops.

A chore is a generator: it yields the calls of its next round trip, or how long it waits, and receives the replies
with the local time. Errors are replies, too. Its calls travel in the round trips of the queues.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from delayq.broker.batches import batched
from delayq.broker.shared_calls import any_exists, any_missing, merged
from delayq.broker.transport.operation import Operation, Wait, first_error, reads_errors
from delayq.errors import DelayqError
from delayq.worker.pool.pool import Identity, PoolQueue
from delayq.worker.pool.pool_part import QueuePart

T = TypeVar("T")

TOGETHER = 200
"""Empty queues that one command looks at."""
CHECK_EVERY = 10.0
"""Seconds between two checks that Redis still has the queues."""
SAMPLE = 10
"""Queues whose identity is read in each check; of the others it sees only whether they exist."""


class Answered(NamedTuple):
    """What a chore receives: the replies to its calls, with errors, and the local time."""

    replies: Sequence[Any]
    now: float


ChoreSteps = Generator[list[Any] | Wait, Answered, T]


class Chore:
    """One chore, and what it waits for."""

    def __init__(self, steps: ChoreSteps[None]) -> None:
        """Begin at the first turn."""
        self._steps = steps
        self._began = False
        self._step: list[Any] | Wait = Wait(0)
        self.next_at = 0.0
        """When it has something to do; infinite once it has ended."""

    @property
    def ended(self) -> bool:
        """Whether it has nothing to do any more."""
        return self.next_at == math.inf

    def calls(self, now: float) -> list[Any]:
        """Return its calls for a round trip, if it has any now."""
        while self.next_at <= now:
            if not isinstance(self._step, Wait):
                return self._step
            self._send(Answered((), now))
        return []

    def answer(self, replies: Sequence[Any], now: float) -> None:
        """Take the replies to these calls."""
        self._send(Answered(replies, now))

    def _send(self, answered: Answered) -> None:
        try:
            self._step = self._steps.send(answered) if self._began else next(self._steps)
            self._began = True
        except StopIteration:
            self.next_at = math.inf
            return
        self.next_at = answered.now + (self._step.seconds if isinstance(self._step, Wait) else 0.0)


class EmptyWatch:
    """Looks once a tick at the queues that were empty, many with one command: a wake-up may have been lost."""

    def __init__(self, parts: dict[PoolQueue, QueuePart]) -> None:
        """Look at those of these queues that are watched."""
        self._parts = parts
        self.found: list[QueuePart] = []
        """Those with something in them."""

    def run(self) -> ChoreSteps[None]:
        """Look at a part of them at a time, all within a tick."""
        while True:
            groups = [*batched([part for part in self._parts.values() if part.watched], TOGETHER)]
            if not groups:
                yield Wait(1.0)
            for group in groups:
                tick = min(part.queue.context.settings.tick for part in group) / 1000
                yield Wait(tick / len(groups))
                yield from self._look([part for part in group if part.rests_until is not None and part.is_empty])

    def _look(self, parts: list[QueuePart]) -> ChoreSteps[None]:
        if not parts:
            return
        checks: list[Any] = [part.queue.context.calls.is_empty() for part in parts]
        (found,), now = yield [any_exists(checks)]
        replies: Sequence[Any] = [True] * len(parts)
        if found is not False:
            replies, now = yield checks
        for part, empty in zip(parts, replies, strict=True):
            if empty is True:
                part.queue.loop.outlook.looked_at = now
            elif part.rests_until is not None:
                self.found.append(part)


class IdentityWatch:
    """Checks from time to time that Redis still has the queues, and opens again those that it has lost."""

    def __init__(self, parts: dict[PoolQueue, QueuePart], *, in_cluster: bool) -> None:
        """Check these queues; those of a cluster one by one."""
        self._parts = parts
        self._checked = 0
        self._in_cluster = in_cluster

    def run(self) -> ChoreSteps[None]:
        """Check all of them every 10 s."""
        while True:
            yield Wait(CHECK_EVERY)
            known = [queue.identity for queue in self._parts if queue.identity is not None]
            if registering := merged([identity.register for identity in known if identity.register is not None]):
                yield registering
            if known and (yield from self._suspects(known)):
                for some in batched(known, TOGETHER):
                    replies, _ = yield [identity.request for identity in some]
                    for identity, reply in zip(some, replies, strict=True):
                        made_anew = reply is not None or identity.restores
                        if made_anew and not isinstance(reply, DelayqError) and not identity.is_known(reply):
                            yield from attempt(identity.reopen())

    def _suspects(self, known: list[Identity]) -> ChoreSteps[bool]:
        """Return whether any of the queues may be lost: one does not exist, or one of a sample is another."""
        self._checked += SAMPLE
        first = self._checked % len(known)
        sample = (known[first:] + known[:first])[: len(known) if self._in_cluster else SAMPLE]
        groups = [*batched(known, TOGETHER)] if len(known) > len(sample) else []
        calls = [any_missing([identity.request for identity in group]) for group in groups]
        replies, _ = yield [*(identity.request for identity in sample), *calls]
        return any(missing is True for missing in replies[len(sample) :]) or not all(
            isinstance(reply, DelayqError) or identity.is_known(reply)
            for identity, reply in zip(sample, replies, strict=False)
        )


def attempt(operation: Operation[T]) -> ChoreSteps[T | DelayqError]:
    """Carry out an operation as a part of a chore; returns its result, or its error."""
    try:
        step = next(operation)
        while True:
            replies, _ = yield step if isinstance(step, Wait) else [*step]
            error = None if reads_errors(step) else first_error([*replies])
            step = operation.send([*replies]) if error is None else operation.throw(error)
    except StopIteration as end:
        return cast("T", end.value)
    except DelayqError as error:
        return error
