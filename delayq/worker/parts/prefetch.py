"""How many messages a consumer claims beyond those that its free workers start at once."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.broker.replies import ClaimReply
from delayq.options import MAX_PREFETCH, Settings
from delayq.values.times import Latency
from delayq.worker.delivery.disposition import Completion
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery
from delayq.worker.parts.part import LoopPart, Stage

PREFETCH_SECONDS = 0.1
"""Seconds of work to prefetch by default: enough to keep the workers busy, too little to hoard messages."""
MAX_CLAIMED = 250
"""Messages per claim from a near server, unless the batch is larger. This is about half of the maximal prefetch, so the
server works on one half while callbacks run on the other."""
FAR = 0.002
"""Seconds of a round trip for each time that as much is claimed at once: on one machine, a round trip takes less."""
MESSAGE_TIME = 0.000015
"""Seconds that each message of a claim adds to a round trip that also settles as many, without any latency."""
MAX_TIMES = 4
"""How many times as much at most."""
MANY = 50
"""So many workers use up a claim while the next one is on its way, so they get twice as much, near the server too."""
MAX_UNSTARTED = 1.0
"""Seconds for which a prefetched message may wait for a busy worker before it is released: ten times what it should."""


class Prefetch(LoopPart):
    """Estimates the prefetch of a consumer from how long its callbacks take; a fixed `prefetch` needs no estimate."""

    stage = Stage.BESIDE

    def __init__(self, settings: Settings, batch: int) -> None:
        """Start unmeasured: nothing is prefetched until a callback has ended. A callback takes up to `batch`."""
        self.adaptive = settings.prefetch is None
        self._fixed = settings.prefetch or 0
        self._concurrency = settings.concurrency
        self._batch = batch
        self._took: float | None = None
        self._paused = False
        self._near = 2 if settings.concurrency >= MANY else 1
        self.shares = 1
        """How many times as much to claim because many queues share it: each gets a part of a claim."""
        self.latency = Latency(MESSAGE_TIME)

    @property
    def times(self) -> int:
        """How many times as much as few workers do from a near server to claim at once, and to prefetch: 1 to 4."""
        return min(MAX_TIMES, max(self._near, self.shares, int(self.latency.seconds / FAR)))

    @property
    def max_claimed(self) -> int:
        """How many messages to claim at a time at most."""
        return max(self._batch, MAX_CLAIMED * self.times)

    def on_claimed(self, claimed: ClaimReply, _: list[InFlightDelivery], sent_at: float, now: float) -> None:
        """Learn how long a round trip takes."""
        self.latency.measure(now - sent_at, len(claimed.messages))

    def on_completed(self, completions: Sequence[Completion], _: float) -> None:
        """Update the average time that a callback takes."""
        average = self._took
        for *_rest, took in completions:
            if took is not None:
                average = took if average is None else 0.9 * average + 0.1 * took
                self._paused = False
        self._took = average

    def pause(self) -> None:
        """Prefetch nothing until a callback has ended: messages were released because the estimate was wrong."""
        self._paused = True

    def limit(self, stalled: float) -> int:
        """Return how many messages to prefetch if for `stalled` seconds all workers have been busy and none started.

        Callbacks that still run have no time yet. Once they have lasted too long to prefetch, averages do not count.
        """
        if not self.adaptive:
            return self._fixed
        if self._took is None or self._paused or stalled > PREFETCH_SECONDS:
            return 0
        # Whole batches only: a part of one would start the next callback with less than is ready by then.
        callbacks = int(PREFETCH_SECONDS * self._concurrency / max(self._took, 1e-6))
        return min(MAX_PREFETCH * self.times, callbacks * self._batch)

    @property
    def may_guess(self) -> bool:
        """Whether one callback may be claimed ahead without an estimate that says so, beside those of other queues."""
        return self.adaptive and not self._paused
