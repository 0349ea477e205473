"""A consumer tells every 10 s that it works, and what it has counted since: see `DelayQueue.workers` and `history`.

That takes one script, in a round trip that it makes anyway. If Redis refuses it, the consumer says so once and goes on.
The reply says how many others there are: they share their looks.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import nsmallest
from typing import Any

from delayq import __version__
from delayq.broker.context import EngineContext
from delayq.broker.replies import ClaimReply
from delayq.broker.stored_presence import (
    BUCKETS,
    MAX_NAMED,
    HourCounts,
    PresenceReply,
    WorkerEntry,
    keep_presence_call,
    presence_call,
)
from delayq.errors import DelayqError, UnavailableError
from delayq.safe_log import SafeLog
from delayq.values.lateness import LATENESS_BOUNDS
from delayq.worker.delivery.disposition import Completion, Disposition
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery
from delayq.worker.parts.part import Call, LoopPart, Stage, Turns

_ACK = Disposition.ACK
_NOT_STARTED = (Disposition.RELEASE, Disposition.STOP, Disposition.LEAVE, Disposition.NOTHING)
"""What was not started, or is delivered anew as the same attempt, or was settled by hand, which is looked at apart."""
COUNTED_AS = {
    Disposition.ACK: "acked",
    Disposition.DISCARD: "discarded",
    Disposition.DROP: "discarded",
    Disposition.JOIN: "acked",
    Disposition.NACK: "nacked",
    Disposition.REJECT: "rejected",
    Disposition.RELEASE: "released",
    Disposition.STOP: "released",
    Disposition.SNOOZE: "released",
    Disposition.LEAVE: "released",
}
BY_HAND = {"ack": "acked", "complete": "acked", "nack": "nacked", "reject": "rejected", "release": "released"}
"""What the scripts count that settle a message by hand."""


class Tally(LoopPart):
    """Plain numbers, of the consumer's loop alone."""

    stage = Stage.BESIDE

    def __init__(self) -> None:
        """Start with nothing counted."""
        self._reset()

    def _reset(self) -> None:
        self.delivered = self.callbacks = 0
        self.busy = 0.0
        self.outcomes = dict.fromkeys(HourCounts._fields[1:6], 0)
        self.lateness = [0] * BUCKETS

    def on_claimed(self, _: ClaimReply, added: list[InFlightDelivery], __: float, ___: float) -> None:
        """Count what was delivered."""
        self.delivered += len(added)

    def on_completed(self, completions: Sequence[Completion], _: float) -> None:
        """Count callbacks that have ended: how long they took, how late they started, and what they settled by hand."""
        lateness, callbacks, busy = self.lateness, 0, 0.0
        for deliveries, disposition, _text, _delay, took in completions:
            if took is not None:
                callbacks += 1
                busy += took
            started = disposition is _ACK or disposition not in _NOT_STARTED
            for delivery in deliveries:
                claimed, batch = delivery.claimed, delivery.batch
                if delivery.by_hand:
                    self.outcomes[BY_HAND[delivery.by_hand]] += 1
                    if delivery.by_hand == "release":
                        continue
                elif not started:
                    continue
                if batch is None or claimed.attempt != 1 or delivery.attributes.snoozes:
                    continue
                late: float = delivery.server_now - claimed.due
                if delivery.claimed_at:  # else the time of a test, in which it did not wait here
                    late += (batch.started - delivery.claimed_at) * 1000
                lateness[bisect_left(LATENESS_BOUNDS, late)] += 1
        self.callbacks += callbacks
        self.busy += busy

    def on_settled(self, disposition: Disposition, settled: Sequence[InFlightDelivery]) -> None:
        """Count what Redis has settled."""
        self.outcomes[COUNTED_AS[disposition]] += len(settled)

    def move(self, number: int) -> None:
        """Count messages that a relay has moved: delivered and done at once, without a callback."""
        self.delivered += number
        self.outcomes["acked"] += number

    def take(self) -> HourCounts | None:
        """Return what was counted, and begin anew; None for nothing."""
        busy = round(self.busy * 1_000_000)
        numbers = [self.delivered, *self.outcomes.values(), self.callbacks, busy]
        if not (any(numbers) or any(self.lateness)):
            return None
        counts = HourCounts._make([*numbers, tuple(self.lateness)])
        self._reset()
        return counts


log = SafeLog("delayq.consumer")

PRESENCE_EVERY = 10.0
"""Seconds between two reports of a consumer; a worker of many queues leaves more time between those of each."""
TIDY_EVERY = 30
"""One of so many reports removes what is too old, beside those that have counted something."""
MOST_TICKS = 4
"""Ticks between two looks of a consumer that takes turns with others, at most; a lease has as many looks, at least."""


class Presence(LoopPart):
    """When one consumer tells that it works, and what it tells. Times are local and monotonic, in seconds."""

    stage = Stage.BESIDE
    takes_errors = True

    def __init__(
        self,
        context: EngineContext,
        consumer_id: str,
        *,
        burst: bool = False,
        concurrency: int | None = None,
        served: Callable[[], tuple[list[str], int]] | None = None,
        every: Callable[[], float] = lambda: PRESENCE_EVERY,
        tally: Tally | None = None,
    ) -> None:
        """Tell at the start, in a `burst` only if it lasts; add what was counted to the history.

        A worker of several queues has its own `concurrency`, tells the first names of those it serves and how many they
        are, and says how long to wait until the next report (seconds).
        """
        self._calls: Any = context.calls
        self._consumer_id = consumer_id
        self._burst = burst
        self._concurrency = context.settings.concurrency if concurrency is None else concurrency
        self._served: Callable[[], tuple[list[str], int]] = served or (lambda: ([context.queue], 1))
        self._tick = context.settings.tick / 1000
        self._every = every
        self._started: float | None = None
        self._tally = tally
        self._stored = self._refused = False
        self._deliveries: Collection[InFlightDelivery] = ()
        self._lease = context.settings.lease / 1000
        self._take_turns: Callable[..., None] = lambda *_, **__: None
        self._told_at = self._next_at = 0.0
        self._reports = 0

    def connect(self, turns: Turns) -> None:
        """Tell what this loop has in flight, and have it share its looks with those of other consumers."""
        self._deliveries = turns.deliveries
        self._take_turns = turns.take_turns

    def next_at(self, _: float) -> float:
        """Return when to tell again."""
        return self._next_at

    def plan(self, now: float) -> Iterator[Call]:
        """Yield the call that tells, if it is due."""
        if now < self._next_at:
            return
        every = max(self._every(), self._tick)  # a longer tick makes fewer turns
        self._next_at = now + every
        if self._started is None:
            self._started = now
            if self._burst:
                return
        self._stored, self._told_at = True, now
        entry = self._entry(now, started=self._started, every=every)
        counted, tidies = self._counted(), self._reports % TIDY_EVERY == 0
        self._reports += 1
        if counted or tidies:
            yield presence_call(self._calls, self._consumer_id, entry, counted), self.read
        else:
            yield keep_presence_call(self._calls, self._consumer_id, entry), self.read

    def _counted(self) -> HourCounts | None:
        return None if self._tally is None else self._tally.take()

    def _entry(self, now: float, *, started: float, every: float) -> WorkerEntry:
        names, number = self._served()
        deliveries = self._deliveries
        return WorkerEntry(
            host=os.uname().nodename,
            pid=os.getpid(),
            version=__version__,
            queues=names,
            served=number,
            concurrency=self._concurrency,
            every=round(every * 1000),
            up=round((now - started) * 1000),
            held=len(deliveries),
            running=[(id, max(0, round((now - began) * 1000))) for began, id in _longest(deliveries)],
        )

    def read(self, reply: object) -> None:
        """Note the reply; that Redis refuses reports is logged once, until it accepts one again."""
        if isinstance(reply, UnavailableError):  # a stop that waits no longer
            return
        if isinstance(reply, DelayqError):
            self._stored = False
            if not self._refused:
                log.warning("this worker is not among those of the queue, since Redis refuses its reports: %s", reply)
        self._refused = isinstance(reply, DelayqError)
        if isinstance(reply, PresenceReply):
            self._share_looks(reply)

    def _share_looks(self, reply: PresenceReply) -> None:
        """Look in turn with the other consumers, so that two of them look in each tick, or more."""
        before, workers = reply.before, reply.workers
        every = max(self._tick, min(self._tick * min(workers / 2, MOST_TICKS), self._lease / MOST_TICKS))
        since = (reply.now / 1000 - before / workers * every) % every
        self._take_turns(every, self._told_at - since, workers=workers)

    def leave(self) -> list[Any]:
        """Return the call that removes the entry, if there may be one, and adds what was counted last."""
        stored, self._stored = self._stored, False
        if self._refused:
            return []
        counted = self._counted()
        return [presence_call(self._calls, self._consumer_id, None, counted)] if stored or counted else []


def _longest(deliveries: Iterable[InFlightDelivery]) -> list[tuple[float, str]]:
    """Return when callbacks have started, and on which messages, those that run for longest."""
    started = ((one.batch.started, one.claimed.id) for one in deliveries if one.batch is not None)
    return nsmallest(MAX_NAMED, started)
