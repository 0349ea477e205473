"""The consumer's decisions: when to poll, how much to claim, when to renew, settle, collect, sleep and stop.

The loop is a generator without clock, socket, thread or event loop: it yields a `Step` and receives a `StepResult`.
`drivers` act. One turn of the loop is one round trip. Its calls run in this order: settlements, heartbeat, expiry,
collection, schedules, promotion, claim. Each is made only if there is a reason for it. `superseded` may add one more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any

from delayq.breaker import Breaker
from delayq.broker.context import EngineContext
from delayq.broker.replies import ClaimReply, CollectReply, ExpireReply, PromoteReply
from delayq.errors import DelayqError
from delayq.safe_log import SafeLog
from delayq.worker.attempt_log import log_completions, log_expired
from delayq.worker.beats import Beats
from delayq.worker.breaking import BreakerSettlements
from delayq.worker.disposition import DONE, Completion, timed_out
from delayq.worker.in_flight import InFlight
from delayq.worker.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.loop_steps import RoundTrip, Sleep, Step, StepResult, Withdraw
from delayq.worker.outlook import Outlook
from delayq.worker.refusals import Refusals
from delayq.worker.schedule_firing import ScheduleFirer
from delayq.worker.settlements import PendingSettlements
from delayq.worker.start_reports import StartReports
from delayq.worker.stop_requests import StopRequests
from delayq.worker.stopping import Plan, StoppingLoop
from delayq.worker.superseded import ask, may_be_superseded, note_superseded

log = SafeLog("delayq.consumer")

MAX_SETTLE_WAIT = 0.002
"""Seconds a settlement waits for others at most, while callbacks run: never beyond a tenth of its callback's time."""


class ConsumerLoop(StoppingLoop):
    """The decisions of one consumer. Times are local and monotonic, in seconds; None means never."""

    def __init__(
        self,
        context: EngineContext,
        consumer_id: str,
        *,
        batch: int = 1,
        burst: bool = False,
        reports_starts: bool = True,
        promotes: bool = False,
        limited: bool = False,
        in_flight: InFlight | None = None,
        breakers: Mapping[str | None, Breaker] | None = None,
        beats: Beats | None = None,
    ) -> None:
        """Consume as `consumer_id`, up to `batch` messages per callback; with `burst`, until nothing is due.

        Set `reports_starts` to False if each message starts as soon as it is claimed, and `promotes` to True to promote
        before each claim. `limited` and `breakers` are those of the callback. `in_flight` replaces what decides how
        much to claim. Without `beats`, nobody learns that it works.
        """
        if in_flight is None:
            in_flight = InFlight(context.calls, context.settings, batch, limited=limited)
        self.in_flight = in_flight
        self.settlements = PendingSettlements(context.calls, context.settings, in_flight)
        if breakers:
            self.settlements = BreakerSettlements(context, breakers, in_flight)
        self.context = context
        tick = context.settings.tick / 1000
        self.schedule_firer = ScheduleFirer(context.calls, context.settings, tick)
        self.start_reports = StartReports(context.calls, self.in_flight, enabled=reports_starts)
        self.stop_requests = StopRequests(context.calls, self.in_flight)
        self.beats = beats
        if beats is not None:
            beats.tally = in_flight.tally
        as_consumer = self.start_reports.consumer_id(consumer_id)
        self._claim_options: dict[str, Any] = {"lease": context.settings.lease, "consumer_id": as_consumer}
        self._burst, self._promotes = burst, promotes
        self._now = 0.0
        self._sent_at = 0.0
        self.outlook = Outlook(tick)
        self._settle_at = math.inf
        self.refusals = Refusals()
        self._stop_at: float | None = None
        self._woken = False
        self._drained = False
        self._changed = False
        """Whether something was settled or expired that a promotion may not have seen."""
        self._returned = False
        """Whether a message has gone back to the queue: it may be due before what is known."""
        self._settle_calls = 0
        self._claimed: list[InFlightDelivery] = []
        self._interrupted: list[Batch] = []
        """The callbacks to interrupt."""

    def run(self) -> Generator[Step, StepResult, None]:
        """Consume until stopped; in a burst, until nothing is due. A wake-up that arrives at the end is passed on."""
        yield from self._consume()
        if self._woken:
            self._update((yield Sleep(0, listen=False)))
        while self._woken:
            self._update((yield RoundTrip([self._claim(0)[0]])))
        yield from self._leave()

    def _consume(self) -> Generator[Step, StepResult, None]:
        result = yield Sleep(0, listen=False)
        while True:
            self._update(result)
            if self._stop_at is not None:
                yield from self._stop()
                return
            yield from self._release_unstarted()
            if self._woken or self._idle_time(claims=self._capacity() > 0) <= 0:
                yield from self._turn()
            busy = self.in_flight or self.settlements or self._changed
            if self._burst and self._drained and not busy:
                return
            claims = self._capacity() > 0
            wait = self._idle_time(claims=claims)
            result = yield Sleep(wait, listen=wait > 0 and (claims or self.outlook.paused))

    def _turn(self) -> Generator[Step, StepResult, None]:
        plan = self._plan()
        if plan:
            plan += self._beat()
            self._sent_at = self._now
            result = yield RoundTrip([call for call, _ in plan])
            self._update(result)
            self._read(plan, result)
        # Claimed beside refused settlements, or before a script that trips a breaker was loaded and run.
        if self.refusals.of_settlements or (self._claimed and self.in_flight.recalled):
            self._release(self._claimed)
            self._claimed = []
        if asked := may_be_superseded(self.context, self._claimed):
            yield from self._ask_superseded(asked)
        if self._claimed or self._interrupted or self.in_flight.overdue:
            yield from self._run_claimed()

    def _ask_superseded(self, asked: list[InFlightDelivery]) -> Generator[Step, StepResult, None]:
        result = yield RoundTrip(ask(self.context, asked))
        self._update(result)
        if unknown := note_superseded(asked, result.replies):
            self._claimed = [one for one in self._claimed if one not in unknown]
            self._release(unknown)
            self.refusals.read_replies(result.replies, self._now, stopping=self._stop_at is not None)

    def _release_unstarted(self) -> Generator[Step, StepResult, None]:
        """Release what has waited too long for a busy worker: another consumer may be idle."""
        release_at = self.in_flight.release_at()
        if release_at is not None and release_at <= self._now:
            result = yield Withdraw()
            self._update(result)
            self._release(result.withdrawn)
            self.in_flight.prefetch.pause()
        self.in_flight.recalled = self.refusals.of_settlements  # also if what was to be returned has started meanwhile

    def _update(self, result: StepResult) -> None:
        self._now = result.now
        self._woken |= result.woken
        self._stop_at = result.stop_at
        self.in_flight.refresh()
        if result.completions:
            # A callback may have returned messages by hand after this turn polled.
            self._changed = True
            self.start_reports.check_after(self._now)
            self._complete(result.completions)
        if self.in_flight.limits.next_at <= self._now:
            self._end_overdue()

    def _end_overdue(self) -> None:
        """Fail the attempts whose callbacks have run for too long. If one succeeds after all, that counts still."""
        for batch, deliveries, limit in self.in_flight.end_overdue(self._now):
            policy = self.context.settings.policy
            failed = [timed_out(deliveries, limit, policy)]
            self.settlements.add(log_completions(failed, None, policy, self.context.queue))
            self._interrupted.append(batch)
            self._returned, self._settle_at = True, self._now

    def _complete(self, completions: Sequence[Completion]) -> None:
        self.in_flight.complete(completions)
        self.settlements.add(completions)
        self._returned = self._returned or any(one.disposition not in DONE for one in completions)
        wait = 0.0
        if self.in_flight:  # others may end soon
            wait = min(MAX_SETTLE_WAIT, min((one.took or 0.0 for one in completions), default=0.0) / 10)
        self._settle_at = min(self._settle_at, self._now + wait)

    def _capacity(self) -> int:
        """Return how many more may be claimed: none in a pause, or if settlements are refused, or one runs alone."""
        if self.refusals.of_settlements or self.outlook.paused or self.start_reports.is_exclusive(self._now):
            return 0
        unsent = len(self.settlements)
        if unsent and self._now >= self.refusals.wait_until:
            unsent -= self.settlements.next  # a turn settles them before it claims
        return self.in_flight.capacity(self._now) - unsent

    # What to do next

    def _housekeeping(self) -> Plan:
        self._settle_calls = 0
        if self._now < self.refusals.wait_until:
            return []
        all_fit = self.settlements.next == len(self.settlements)
        settling, self._settle_at = list(self.settlements.settle()), math.inf if all_fit else self._now
        self._settle_calls = len(settling)
        reports = self.start_reports.plan(self._now, self._on_alone)
        requests = self.stop_requests.plan(self._interrupted.extend)
        return [*settling, *self.in_flight.heartbeat(self._now), *reports, *requests]

    def _plan(self) -> Plan:
        """Return the calls of a turn in the order they must run."""
        calls, outlook, now = self.context.calls, self.outlook, self._now
        plan = self._housekeeping()
        capacity = min(self._capacity(), self.in_flight.prefetch.max_claimed)  # with what is overdue from now on
        settles, late = bool(plan), outlook.deadline_at <= now
        if late:
            plan.append((calls.unack_to_retry(), self._on_expired))
        if outlook.collect_at <= now:
            plan.append((calls.collect(self.context.settings), self._on_collected))
        firing = [*self.schedule_firer.plan(now)]
        plan += firing
        news = self._woken or late or bool(firing)
        due = outlook.wants_due(capacity, now)
        must = late or bool(firing) or self._returned or (self._burst and not self.in_flight)
        ticks, promotes = outlook.look_at <= now, self._promotes or outlook.ranks
        direct = capacity > 0 and (due or self._woken) and not (must or ticks or outlook.ready or promotes)
        if direct and (call := calls.pending_to_unack(capacity, **self._claim_options)):
            self._woken = False
            return [*plan, (call, self._on_due_claimed)]
        asks = must or due or self._woken
        check = calls.is_empty() if ticks and outlook.empty and not (asks or self.in_flight) else None
        if check:
            plan.append((check, partial(outlook.read_checked, now=now)))
        elif asks or ticks:
            self._changed, self._returned = settles, False
            plan.append((calls.pending_to_ready(), self._on_promoted))
        # A full consumer claims nothing, which passes its wake-up on to the next one.
        if self._woken or (capacity > 0 and (outlook.ready or due or news)):
            plan.append(self._claim(max(capacity, 0)))
        return plan

    def _claim(self, wanted: int) -> tuple[Any, Callable[[Any], None]]:
        """Return a claim of up to `wanted` messages; a claim of 0 passes all pending wake-ups on."""
        self._woken = False
        return self.context.calls.ready_to_unack(wanted, **self._claim_options), self._on_claimed

    def _idle_time(self, *, claims: bool) -> float:
        """Return the seconds for which there is nothing to do unless something happens."""
        if self._now < self.refusals.wait_until:
            return self.refusals.wait_until - self._now
        if self.stop_requests.pending or (self._burst and self._changed and not self.in_flight):
            return 0.0
        until = [self.outlook.next_at(claims=claims)]
        if self.settlements or self._returned:
            until.append(self._settle_at)
        if self.in_flight:
            until += [self.in_flight.heartbeat_at, self.start_reports.next_at(self._now), self.in_flight.limits.next_at]
        recalled, release_at = self.in_flight.recalled, self.in_flight.release_at()
        if release_at is not None and (recalled or release_at > self._now):
            until.append(release_at)
        if self.schedule_firer.next_at is not None:
            until.append(self.schedule_firer.next_at)
        return max(0.0, min(until) - self._now)

    # What Redis replied

    def _read(self, plan: Plan, result: StepResult) -> None:
        self._claimed = []
        if self._settle_calls:
            self.refusals.read_settlements(result.replies[: self._settle_calls])
            self.in_flight.recalled = self.refusals.of_settlements
        first_error: DelayqError | None = None
        for (_, read), reply in zip(plan, result.replies, strict=True):
            if isinstance(reply, DelayqError) and not self._accepts_errors(read):
                first_error = first_error or reply
            else:
                read(reply)
        if first_error or self.settlements.cut_short:
            self._settle_at, self.settlements.cut_short = self._now, False
        self.refusals.read_turn(first_error, self._now, stopping=self._stop_at is not None)

    def _on_promoted(self, promoted: PromoteReply) -> None:
        # Promotion runs after settlements, expiry and collection, so it sees their effects.
        self.outlook.read_promoted(promoted, sent_at=self._sent_at, now=self._now)
        self.in_flight.recalled |= self.outlook.paused
        self.stop_requests.note(promoted.stopping)
        self.schedule_firer.occurs_at = self.outlook.local(promoted.next_schedule)
        # A burst polls again after it has settled or expired something: if the server did not know a script yet, that
        # script was loaded and run after this promotion.
        fires = self.schedule_firer.next_at
        self._drained = not self._changed and self.outlook.is_empty(self._now) and (fires is None or fires > self._now)

    def _on_collected(self, collected: CollectReply) -> None:
        if collected.trimmed:
            text = "trimmed %d entries of the dead letter"
            log.warning(text, collected.trimmed, extra={"trimmed": collected.trimmed})
        self.outlook.read_collected(collected, self._now)

    def _on_claimed(self, claimed: ClaimReply) -> None:
        log_expired(claimed.expired, self.context.queue)
        added = self.in_flight.add(claimed, self._sent_at, self._now)
        if starting := self.start_reports.hold_alone(claimed, added):
            self._claimed += starting
            self.start_reports.check_after(self._now)
        self.outlook.read_gate(claimed)
        if claimed.trials:
            self.settlements.note_trials(claimed.trials)
        self._drained = self._drained and not claimed.left

    def _on_due_claimed(self, claimed: ClaimReply) -> None:
        self._drained = False
        self.outlook.read_claimed(claimed, sent_at=self._sent_at, now=self._now)
        self.schedule_firer.occurs_at = self.outlook.local(claimed.next_schedule)
        self._on_claimed(claimed)

    def _on_alone(self, delivery: InFlightDelivery) -> None:
        self._claimed.append(delivery)

    def _on_expired(self, expired: ExpireReply) -> None:
        log_expired(expired.expired, self.context.queue)
        self._changed |= expired.retried + expired.spent > 0
