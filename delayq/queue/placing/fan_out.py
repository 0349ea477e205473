"""Operations of several partitions side by side: each of their round trips goes out together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import islice
from typing import Any, TypeVar

from delayq.broker.transport.operation import Every, EveryMade, Operation, Wait, first_error, reads_errors
from delayq.errors import DelayqError
from delayq.values.times import monotonic

T = TypeVar("T")


def side_by_side(operations: Iterable[Operation[T]]) -> Operation[list[T | DelayqError]]:
    """Run operations in the same round trips; returns for each its result, or the error with which it has ended.

    One that fails ends alone. The first round trip is that of all.
    """
    running = _SideBySide(list(operations))
    try:
        while running.steps:
            calling = {at: step for at, step in running.steps.items() if not isinstance(step, Wait)}
            if not calling:
                yield Wait(running.next_wait())
            else:
                counts = dict.fromkeys(calling, 0)
                calls = _counted(calling, counts)
                are_ready = all(isinstance(step, list) for step in calling.values())
                replies = iter((yield Every(calls) if are_ready else EveryMade(calls)))
                for at, count in counts.items():
                    running.go_on(at, list(islice(replies, count)))
            running.awake()
    finally:
        for operation in running.operations:
            operation.close()
    return running.results


def _counted(calling: Mapping[int, Any], counts: dict[int, int]) -> Iterator[Any]:
    """Yield the calls of all steps, and count those of each."""
    for at, step in calling.items():
        for call in step:
            counts[at] += 1
            yield call


class _SideBySide:
    """Operations, each at its step."""

    def __init__(self, operations: list[Operation[Any]]) -> None:
        self.operations = operations
        self.results: list[Any] = [None] * len(operations)
        self.steps: dict[int, Any] = {}
        self._wakes: dict[int, float] = {}
        for at in range(len(operations)):
            self._send(at, None)

    def go_on(self, at: int, replies: list[Any]) -> None:
        """Continue an operation with its replies, or with the first error among them."""
        error = first_error(replies)
        if error is None or reads_errors(self.steps[at]):
            self._send(at, replies)
        else:
            self._send(at, error)

    def next_wait(self) -> float:
        """Return for how many seconds all of them wait."""
        return max(0.0, min(self._wakes.values()) - monotonic())

    def awake(self) -> None:
        """Continue those that have waited long enough."""
        now = monotonic()
        for at in [at for at, wakes in self._wakes.items() if wakes <= now]:
            del self._wakes[at]
            self._send(at, [])

    def _send(self, at: int, given: Any) -> None:
        operation = self.operations[at]
        try:
            step = operation.throw(given) if isinstance(given, DelayqError) else operation.send(given)
        except StopIteration as end:
            self.results[at] = end.value
            self.steps.pop(at, None)
        except DelayqError as error:
            self.results[at] = error
            self.steps.pop(at, None)
        else:
            self.steps[at] = step
            if isinstance(step, Wait):
                self._wakes[at] = monotonic() + step.seconds


def results_of(results: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Return the results of all partitions; raise the first error, with the name of its partition."""
    for result, name in zip(results, names, strict=True):
        if isinstance(result, DelayqError):
            raise named(result, name)
    return list(results)


def named(error: DelayqError, partition: str) -> DelayqError:
    """Return the same error with the name of the partition in front."""
    told = copy(error)
    told.args = (f"{partition}: {error}", *error.args[1:])
    told.__cause__ = error.__cause__
    return told
