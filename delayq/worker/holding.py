"""What a consumer has claimed of a name, or of its queue, before it has found that no more of it may start."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from delayq.worker.in_flight_delivery import InFlightDelivery


class HeldScopes:
    """The names of which this consumer starts nothing that it has claimed so far; None stands for the whole queue.

    A worker closes a scope at once, before the loop knows. Redis judges what is claimed after it has been told. Tokens
    rise, so the last one from before that says what goes back. What is held of the queue stays in the buffer until the
    loop returns it, in its order; of a name, workers return it. Any thread may close and ask; only the loop updates.
    """

    def __init__(self) -> None:
        """Start with nothing held."""
        self._last_tokens: dict[str | None, float] = {}
        """By scope; infinite until Redis has been told."""

    def __bool__(self) -> bool:
        return bool(self._last_tokens)

    def close(self, name: str | None) -> None:
        """Start nothing more of a name, or of the queue, until Redis has been told."""
        self._last_tokens[name] = math.inf

    def update(self, untold: Collection[str | None], in_flight: Mapping[InFlightDelivery, None]) -> bool:
        """Before a claim, hold only what is in flight now of scopes that Redis has been told of; forget what is over.

        Returns whether something has not started that is held of the queue: it is to go back.
        """
        tokens = [delivery.claimed.token for delivery in in_flight]
        for name, token in [*self._last_tokens.items()]:
            if token == math.inf and name in untold:
                continue
            last = tokens[-1] if tokens and token == math.inf else token
            if tokens and tokens[0] <= last:
                self._last_tokens[name] = last
            else:
                del self._last_tokens[name]
        last = self._last_tokens.get(None, 0)
        return last < math.inf and any(one.batch is None and one.claimed.token <= last for one in in_flight)

    def holds_queue(self, delivery: InFlightDelivery) -> bool:
        """Return whether a delivery must not start, nor anything before it."""
        return delivery.claimed.token <= self._last_tokens.get(None, 0)

    def holds(self, delivery: InFlightDelivery) -> bool:
        """Return whether a delivery must not start because of its name."""
        name = delivery.attributes.name
        return bool(name) and delivery.claimed.token <= self._last_tokens.get(name, 0)


def scope_held(delivery: InFlightDelivery, scope: str) -> str | None:
    """Return the name that `RateLimited` closes with a scope, None for the queue; '' if it closes neither."""
    if scope == "queue":
        return None
    return delivery.attributes.name if scope == "name" else ""
