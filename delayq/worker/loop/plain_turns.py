"""Turns of a plain queue: one call settles what has ended, and claims what is due or soon will be.

A queue is plain as long as it uses none of what `broker/lua/claim/lib/plain.lua` names. Of one that is not, the call
says so; the loop then takes the general way for a while, so that this costs one round trip.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.replies import ClaimReply, TurnReply
from delayq.worker.loop.loop_parts import Parts, PlannedCall
from delayq.worker.loop.outlook import Outlook
from delayq.worker.loop.settlements import PendingSettlements
from delayq.worker.parts.ahead import ClaimedAhead
from delayq.worker.parts.in_flight import InFlight

PLAIN_AGAIN = 60.0
"""Seconds until a queue that was not plain is taken for plain again, which costs a round trip if it is not."""
LATE_ACK = 0.1
"""Seconds for which the loop takes the general way to settle what only `ack` can settle."""
CLAIM_LEAD = 0.002
"""Seconds, and a round trip more, by which a message is claimed before it is due, if it may be."""


class PlainTurns:
    """Decides when to go this way, makes the calls, and reads their replies. Times are local, in seconds."""

    def __init__(
        self, context: EngineContext, parts: Parts, in_flight: InFlight, outlook: Outlook, *, burst: bool
    ) -> None:
        """Claim nothing ahead in a `burst`, which ends when nothing is due, nor where a test sets the clock."""
        self._calls, self._in_flight, self._outlook = context.calls, in_flight, outlook
        (self._settlements,) = (part for part in parts.settle if isinstance(part, PendingSettlements))
        sets_clock = getattr(context.calls, "clock", None) is not None
        self._ahead = None if burst or sets_clock else parts.find(ClaimedAhead)
        settings = context.settings
        # What is held is not renewed: its first renewal, a third of a lease after its start, must come in time.
        self._millis = 0 if self._ahead is None else min(settings.ahead, settings.lease // 3)
        self._lease, self._within = settings.lease / 1000, settings.settle_within / 1000
        self._from = 0.0 if context.calls.capabilities.has(Feature.DELAYS) else math.inf
        self._claimed_at = 0.0
        """When messages were claimed last."""
        self._gap = math.inf
        """How long after the time before."""
        self._on_due_claimed = parts.on_due_claimed

    def usable(self, now: float) -> bool:
        """Return whether the queue may be plain."""
        return self._from <= now

    def end(self) -> None:
        """Go the general way from now on, as in a stop: what is settled needs one call, whatever the queue is."""
        self._from = math.inf

    def claims_on_the_way(self, now: float) -> bool:
        """Return whether a call that settles is to claim as well: something may be claimed already."""
        return self._settlements.pending() and self._outlook.due_at + self._outlook.lead <= now + self._millis / 1000

    def settle_wait(self, now: float) -> float:
        """Return for how long what is pending may wait for the next claim; 0 if none is to be expected so soon."""
        if not (self.usable(now) and self._settlements.only_acks):
            return 0.0
        until = now + self._within
        starts_at = math.inf if self._ahead is None else self._ahead.next_at(now)
        expects = now < self._claimed_at + 2 * self._gap <= until  # in a steady flow of messages without a delay
        return self._within if expects or min(self._outlook.due_at, starts_at) <= until else 0.0

    def call(self, wanted: int, options: dict[str, object], read: Callable[[TurnReply], None]) -> PlannedCall:
        """Return the call that settles what is acknowledged, and claims up to `wanted` messages unless that is 0."""
        receipts = [one.receipt for one in self._settlements.acks]
        return self._calls.turn(wanted, ahead=self._millis, receipts=receipts, **options), read, False  # type: ignore[arg-type]

    def read(self, reply: TurnReply, sent_at: float, now: float, *, wanted: int) -> ClaimReply | None:
        """Read a reply; returns what is claimed and due, None if nothing was done."""
        outlook, claimed = self._outlook, reply.claimed
        if claimed is None:
            self._from, outlook.lead = now + PLAIN_AGAIN, 0.0
            return None
        if acks := self._settlements.acks:
            self._settlements.read_acks(acks, reply.statuses)
            if self._settlements.cut_short:
                self._from = now + LATE_ACK
        if wanted:
            if claimed.messages:
                self._gap, self._claimed_at = now - self._claimed_at, now
            lead = min(self._millis / 1000, CLAIM_LEAD + self._in_flight.prefetch.latency.seconds)
            outlook.lead = lead if self.usable(now) else 0.0  # the general way claims nothing before it is due
            outlook.read_claimed(claimed, sent_at=sent_at, now=now)
            for learn in self._on_due_claimed:
                learn(claimed)
            if self._ahead is not None:
                claimed = self._ahead.hold(reply, claimed, sent_at + self._lease, now)
        return claimed
