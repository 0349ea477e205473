"""Messages that a consumer has claimed shortly before they are due: each starts at its time.

So one call claims what falls due within the next milliseconds, and no message waits for a round trip when it is due.

Nothing starts early. The reply of a claim has the server's time T of its execution, which is before its arrival at the
local time A. What is due at D starts at A + (D - T) * (1 + SLEW) or later. At A the server's clock shows T at least.
While the local clock advances by (D - T) * (1 + SLEW), the server's advances by D - T at least, if their speeds differ
by no more than SLEW: so it shows D at least. What can happen to the clocks:

- They drift by 0.0001 and are slewed by 0.0005 unless an administrator allows more: together less than SLEW.
- A process or machine is suspended: the local clock is monotonic, and goes on or stands still, so the start is late. A
  lease has its own time: a message whose lease is over is not started, but given back.
- The server's clock is set forward: the start is late. It is set back: what was claimed starts at its time by the clock
  as it was, as what was due just before has.
- A test sets the clock of the calls: then nothing is claimed before it is due.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from delayq.broker.context import EngineCalls
from delayq.broker.engine import Feature
from delayq.broker.replies import ClaimReply, TurnReply
from delayq.worker.delivery.disposition import Completion, Disposition
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery, deliveries_of
from delayq.worker.parts.in_flight import InFlight
from delayq.worker.parts.part import Call, LoopPart, Stage, Turns

SLEW = 0.001
"""By how much two clocks may differ in their speed."""


class ClaimedAhead(LoopPart):
    """What one consumer holds until it is due. It is in flight only from its start on."""

    stage = Stage.RENEW
    _turns: Turns

    def __init__(self, calls: EngineCalls, in_flight: InFlight) -> None:
        """Hold nothing yet; what is held counts for what may be claimed."""
        self._calls = calls
        self._in_flight = in_flight
        self._held: list[tuple[float, InFlightDelivery]] = []
        """What is held, with the time of its start: the first one last."""
        self._asks = False
        """Whether to look if another process asks for what is held."""
        self._now = 0.0

    def connect(self, turns: Turns) -> None:
        """Learn to what loop it belongs."""
        self._turns = turns

    def hold(self, reply: TurnReply, claimed: ClaimReply, deadline: float, now: float) -> ClaimReply:
        """Hold what is not due yet of a claim that has arrived at a local time; returns the claim of the rest."""
        early = [one for one in claimed.messages if one.due * 1000 > reply.micros]
        read_at = now - reply.micros % 1000 / 1e6  # when the server's clock showed the whole millisecond of the claim
        held = [
            (now + (one.claimed.due * 1000 - reply.micros) / 1e6 * (1 + SLEW), one)
            for one in deliveries_of(claimed._replace(messages=early), read_at, deadline)
        ]
        # Of what starts at the same time, what was claimed first is the last here, so that it starts first.
        self._held = sorted([*reversed(held), *self._held], key=lambda one: one[0], reverse=True)
        self._in_flight.hold(len(early))
        return claimed._replace(messages=claimed.messages[: -len(early)]) if early else claimed

    def next_at(self, _: float) -> float:
        """Return when the next one starts."""
        if self._asks:
            return -math.inf
        return self._held[-1][0] if self._held else math.inf

    def look(self, now: float) -> None:
        """Start what is due."""
        self._now = now
        due: list[InFlightDelivery] = []
        while self._held and self._held[-1][0] <= now:
            due.append(self._held.pop()[1])
        if due:
            self._in_flight.hold(-len(due))
            self._asks = self._asks and bool(self._held)
            self._turns.take_up(due)

    def on_woken(self) -> None:
        """Look whether another process asks for what is held: it has sent a wake-up if so."""
        self._asks = bool(self._held) and self._calls.capabilities.has(Feature.START_REPORTS)

    def plan(self, _: float) -> Iterator[Call]:
        """Yield the call that looks."""
        if self._asks:
            self._asks = False
            yield self._calls.is_withdrawn([delivery.claimed.id for _, delivery in self._held]), self._on_withdrawn

    def _on_withdrawn(self, reply: object) -> None:
        if reply is True:
            self.release()

    def release(self) -> list[InFlightDelivery]:
        """Give back what is held, for when it is due."""
        held, self._held, self._asks = self._held, [], False
        self._in_flight.hold(-len(held))
        if held:
            waits = ((max(0.0, start_at - self._now), delivery) for start_at, delivery in reversed(held))
            self._turns.settle(
                [Completion([delivery], Disposition.RELEASE, "", math.ceil(wait * 1000)) for wait, delivery in waits]
            )
        return []
