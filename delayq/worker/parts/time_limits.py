"""How long the callbacks of one consumer may run, and which have run for longer.

A message may have a `timeout`, else its task, else `max_consume_duration` of the queue counts. A callback that runs for
longer has failed its attempt, whether it ends or not: it is overdue, and another runner takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from delayq.broker.context import EngineContext
from delayq.broker.replies import ClaimReply
from delayq.safe_log import SafeLog
from delayq.worker.delivery.attempt_log import log_completions
from delayq.worker.delivery.disposition import Completion, timed_out
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.parts.part import LoopPart, Stage, Turns

log = SafeLog("delayq.consumer")

MAX_HUNG = 10
"""Callbacks that may be overdue before claiming rests, or `concurrency` if that is more: each may keep a thread."""
LOOK_AFTER = 0.1
"""Seconds after a claim or an end when the consumer looks which callbacks have started, and how long each may run."""


class TimeLimits(LoopPart):
    """Fails the attempts whose callbacks have taken too long. If one succeeds after all, that counts still."""

    stage = Stage.RENEW
    _turns: Turns

    def __init__(self, context: EngineContext, *, limited: bool) -> None:
        """Start with none; `limited` says that a callback may have a limit of its own, which it tells as it starts."""
        self.limited = limited
        """Whether callbacks may have limits of their own: they are looked at as they start."""
        self.overdue: set[InFlightDelivery] = set()
        """Deliveries whose callbacks have taken too long, until these end after all."""
        self.abandoned = 0
        """How many such callbacks there have been."""
        self.stuck = False
        """Whether so many callbacks are overdue that no more are started."""
        self._next_at = math.inf
        """When to look again."""
        self.hung_since = math.inf
        """When the first of the overdue was noticed; infinite if there are none."""
        self._noticed: dict[Batch | None, float] = {}
        self._context, settings = context, context.settings
        self._default = settings.max_consume_duration
        self._concurrency = settings.concurrency
        self._tick = settings.tick / 1000

    def connect(self, turns: Turns) -> None:
        """Learn to what loop it belongs."""
        self._turns = turns

    def on_claimed(self, _: ClaimReply, added: list[InFlightDelivery], __: float, now: float) -> None:
        """Note the limits of messages, whose callbacks may start from now on."""
        for delivery in added:
            if (timeout := delivery.attributes.timeout) > 0:
                delivery.timeout, self.limited = timeout, True
        self._check_after(now)

    def on_completed(self, completions: Sequence[Completion], now: float) -> None:  # noqa: ARG002
        """Forget what has ended after all."""
        if self.overdue:
            self.overdue.difference_update(*(deliveries for deliveries, *_ in completions))
            self._count_hung()

    def next_at(self, now: float) -> float:  # noqa: ARG002
        """Return when to look again."""
        return self._next_at if self._turns.deliveries else math.inf

    def look(self, now: float) -> None:
        """Fail what has taken too long by now, and note when to look again."""
        if now < self._next_at:
            return
        batches: dict[Batch | None, list[InFlightDelivery]] = {}
        for delivery in self._turns.deliveries:
            batches.setdefault(delivery.batch, []).append(delivery)
        self._next_at = math.inf
        for batch, members in batches.items():
            if batch is None:  # not started
                self._check_after(now)
            elif batch.running:
                limit = self._limit_of(members)
                if now - batch.started < limit:
                    self._look_again(batch.started, limit, now)
                elif batch.conclude():  # else its completion is on its way
                    self._noticed[batch] = now
                    self._abandon(members)
                    self._fail(batch, members, limit)

    def _fail(self, batch: Batch, members: list[InFlightDelivery], limit: float) -> None:
        policy = self._context.settings.policy
        failed = [timed_out(members, limit, policy)]
        self._turns.settle(log_completions(failed, None, policy, self._context.queue))
        self._turns.interrupt([batch])

    def _check_after(self, now: float) -> None:
        wait = LOOK_AFTER if self.limited else self._default / 1000
        self._next_at = min(self._next_at, now + wait)

    def _limit_of(self, members: Iterable[InFlightDelivery]) -> float:
        return min(delivery.timeout or self._default for delivery in members) / 1000

    def _look_again(self, started: float, limit: float, now: float) -> None:
        at = started + limit
        if self.limited:  # a callback may not have told its limit yet
            at = min(at, now + (LOOK_AFTER if now - started < LOOK_AFTER else self._tick))
        self._next_at = min(self._next_at, at)

    def _abandon(self, members: list[InFlightDelivery]) -> None:
        self.overdue.update(members)
        self.abandoned += 1
        self._count_hung()

    def _count_hung(self) -> None:
        batches = {delivery.batch for delivery in self.overdue}
        self._noticed = {batch: at for batch, at in self._noticed.items() if batch in batches}
        self.hung_since, hung = min(self._noticed.values(), default=math.inf), len(batches)
        stuck = hung >= max(MAX_HUNG, self._concurrency)
        if stuck and not self.stuck:
            text = "%d callbacks hang: no more messages are claimed until one ends; restart the worker if none does"
            log.error(text, hung)
        elif self.stuck and not stuck:
            log.warning("a callback that hung has ended: messages are claimed again")
        self.stuck = stuck
