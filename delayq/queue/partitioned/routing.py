"""How the methods of a queue become those of a partitioned one: to one partition by an id, or to all, and merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from delayq.broker.transport.operation import Operation
from delayq.broker.transport.protocol import ShouldRetry
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.placing.fan_out import results_of, side_by_side
from delayq.values.times import Duration, monotonic, to_millis

Make = Callable[[Any], Any]
"""Returns what a method of a partition returns: its operation."""


def at_one(partitions: Sequence[Any], own: Any, make: Make, is_unknown: Callable[[Any], bool]) -> Operation[Any]:
    """Run an operation on the partition of an id; if that does not know it, on all others.

    A message with a key, or one that joins a group, is not where its id belongs.
    """
    (result,) = yield from at_each([own], make)
    others = [one for one in partitions if one is not own]
    if not is_unknown(result) or not others:
        return result
    results = yield from at_each(others, make)
    return next((one for one in results if not is_unknown(one)), result)


def at_each(partitions: Sequence[Any], make: Make) -> Operation[list[Any]]:
    """Run an operation on several partitions side by side; raises the first error, which names its partition."""
    results = yield from side_by_side([make(one) for one in partitions])
    return results_of(results, [one.name for one in partitions])


def by_id(method: Callable[..., Any], is_unknown: Callable[[Any], bool]) -> Callable[..., Any]:
    """Return a method whose first argument is an id: it acts on the partition that has it."""

    @wraps(method)
    def routed(self: Any, id: str, *args: Any, **options: Any) -> Any:
        return self.perform_at(id, lambda one: method(one, id, *args, **options), is_unknown)

    return routed


def of_all(method: Callable[..., Any], merge: Callable[[Sequence[Any]], Any]) -> Callable[..., Any]:
    """Return a method that acts on all partitions and merges what they return."""

    @wraps(method)
    def routed(self: Any, *args: Any, **options: Any) -> Any:
        return self.perform_all(lambda one: method(one, *args, **options), merge)

    return routed


def which_has(partitions: Sequence[Any], own: Any, id: str) -> Operation[Any]:
    """Return which other partition than its own has a message, or its result; None for none."""
    others = [one for one in partitions if one is not own]
    make: Make = lambda one: DelayQueue.get(one, id)  # noqa: E731
    found = yield from at_each(others, make)
    return next((one for one, message in zip(others, found, strict=True) if message is not None), None)


def until(timeout: Duration | None) -> ShouldRetry:
    """Return whether to try again to reach a server within a time; None for what its queue says."""
    if timeout is None:
        return None
    end = monotonic() + to_millis(timeout, "connect_timeout") / 1000
    return lambda _: monotonic() < end
