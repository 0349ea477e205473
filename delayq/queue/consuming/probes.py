"""What probes say of the consumers of a process: whether their loops go on, and whether they consume."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.queue.consuming.consumer import AsyncConsuming, Consuming, silent_for, was_stopped

AnyConsuming = Consuming | AsyncConsuming


def dead_loop(consumers: Sequence[AnyConsuming | None], within: float) -> str:
    """Return which loop does not go on, '' if all do; while a worker drains, its loops may wait for callbacks.

    A loop does not go on if it has not turned `within` so many seconds, beyond its tick.
    """
    for consuming in consumers:
        if consuming is None or not consuming.running or was_stopped(consuming):
            continue
        if (seconds := silent_for(consuming)) > within:
            return f"the loop of a consumer has not turned for {seconds:.0f} s"
    return ""


def why_unready(consumers: Sequence[AnyConsuming | None]) -> str:
    """Return why these do not consume all of their queues, '' if they do; None is one that has not started."""
    if not consumers or any(one is None for one in consumers):
        return "starting"
    for consuming in consumers:
        if consuming is None or not consuming.running or was_stopped(consuming):
            return "draining"
        if not consuming.healthy:
            return "Redis does not answer a consumer, or refuses its calls"
    return ""
