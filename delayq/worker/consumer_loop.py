"""The consumer's decisions: when to poll, how much to claim, when to renew, settle, collect, sleep and stop.

The loop is a generator without clock, socket, thread or event loop: it yields a `Step` and receives a `StepResult`.
`drivers` act. One turn of the loop is one round trip. Its calls run in this order: settlements, heartbeat, expiry,
collection, schedules, promotion, claim.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from typing import Any

from delayq.broker.context import EngineContext
from delayq.broker.replies import ClaimReply, CollectReply, ExpireReply, PromoteReply
from delayq.errors import DelayqError
from delayq.worker.clock_estimate import ClockEstimate
from delayq.worker.disposition import Completion, Disposition
from delayq.worker.in_flight import InFlight
from delayq.worker.loop_steps import Cancel, RoundTrip, Run, Sleep, Step, StepResult, Withdraw
from delayq.worker.message import InFlightDelivery
from delayq.worker.schedule_firing import ERROR_WAIT, ScheduleFirer
from delayq.worker.settlements import PendingSettlements
from delayq.worker.start_reports import StartReports

log = logging.getLogger("delayq.consumer")

COLLECT_EVERY = 60.0
"""Seconds between collections when no message is known to be spent: they also trim the dead letter by age."""
MAX_CLAIMED = 250
"""Messages per claim, unless the batch is larger. This is about half of the maximal prefetch, so the server works on
one half while callbacks run on the other."""

Plan = list[tuple[Any, Callable[[Any], None]]]
"""The calls of one turn, each with the function that reads its reply."""


class ConsumerLoop:
    """The decisions of one consumer. Times are local and monotonic, in seconds; None means never."""

    def __init__(
        self,
        context: EngineContext,
        consumer_id: str,
        *,
        batch: int = 1,
        burst: bool = False,
        reports_starts: bool = True,
    ) -> None:
        """Consume as `consumer_id`, up to `batch` messages per callback; with `burst`, until nothing is due.

        Set `reports_starts` to False if each message starts as soon as it is claimed.
        """
        self.in_flight = InFlight(context.calls, context.settings, batch)
        self.settlements = PendingSettlements(context.calls, context.settings)
        self._max_claimed = max(batch, MAX_CLAIMED)
        self._context = context
        self._tick = context.settings.tick / 1000
        self.schedule_firer = ScheduleFirer(context.calls, self._tick)
        self.start_reports = StartReports(context.calls, self.in_flight, enabled=reports_starts)
        self._consumer_id = self.start_reports.consumer_id(consumer_id)
        self._burst = burst
        self._now = 0.0
        self._sent_at = 0.0
        self._server_clock = ClockEstimate()
        self._due_at: float | None = None
        self._deadline_at: float | None = None
        self._collect_at = 0.0
        self._wait_until = 0.0
        self._stop_at: float | None = None
        self._more_ready = True
        self._woken = False
        self._drained = False
        self._settling = False
        self._settle_calls = 0
        self._refused = False
        self._completed = False
        self.error: DelayqError | None = None
        """What Redis refused in the last turn; None if nothing."""
        self._claimed: list[InFlightDelivery] = []

    def run(self) -> Generator[Step, StepResult, None]:
        """Consume until stopped; in a burst, until nothing is due. A wake-up that arrives at the end is passed on."""
        yield from self._consume()
        if self._woken:
            self._update((yield Sleep(0, listen=False)))
        while self._woken:
            self._update((yield RoundTrip([self._claim(0)[0]])))

    def _consume(self) -> Generator[Step, StepResult, None]:
        result = yield Sleep(0, listen=False)
        while True:
            self._update(result)
            if self._stop_at is not None:
                yield from self._stop()
                return
            yield from self._release_unstarted()
            plan = self._plan()
            self._sent_at = self._now
            result = yield RoundTrip([call for call, _ in plan])
            self._update(result)
            self._read(plan, result)
            if self._refused:  # claimed beside the refused settlements
                self._release(self._claimed)
                self._claimed = []
            if self._claimed or self.in_flight.overdue:
                result = yield Run(self._claimed)
                self._update(result)
            busy = self.in_flight or self.settlements or self._completed
            if self._burst and self._drained and not busy:
                return
            result = yield Sleep(self._idle_time(), listen=self._capacity() > 0)

    def _release_unstarted(self) -> Generator[Step, StepResult, None]:
        """Release what has waited too long for a busy worker: another consumer may be idle."""
        release_at = self.in_flight.release_at()
        if release_at is not None and release_at <= self._now:
            result = yield Withdraw()
            self._update(result)
            self._release(result.withdrawn)
            self.in_flight.prefetch.pause()
        self.in_flight.recalled = self._refused  # also if what was to be returned has started meanwhile

    def _release(self, withdrawn: Sequence[InFlightDelivery]) -> None:
        self._complete([Completion([*self.start_reports.release_alone(), *withdrawn], Disposition.RELEASE)])

    def _stop(self) -> Generator[Step, StepResult, None]:
        """Release what has not started, wait for running callbacks, nack those cut off, and settle everything."""
        result = yield Withdraw()
        self._release(result.withdrawn)
        cancelled = False
        while True:
            self._update(result)
            plan = self._housekeeping()
            if plan:
                result = yield RoundTrip([call for call, _ in plan])
                self._update(result)
                self._read(plan, result)
            late = self._stop_at is not None and self._now >= self._stop_at
            if not (self.in_flight or self.settlements) or (late and cancelled):
                break
            if late:
                running = [delivery for delivery in self.in_flight.deliveries if not delivery.settled]
                for delivery in running:
                    delivery.lost = True
                result = yield Cancel()
                cancelled, self._wait_until = True, 0.0
                self._complete([Completion(running, Disposition.NACK, "cut off by a stop", 0)])
            else:
                result = yield Sleep(self._stopping_idle_time(self._stop_at or 0.0), listen=False)
        if self.settlements:
            text = "stopped with %d settlements unsent; these messages will be delivered again"
            log.error(text, len(self.settlements))

    def _update(self, result: StepResult) -> None:
        self._now = result.now
        self._woken |= result.woken
        self._stop_at = result.stop_at
        if result.completions:
            # A callback may have returned messages by hand after this turn polled.
            self._completed = True
            self.start_reports.check_after(self._now)
            self._complete(result.completions)

    def _complete(self, completions: Sequence[Completion]) -> None:
        self.in_flight.complete(completions)
        self.settlements.add(completions)

    def _capacity(self) -> int:
        """Return how many more may be claimed: none while settlements are refused, or while one waits to run alone."""
        if self._refused:
            return 0
        if self.start_reports.is_exclusive(self._now):
            return -len(self.settlements)
        return self.in_flight.capacity(self._now) - len(self.settlements)

    # What to do next

    def _housekeeping(self) -> Plan:
        self._settle_calls = 0
        if self._now < self._wait_until:
            return []
        settling = list(self.settlements.settle())
        self._settle_calls = len(settling)
        reports = self.start_reports.plan(self._now, self._on_alone)
        return [*settling, *self.in_flight.heartbeat(self._now), *reports]

    def _plan(self) -> Plan:
        """Return the calls of a turn in the order they must run."""
        calls = self._context.calls
        plan = self._housekeeping()
        self._settling, self._completed = bool(plan), False
        freed = self.settlements.next if plan and not self._refused else 0
        late = self._deadline_at is not None and self._deadline_at <= self._now
        if late:
            plan.append((calls.unack_to_retry(), self._on_expired))
        if self._collect_at <= self._now:
            plan.append((calls.collect(self._context.settings), self._on_collected))
        firing = [*self.schedule_firer.plan(self._now)]
        plan += [*firing, (calls.pending_to_ready(), self._on_promoted)]
        due = self._due_at is not None and self._due_at <= self._now
        if self._more_ready or self._woken or due or late or firing:
            # A full consumer claims nothing, which passes its wake-up on to the next one.
            capacity = min(self._capacity() + freed, self._max_claimed)
            if capacity > 0 or self._woken:
                plan.append(self._claim(max(capacity, 0)))
        self._woken = False
        return plan

    def _claim(self, wanted: int) -> tuple[Any, Callable[[Any], None]]:
        """Return a claim of up to `wanted` messages; a claim of 0 passes all pending wake-ups on."""
        self._woken = False
        calls, settings = self._context.calls, self._context.settings
        return calls.ready_to_unack(wanted, lease=settings.lease, consumer_id=self._consumer_id), self._on_claimed

    def _idle_time(self) -> float:
        """Return the seconds for which there is nothing to do unless something happens."""
        if self._now < self._wait_until:
            return self._wait_until - self._now
        has_capacity = self._capacity() > 0
        if self.settlements or (has_capacity and self._more_ready):
            return 0.0
        if self._burst and (self._settling or self._completed):
            return 0.0
        until = [self._now + self._tick, self._collect_at]
        if has_capacity and self._due_at is not None:
            until.append(self._due_at)
        if self._deadline_at is not None:
            until.append(self._deadline_at)
        if self.in_flight:
            until += [self.in_flight.heartbeat_at, self.start_reports.next_at(self._now)]
        recalled, release_at = self.in_flight.recalled, self.in_flight.release_at()
        if release_at is not None and (recalled or release_at > self._now):
            until.append(release_at)
        if self.schedule_firer.next_at is not None:
            until.append(self.schedule_firer.next_at)
        return max(0.0, min(until) - self._now)

    def _stopping_idle_time(self, end: float) -> float:
        """Return the seconds to wait for running callbacks during a stop; new messages are not its concern."""
        if self._now < self._wait_until:
            end = min(end, self._wait_until)
        elif self.settlements:
            return 0.0
        else:
            end = min(end, self.in_flight.heartbeat_at)
        return max(0.0, end - self._now)

    # What Redis replied

    def _read(self, plan: Plan, result: StepResult) -> None:
        self._claimed = []
        self._check_settling(result.replies[: self._settle_calls])
        first_error: DelayqError | None = None
        for (_, read), reply in zip(plan, result.replies, strict=True):
            if isinstance(reply, DelayqError) and read not in self.schedule_firer.readers:
                first_error = first_error or reply
            else:
                read(reply)
        if first_error:
            self._wait_until = self._now + ERROR_WAIT
            if self._stop_at is None and str(first_error) != str(self.error):
                meanwhile = ", claiming nothing meanwhile" if self._refused else ""
                log.error("Redis refused a call, retrying every %g s%s: %s", ERROR_WAIT, meanwhile, first_error)
        if self._now >= self._wait_until or first_error:  # a turn during the pause may have asked nothing that fails
            if self.error and not first_error:
                log.warning("Redis refuses no call any more")
            self.error = first_error

    def _check_settling(self, replies: Sequence[Any]) -> None:
        """Claim and start nothing while settlements are refused: what starts could not be settled either."""
        refused = any(isinstance(reply, DelayqError) for reply in replies)
        if replies and refused != self._refused:
            self._refused = self.in_flight.recalled = refused
            if not refused:
                log.info("Redis accepts settlements again")

    def _on_promoted(self, promoted: PromoteReply) -> None:
        # Promotion runs after settlements, expiry and collection, so it sees their effects.
        clock, local = self._server_clock, self._server_clock.local
        clock.read(promoted.now, sent_at=self._sent_at, now=self._now)
        self._due_at, self._deadline_at = local(promoted.next_due), local(promoted.next_deadline)
        self.schedule_firer.occurs_at = local(promoted.next_schedule)
        self._more_ready = promoted.waiting > 0
        if promoted.garbage:
            self._collect_at = self._now
        # A burst waits for messages that return within a tick, such as one nacked without a delay. It polls again after
        # it has settled or expired something: if the server did not know a script yet, that script was loaded and run
        # after this promotion. Where a test has stopped the clock, nothing returns.
        soon = self._now + self._tick
        self._drained = (
            not self._settling
            and not promoted.waiting
            and not promoted.garbage
            and (self._due_at is None or self._due_at > self._now)
            and (clock.stopped or self._deadline_at is None or self._deadline_at > soon)
            and (self.schedule_firer.next_at is None or self.schedule_firer.next_at > self._now)
        )

    def _on_collected(self, collected: CollectReply) -> None:
        if collected.trimmed:
            text = "trimmed %d entries of the dead letter"
            log.warning(text, collected.trimmed, extra={"trimmed": collected.trimmed})
        self._collect_at = self._now if collected.left else self._now + COLLECT_EVERY

    def _on_claimed(self, claimed: ClaimReply) -> None:
        added = self.in_flight.add(claimed, self._sent_at, self._now)
        if starting := self.start_reports.hold_alone(claimed, added):
            self._claimed += starting
            self.start_reports.check_after(self._now)
        self._more_ready = claimed.left > 0
        self._drained = self._drained and not claimed.left

    def _on_alone(self, delivery: InFlightDelivery) -> None:
        self._claimed.append(delivery)

    def _on_expired(self, expired: ExpireReply) -> None:
        self._settling |= expired.retried + expired.spent > 0
