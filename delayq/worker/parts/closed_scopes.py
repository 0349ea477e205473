"""Closed scopes: a name, or the whole queue, of which nothing starts for a time, as `RateLimited` asks."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

from delayq.broker.context import EngineCalls
from delayq.safe_log import SafeLog
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery
from delayq.worker.parts.part import Call, LoopPart, Stage, Turns

log = SafeLog("delayq.consumer")


class ClosedScopes(LoopPart):
    """The names of which this consumer starts nothing that it has claimed so far; None stands for the whole queue.

    A worker closes a scope at once, before the loop knows. Redis judges what is claimed after it has been told. Tokens
    rise, so the last one from before that says what goes back. If the queue is closed, it stays in the buffer until the
    loop returns it, in its order; if a name is, workers return it. Any thread may close and ask; only the loop updates.
    """

    stage = Stage.SETTLE
    _turns: Turns | None = None

    def __init__(self, calls: EngineCalls) -> None:
        """Start with nothing closed."""
        self._calls = calls
        self.closed: dict[str | None, float] = {}
        """The last token that is closed, by scope; infinite until Redis has been told."""
        self._untold: dict[str | None, int] = {}
        """The scopes that Redis is to close, and for how long (ms)."""
        self.closed_by: list[Callable[[], Collection[str | None]]] = []
        """What else tells Redis of scopes: each returns those that it has yet to tell of."""

    def connect(self, turns: Turns) -> None:
        """Learn to what loop they belong; a lease has none."""
        self._turns = turns

    def tell(self, name: str | None, wait: int) -> None:
        """Close a scope for so long (ms), here and in Redis."""
        self._untold[name] = max(wait, self._untold.get(name, 0))
        self.close(name)

    def pending(self) -> bool:
        """Return whether Redis has yet to close one."""
        return bool(self._untold)

    def plan(self, _: float) -> Iterator[Call]:
        """Yield the calls that close scopes."""
        if self.closed and self._turns is not None:
            untold = {*self._untold}
            for names in self.closed_by:
                untold.update(names())
            if self.update(untold, self._turns.deliveries):
                self._turns.recall()
        for name, wait in self._untold.items():
            yield self._calls.hold(name, wait), partial(self._on_told, name)

    def _on_told(self, name: str | None, reply: str) -> None:
        wait = self._untold.pop(name, 0)
        if name is None and self._turns is not None:
            self._turns.recall()  # what has not started goes back, in its order
        if reply == "0":
            text = "%s is not closed for %d ms, as RateLimited asks: the queue has too many limits"
            log.warning(text, name or "the queue", wait, extra={"name_": name})

    def close(self, name: str | None) -> None:
        """Start nothing more of a name, or of the queue, until Redis has been told."""
        self.closed[name] = math.inf

    def update(self, untold: Collection[str | None], in_flight: Mapping[InFlightDelivery, None]) -> bool:
        """Before a claim, keep only what is in flight now of scopes that Redis has been told of; forget what is over.

        Returns whether the queue is closed and something of it has not started: it is to go back.
        """
        tokens = [delivery.claimed.token for delivery in in_flight]
        for name, token in [*self.closed.items()]:
            if token == math.inf and name in untold:
                continue
            last = tokens[-1] if tokens and token == math.inf else token
            if tokens and tokens[0] <= last:
                self.closed[name] = last
            else:
                del self.closed[name]
        last = self.closed.get(None, 0)
        return last < math.inf and any(one.batch is None and one.claimed.token <= last for one in in_flight)

    def closes_queue(self, delivery: InFlightDelivery) -> bool:
        """Return whether a delivery must not start, nor anything before it."""
        return delivery.claimed.token <= self.closed.get(None, 0)

    def closes(self, delivery: InFlightDelivery) -> bool:
        """Return whether a delivery must not start because of its name."""
        name = delivery.attributes.name
        return bool(name) and delivery.claimed.token <= self.closed.get(name, 0)


def scope_closed(delivery: InFlightDelivery, scope: str) -> str | None:
    """Return the name that `RateLimited` closes with a scope, None for the queue; '' if it closes neither."""
    if scope == "queue":
        return None
    return delivery.attributes.name if scope == "name" else ""
