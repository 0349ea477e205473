"""The consumer's decisions: when to poll, how much to claim, when to settle, collect, sleep and stop.

The loop is a generator without clock, socket, thread or event loop: it yields a `Step` and receives a `StepResult`.
`drivers` act. One turn of the loop is one round trip. Its calls run in this order: what settles, what renews, expiry,
collection, what feeds, promotion, claim, and what travels beside them. Each is made only if there is a reason for it.
Whatever not every message needs is a part of its own: see `parts.part`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from delayq.broker.context import EngineContext
from delayq.broker.replies import ClaimReply, CollectReply, ExpiredLease, ExpireReply, PromoteReply, TurnReply
from delayq.errors import DelayqError, UnavailableError
from delayq.safe_log import SafeLog
from delayq.values.breaker import Breaker
from delayq.worker.delivery.attempt_log import cut_off, log_expired
from delayq.worker.delivery.disposition import DONE, Completion, Disposition
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.loop.loop_parts import Parts, PlannedCall, calls_of, make_parts, next_of
from delayq.worker.loop.loop_steps import Cancel, RoundTrip, Run, Sleep, Step, StepResult, Withdraw
from delayq.worker.loop.outlook import Outlook
from delayq.worker.loop.plain_turns import PlainTurns
from delayq.worker.loop.settlements import PendingSettlements, Refusals
from delayq.worker.parts.in_flight import InFlight
from delayq.worker.parts.part import LoopPart
from delayq.worker.parts.presence import Presence

log = SafeLog("delayq.consumer")

MAX_SETTLE_WAIT = 0.002
"""Seconds a settlement waits for others at most, while callbacks run: never beyond a tenth of its callback's time."""


class ConsumerLoop:
    """The decisions of one consumer. Times are local and monotonic, in seconds; None means never."""

    leaves_hung = False
    """Whether a stop does not wait for callbacks that have taken too long."""

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
        more: Iterable[Callable[[], LoopPart]] = (),
        presence: Callable[..., Presence] | None = None,
    ) -> None:
        """Consume as `consumer_id`, up to `batch` messages per callback; with `burst`, until nothing is due.

        Set `reports_starts` to False if each message starts as soon as it is claimed, and `promotes` to True to promote
        before each claim. `limited` and `breakers` are those of the callback, and `more` makes its parts. `in_flight`
        replaces what decides how much to claim. Without `presence`, which makes that part, nobody learns that it works.
        """
        self.context = context
        self.in_flight = InFlight(context, batch, limited=limited) if in_flight is None else in_flight
        self.deliveries = self.in_flight.deliveries
        self.claim_options: dict[str, Any] = {"lease": context.settings.lease, "consumer_id": consumer_id}
        tick = context.settings.tick / 1000
        self.outlook = Outlook(tick)
        of_callback: Any = {"breakers": breakers, "more": more}
        parts = make_parts(context, self.in_flight, reports_starts=reports_starts, presence=presence, **of_callback)
        (self.settlements,) = (part for part in parts if isinstance(part, PendingSettlements))
        self.parts = Parts(parts, self)
        self._plain = PlainTurns(context, self.parts, self.in_flight, self.outlook, burst=burst)
        self._folded: Callable[[Any], None] | None = None
        """What reads the claim of this turn, if that settles as well."""
        self._burst, self._promotes = burst, promotes
        self._now = self._sent_at = 0.0
        self._settle_at = math.inf
        self.refusals = Refusals()
        self._stop_at: float | None = None
        self._woken = self._drained = self._changed = False
        """Whether something was settled or expired that a promotion may not have seen."""
        self._returned = False
        """Whether a message has gone back to the queue: it may be due before what is known."""
        self._settle_calls = 0
        self._claimed: list[InFlightDelivery] = []
        self._interrupted: list[Batch] = []
        """The callbacks to interrupt."""

    # What parts ask of it: see `parts.part.Turns`

    def local(self, at: int) -> float | None:
        """Return the local time of a server's time (ms); None for -1, which means never."""
        return self.outlook.local(at)

    def settle(self, completions: Sequence[Completion]) -> None:
        """Settle deliveries whose callbacks have not ended in the next turn."""
        for learn in self.parts.on_settling:
            learn(completions)
        self.settlements.add(completions)
        self.in_flight.refresh()
        self._returned, self._settle_at = True, self._now

    def start(self, delivery: InFlightDelivery) -> None:
        """Start what a part has held back."""
        self._claimed.append(delivery)

    def take_up(self, deliveries: list[InFlightDelivery]) -> None:
        """Start what was claimed before it was due; it is in flight from now on."""
        claimed = ClaimReply(deliveries[0].server_now, 0, 0, [one.claimed for one in deliveries])
        trip = self.in_flight.prefetch.latency.seconds
        self._begin(claimed, self.in_flight.take_up(deliveries), self._now - trip)

    def drop(self, delivery: InFlightDelivery) -> None:
        """Forget a delivery that is leased no more."""
        self.in_flight.deliveries.pop(delivery, None)
        self.in_flight.refresh()

    def interrupt(self, batches: Iterable[Batch]) -> None:
        """Interrupt the callbacks of these batches."""
        self._interrupted.extend(batches)

    def recall(self) -> None:
        """Return what has not started to the queue."""
        self.in_flight.recalled = True

    def take_turns(self, every: float, at: float, *, workers: int) -> None:
        """Share looks and collections with other consumers of the queue."""
        self.outlook.take_turns(every, at, workers=workers)

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
            if self._claimed:
                yield from self._start_claimed()
            if self._woken or self._idle_time(claims=self._capacity() > 0) <= 0:
                yield from self._turn()
            busy = self.in_flight or self.parts.pending() or self._changed
            if self._burst and self._drained and not busy:
                return
            claims = self._capacity() > 0
            wait = 0.0 if self._woken else self._idle_time(claims=claims)
            result = yield Sleep(wait, listen=wait > 0 and (claims or self.outlook.paused))

    def _turn(self) -> Generator[Step, StepResult, None]:
        plan = self._plan()
        if plan:
            plan += calls_of(self.parts.beside, self._now)
            self._sent_at = self._now
            result = yield RoundTrip([call for call, _, _ in plan])
            self._update(result)
            self._read(plan, result)
        yield from self._start_claimed()

    def _start_claimed(self) -> Generator[Step, StepResult, None]:
        # Claimed beside refused settlements, or before a script that trips a breaker was loaded and run.
        if self.refusals.of_settlements or (self._claimed and self.in_flight.recalled):
            self._release(self._claimed)
            self._claimed = []
        if self._claimed or self._interrupted or self.in_flight.overdue:
            yield from self._run_claimed()

    def _release_unstarted(self) -> Generator[Step, StepResult, None]:
        """Release what has waited too long for a busy runner: another consumer may be idle."""
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
            self._complete(result.completions)
        if result.woken:
            for learn in self.parts.on_woken:
                learn()
        for look in self.parts.look:
            look(self._now)

    def _complete(self, completions: Sequence[Completion]) -> None:
        for learn in self.parts.on_completed:
            learn(completions, self._now)
        self.in_flight.complete(completions)
        for learn in self.parts.on_settling:
            learn(completions)
        self.settlements.add(completions)
        self._returned = self._returned or any(one.disposition not in DONE for one in completions)
        wait = 0.0
        if self.in_flight:  # others may end soon
            wait = min(MAX_SETTLE_WAIT, min((one.took or 0.0 for one in completions), default=0.0) / 10)
        self._settle_at = min(self._settle_at, self._now + max(wait, self._plain.settle_wait(self._now)))

    def _capacity(self) -> int:
        """Return how many more may be claimed: none in a pause, or if settlements are refused, or one runs alone."""
        if self.refusals.of_settlements or self.outlook.paused or self.parts.keep_from_claiming(self._now):
            return 0
        unsent = len(self.settlements)
        if unsent and self._now >= self.refusals.wait_until:
            unsent -= self.settlements.next  # a turn settles them before it claims
        return self.in_flight.capacity(self._now) - unsent

    # What to do next

    def _housekeeping(self, *, claims: bool = False) -> list[PlannedCall]:
        """Return the calls that settle and renew; with `claims`, the claim takes acknowledgements along."""
        self._settle_calls, self._folded, self.settlements.acks = 0, None, []
        if self._now < self.refusals.wait_until:
            return []
        all_fit = self.settlements.next == len(self.settlements)
        self.settlements.plain = self._plain.usable(self._now)
        settling = [*calls_of(self.parts.settle, self._now)]
        if self.settlements.acks and not claims:
            settling.append(self._claim_plainly(0))
        self._settle_at = math.inf if all_fit else self._now
        self._settle_calls = len(settling)
        return [*settling, *calls_of(self.parts.renew, self._now)]

    def _plan(self) -> list[PlannedCall]:
        """Return the calls of a turn in the order they must run."""
        calls, outlook, now = self.context.calls, self.outlook, self._now
        feeding = [*calls_of(self.parts.feed, now)]
        capacity = min(self._capacity(), self.in_flight.prefetch.max_claimed)  # with what is overdue from now on
        late = outlook.deadline_at <= now
        news = self._woken or late or bool(feeding)
        due = outlook.wants_due(capacity, now)
        must = late or bool(feeding) or self._returned or self._may_be_drained
        ticks, promotes = outlook.look_at <= now, self._promotes or outlook.ranks
        direct = capacity > 0 and not (must or ticks or outlook.ready or promotes)
        plain = direct and self._plain.usable(now)
        due = due or (plain and self._plain.claims_on_the_way(now))
        plan = self._housekeeping(claims=plain and (due or self._woken))
        settles = bool(plan)
        if late:
            plan.append((calls.unack_to_retry(), self._on_expired, False))
        if outlook.collect_at <= now:
            plan.append((calls.collect(self.context.settings), self._on_collected, False))
        plan += feeding
        if direct and (due or self._woken):
            if plain:
                claim = self._claim_plainly(capacity)
                self._folded = claim[1] if self.settlements.acks else None
                return [*plan, claim]
            if call := calls.pending_to_unack(capacity, **self.claim_options):
                self._woken = False
                return [*plan, (call, self._on_due_claimed, False)]
        asks = must or due or self._woken
        check = calls.is_empty() if ticks and outlook.empty and not (asks or self.in_flight) else None
        if check:
            plan.append((check, partial(outlook.read_checked, now=now), False))
        elif asks or ticks:
            self._changed, self._returned = settles, False
            plan.append((calls.pending_to_ready(), self._on_promoted, False))
        # A full consumer claims nothing, which passes its wake-up on to the next one.
        if self._woken or (capacity > 0 and (outlook.ready or due or news)):
            plan.append(self._claim(max(capacity, 0)))
        return plan

    @property
    def _may_be_drained(self) -> bool:
        """Whether a burst may be at its end: nothing is here, and nothing is known that could be claimed."""
        return self._burst and not self.in_flight and not self.outlook.knows_more(self._now)

    def _claim_plainly(self, wanted: int) -> PlannedCall:
        """Return the call that settles what is acknowledged, and claims up to `wanted` messages unless that is 0."""
        woken, self._woken = self._woken, self._woken and not wanted
        read = partial(self._on_turn, wanted=wanted, woken=woken)
        return self._plain.call(wanted, self.claim_options, read)

    def _claim(self, wanted: int) -> PlannedCall:
        """Return a claim of up to `wanted` messages; a claim of 0 passes all pending wake-ups on."""
        self._woken = False
        return self.context.calls.ready_to_unack(wanted, **self.claim_options), self._on_claimed, False

    def _idle_time(self, *, claims: bool) -> float:
        """Return the seconds for which there is nothing to do unless something happens."""
        if self._now < self.refusals.wait_until:
            return self.refusals.wait_until - self._now
        if self._woken:
            return 0.0
        if self._changed and self._may_be_drained:
            return 0.0
        until = [self.outlook.next_at(claims=claims), next_of([*self.parts.feed, *self.parts.renew], self._now)]
        if self._returned or self.parts.pending():
            until.append(self._settle_at)
        recalled, release_at = self.in_flight.recalled, self.in_flight.release_at()
        if release_at is not None and (recalled or release_at > self._now):
            until.append(release_at)
        return max(0.0, min(until) - self._now)

    # What Redis replied

    def _read(self, plan: list[PlannedCall], result: StepResult) -> None:
        if (calls := self._settle_calls) or self._folded:
            folded = [reply for (_, read, _), reply in zip(plan, result.replies, strict=True) if read is self._folded]
            self.refusals.read_settlements([*result.replies[:calls], *folded])
            self.in_flight.recalled = self.refusals.of_settlements
        first_error: DelayqError | None = None
        for (_, read, takes_errors), reply in zip(plan, result.replies, strict=True):
            if isinstance(reply, DelayqError) and not takes_errors:
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
        for learn in self.parts.on_promoted:
            learn(promoted)
        # A burst polls again after it has settled or expired something: if the server did not know a script yet, that
        # script was loaded and run after this promotion.
        feeds = next_of(self.parts.feed, self._now) <= self._now
        self._drained = not (self._changed or feeds) and self.outlook.is_empty(self._now)

    def _on_collected(self, collected: CollectReply) -> None:
        if collected.trimmed:
            text = "trimmed %d entries of the dead letter"
            log.warning(text, collected.trimmed, extra={"trimmed": collected.trimmed})
        self.outlook.read_collected(collected, self._now)

    def _on_claimed(self, claimed: ClaimReply) -> None:
        if claimed.expired:
            self._note_expired(claimed.expired)
        self._begin(claimed, self.in_flight.add(claimed, self._sent_at, self._now), self._sent_at)
        self.outlook.read_gate(claimed)
        count, outlook = len(claimed.messages) + self.in_flight.held, self.outlook
        self.in_flight.prefetch.grow(count, more=outlook.ready > 0 or outlook.due_at <= self._now)
        self._drained = self._drained and not claimed.left

    def _begin(self, claimed: ClaimReply, added: list[InFlightDelivery], sent_at: float) -> None:
        """Start what was claimed, but for what parts hold back."""
        starting = added
        for learn in self.parts.on_claimed:
            if held_back := learn(claimed, added, sent_at, self._now):
                starting = [one for one in starting if one not in held_back]
        self._claimed += starting

    def _on_turn(self, reply: TurnReply, *, wanted: int, woken: bool) -> None:
        claimed = self._plain.read(reply, self._sent_at, self._now, wanted=wanted)
        if claimed is None:  # once more, in the general way
            self._settle_at, self._woken = self._now, self._woken or woken
        elif wanted:
            self._drained = False
            self._on_claimed(claimed)

    def _on_due_claimed(self, claimed: ClaimReply) -> None:
        self._drained = False
        self.outlook.read_claimed(claimed, sent_at=self._sent_at, now=self._now)
        for learn in self.parts.on_due_claimed:
            learn(claimed)
        self._on_claimed(claimed)

    def _on_expired(self, expired: ExpireReply) -> None:
        self._note_expired(expired.expired)
        self._changed |= expired.retried + expired.spent > 0

    def _note_expired(self, expired: Sequence[ExpiredLease]) -> None:
        log_expired(expired, self.context.queue)
        for learn in self.parts.on_expired:
            learn(expired)

    # The stop

    def _stop(self) -> Generator[Step, StepResult, None]:
        """Release what has not started, wait for running callbacks, release those cut off, and settle everything."""
        self._plain.end()
        result = yield Withdraw()
        self._release([*self._claimed, *result.withdrawn])
        self._claimed, cancelled = [], False
        while True:
            self._update(result)
            plan, unsent = self._housekeeping(), len(self.settlements)
            if plan:
                plan += calls_of(self.parts.beside, self._now)
                result = yield RoundTrip([call for call, _, _ in plan])
                self._update(result)
                self._read(plan, result)
            if self._interrupted:
                yield from self._run_claimed()
            late = self._stop_at is not None and self._now >= self._stop_at
            left = len(self.settlements)
            ends = late and cancelled and (not left or 0 < unsent <= left)  # what is left is settled part by part
            if ends or not (self.in_flight.waited_for(hung=not self.leaves_hung) or self.parts.pending()):
                break
            if late and not cancelled:
                overdue = self.in_flight.overdue
                running = [one for one in self.in_flight.deliveries if not one.settled and one not in overdue]
                for delivery in running:
                    delivery.lost = True
                result = yield Cancel()
                cancelled, self.refusals.wait_until = True, 0.0
                self._complete([*cut_off(running, self.context.settings.policy, self.context.queue)])
            else:
                result = yield Sleep(self._stopping_idle_time(self._stop_at or 0.0), listen=False)
        if left := len(self.settlements):
            log.error("stopped with %d settlements unsent; they will be delivered again", left)

    def _run_claimed(self) -> Generator[Step, StepResult, None]:
        claimed, self._claimed = self._claimed, []
        interrupted, self._interrupted = self._interrupted, []
        self._update((yield Run(claimed, interrupted)))

    def _release(self, withdrawn: Sequence[InFlightDelivery]) -> None:
        held_back = [delivery for release in self.parts.release for delivery in release()]
        self._complete([Completion([*held_back, *withdrawn], Disposition.RELEASE)])

    def _leave(self) -> Generator[Step, StepResult, None]:
        """Tell that this consumer works no more, unless Redis does not answer."""
        if isinstance(self.refusals.error, UnavailableError):
            return
        if calls := [call for leave in self.parts.leave for call in leave()]:
            yield RoundTrip(calls)

    def _stopping_idle_time(self, end: float) -> float:
        """Return the seconds to wait for running callbacks during a stop; new messages are not its concern."""
        if self._now < self.refusals.wait_until:
            end = min(end, self.refusals.wait_until)
        elif self.parts.pending():
            return 0.0
        else:
            end = min(end, next_of(self.parts.renew, self._now))
        return max(0.0, end - self._now)
