"""What the turns of a consumer loop and its stop share, and how it stops."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import Any

from delayq.backoff import FailurePolicy
from delayq.broker.context import EngineContext
from delayq.errors import UnavailableError
from delayq.safe_log import SafeLog
from delayq.worker.attempt_log import log_completions
from delayq.worker.beats import Beats
from delayq.worker.disposition import Completion, Disposition, is_snoozed_out
from delayq.worker.error_texts import SNOOZED_OUT
from delayq.worker.in_flight import InFlight
from delayq.worker.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.log_label import log_label
from delayq.worker.loop_steps import Cancel, RoundTrip, Run, Sleep, Step, StepResult, Withdraw
from delayq.worker.refusals import Refusals
from delayq.worker.schedule_firing import ScheduleFirer
from delayq.worker.settlements import PendingSettlements
from delayq.worker.start_reports import StartReports
from delayq.worker.stop_requests import StopRequests

log = SafeLog("delayq.consumer")

Plan = list[tuple[Any, Callable[[Any], None]]]
"""The calls of one turn, each with the function that reads its reply."""


def cut_off(deliveries: Sequence[InFlightDelivery], policy: FailurePolicy, queue: str) -> Iterator[Completion]:
    """Yield what becomes of deliveries for whose callbacks a stop waits no longer: they go back uncharged.

    Each counts as a snooze, so one that never ends before its worker does is charged once `max_snoozes` are spent.
    """
    for delivery in deliveries:
        of_task, (name, fields) = delivery.policy or policy, log_label([delivery], queue)
        if is_snoozed_out([delivery], of_task):
            text = f"cut off by a stop, and {SNOOZED_OUT.format(of_task.max_snoozes)}"
            yield from log_completions([Completion([delivery], Disposition.NACK, text)], None, of_task, queue)
        else:
            log.warning("%s was cut off by a stop, and goes back uncharged", name, extra=fields)
            yield Completion([delivery], Disposition.SNOOZE)


class StoppingLoop:
    """The base of a `ConsumerLoop`, which has what is declared here."""

    leaves_hung = False
    """Whether a stop does not wait for callbacks that have taken too long."""
    beats: Beats | None
    context: EngineContext
    in_flight: InFlight
    settlements: PendingSettlements
    refusals: Refusals
    schedule_firer: ScheduleFirer
    start_reports: StartReports
    stop_requests: StopRequests
    _now: float
    _stop_at: float | None
    _claimed: list[InFlightDelivery]
    _interrupted: list[Batch]
    _update: Callable[[StepResult], None]
    _complete: Callable[[Sequence[Completion]], None]
    _housekeeping: Callable[[], Plan]
    _read: Callable[[Plan, StepResult], None]

    def _stop(self) -> Generator[Step, StepResult, None]:
        """Release what has not started, wait for running callbacks, release those cut off, and settle everything."""
        result = yield Withdraw()
        self._release(result.withdrawn)
        cancelled = False
        while True:
            self._update(result)
            plan, unsent = self._housekeeping(), len(self.settlements)
            if plan:
                plan += self._beat()
                result = yield RoundTrip([call for call, _ in plan])
                self._update(result)
                self._read(plan, result)
            if self._interrupted:
                yield from self._run_claimed()
            late = self._stop_at is not None and self._now >= self._stop_at
            left = len(self.settlements)
            ends = late and cancelled and (not left or 0 < unsent <= left)  # what is left is settled part by part
            if ends or not (self._waited_for() or self.settlements):
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
        if self.settlements:
            log.error("stopped with %d settlements unsent; they will be delivered again", len(self.settlements))

    def _run_claimed(self) -> Generator[Step, StepResult, None]:
        claimed, self._claimed = self._claimed, []
        interrupted, self._interrupted = self._interrupted, []
        self._update((yield Run(claimed, interrupted)))

    def _release(self, withdrawn: Sequence[InFlightDelivery]) -> None:
        self._complete([Completion([*self.start_reports.release_alone(), *withdrawn], Disposition.RELEASE)])

    def _beat(self) -> Plan:
        """Return the call, if one is due, that tells in a round trip of other calls that this consumer works."""
        return [] if self.beats is None else [*self.beats.plan(self._now, self.in_flight.deliveries)]

    def _accepts_errors(self, read: Callable[[Any], None]) -> bool:
        """Return whether a function that reads replies reads errors as well: nothing else waits for these calls."""
        return read in self.schedule_firer.readers or (self.beats is not None and read == self.beats.read)

    def _leave(self) -> Generator[Step, StepResult, None]:
        """Tell that this consumer works no more, unless Redis does not answer."""
        answers = not isinstance(self.refusals.error, UnavailableError)
        if self.beats is not None and answers and (calls := self.beats.end()):
            yield RoundTrip(calls)

    def _waited_for(self) -> Collection[InFlightDelivery]:
        deliveries = self.in_flight.deliveries.keys()
        return deliveries - self.in_flight.overdue if self.leaves_hung else deliveries

    def _stopping_idle_time(self, end: float) -> float:
        """Return the seconds to wait for running callbacks during a stop; new messages are not its concern."""
        if self._now < self.refusals.wait_until:
            end = min(end, self.refusals.wait_until)
        elif self.settlements or self.stop_requests.pending:
            return 0.0
        else:
            end = min(end, self.in_flight.heartbeat_at, self.in_flight.limits.next_at)
        return max(0.0, end - self._now)
