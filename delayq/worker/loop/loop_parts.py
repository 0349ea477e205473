"""The parts of a consumer loop, in the order of their calls within a turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.values.breaker import Breaker
from delayq.worker.loop.settlements import PendingSettlements
from delayq.worker.parts.ahead import ClaimedAhead
from delayq.worker.parts.breakers import Breakers, ClosedScopes
from delayq.worker.parts.heartbeat import Heartbeat, StopRequests
from delayq.worker.parts.in_flight import InFlight
from delayq.worker.parts.meter import new_meter
from delayq.worker.parts.part import LoopPart, Stage, Turns
from delayq.worker.parts.presence import Presence, Tally
from delayq.worker.parts.schedule_firing import ScheduleFirer
from delayq.worker.parts.start_reports import StartReports

P = TypeVar("P", bound=LoopPart)

PlannedCall = tuple[Any, Callable[[Any], None], bool]
"""A call of a turn, the function that reads its reply, and whether that reads errors as well."""


def make_parts(
    context: EngineContext,
    in_flight: InFlight,
    *,
    reports_starts: bool,
    breakers: Mapping[str | None, Breaker] | None,
    more: Iterable[Callable[[], LoopPart]],
    presence: Callable[..., Presence] | None,
) -> list[LoopPart]:
    """Return the parts of a loop in the order of their calls; what its engine lacks, or nobody uses, is not made."""
    calls, settings = context.calls, context.settings
    has = calls.capabilities.has
    scopes = ClosedScopes(calls) if has(Feature.LIMITS) else None
    tally = Tally() if has(Feature.HISTORY) else None
    stop_requests = StopRequests(calls)
    parts = [
        Breakers(context, breakers, scopes) if breakers and scopes else None,
        scopes,
        PendingSettlements(calls, settings, scopes),
        Heartbeat(calls, settings, in_flight.overdue, stop_requests.ask),
        StartReports(calls, in_flight) if reports_starts and has(Feature.START_REPORTS) else None,
        stop_requests,
        in_flight.limits,
        ScheduleFirer(calls, settings, settings.tick / 1000) if has(Feature.SCHEDULES) else None,
        ClaimedAhead(calls, in_flight) if settings.ahead else None,
        in_flight.prefetch,
        tally,
        *[make() for make in more],
        new_meter(),
        presence(tally=tally) if presence and has(Feature.WORKERS) else None,
    ]
    return [part for part in parts if part is not None]


class Parts:
    """The parts of one loop by what they do: each list has those that do it."""

    def __init__(self, parts: list[LoopPart], turns: Turns) -> None:
        """Connect them to their loop."""
        self._all = parts
        acting = [one for one in parts if self._has(one, "plan") or self._has(one, "next_at")]
        self.settle, self.renew, self.feed, self.beside = (
            [part for part in acting if part.stage is stage]
            for stage in (Stage.SETTLE, Stage.RENEW, Stage.FEED, Stage.BESIDE)
        )
        self.on_woken = self._that("on_woken")
        self.look, self.release, self.leave = self._that("look"), self._that("release"), self._that("leave")
        self.on_claimed, self.on_completed = self._that("on_claimed"), self._that("on_completed")
        self.on_promoted, self.on_due_claimed = self._that("on_promoted"), self._that("on_due_claimed")
        self.on_settling, self.on_expired = self._that("on_settling"), self._that("on_expired")
        self._keeping, self._pending = self._that("keeps_from_claiming"), self._that("pending")
        for part in parts:
            part.connect(turns)
            if isinstance(part, PendingSettlements):
                part.on_settled_by = self._that("on_settled")
            if isinstance(part, ScheduleFirer):
                part.deciders = self._that("before_fire")

    def _that(self, method: str) -> list[Any]:
        return [getattr(one, method) for one in self._all if self._has(one, method)]

    @staticmethod
    def _has(part: LoopPart, method: str) -> bool:
        return getattr(type(part), method) is not getattr(LoopPart, method)

    def find(self, kind: type[P]) -> P | None:
        """Return the part of a kind; None if there is none."""
        return next((part for part in self._all if isinstance(part, kind)), None)

    def pending(self) -> bool:
        """Return whether there is anything to tell Redis that a stop waits for."""
        return any(pending() for pending in self._pending)

    def keep_from_claiming(self, now: float) -> bool:
        """Return whether one of them lets nothing be claimed now."""
        return any(keeps(now) for keeps in self._keeping)


def calls_of(parts: Iterable[LoopPart], now: float) -> Iterator[PlannedCall]:
    """Yield what some parts have to call now."""
    for part in parts:
        for call, read in part.plan(now):
            yield call, read, part.takes_errors


def next_of(parts: Iterable[LoopPart], now: float) -> float:
    """Return when the first of some parts must act; infinite for never."""
    return min([part.next_at(now) for part in parts], default=math.inf)
