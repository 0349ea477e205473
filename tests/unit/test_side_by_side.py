"""Operations of several partitions run in the same round trips."""

from __future__ import annotations

from typing import Any

from delayq.broker.transport.operation import Every, EveryMade
from delayq.errors import ServerError
from delayq.queue.placing.fan_out import side_by_side


def _one(name: str) -> Any:
    (reply,) = yield [name]
    return reply


def _many(names: list[str], made: list[str]) -> Any:
    replies = yield (made.append(name) or name for name in names)
    return "".join(replies)


def test_calls_that_are_made_while_others_are_sent_are_not_made_before():
    made: list[str] = []
    operation = side_by_side([_one("a"), _many(["b", "c"], made), _many(["d"], made)])
    step: Any = next(operation)
    assert (type(step), made) == (EveryMade, [])
    assert [next(step), next(step), made] == ["a", "b", ["b"]]
    assert [*step] == ["c", "d"]
    results = _sent(operation, ["A", "B", "C", "D"])
    assert results == ["A", "BC", "D"]


def test_an_error_ends_the_operation_of_its_call_alone():
    error = ServerError("refused")
    operation = side_by_side([_many(["a", "b"], []), _many(["c"], [])])
    assert [*next(operation)] == ["a", "b", "c"]
    assert _sent(operation, ["A", error, "C"]) == [error, "C"]


def test_calls_that_are_there_go_out_in_one_piece():
    operation = side_by_side([_one("a"), _one("b")])
    step = next(operation)
    assert (type(step), step) == (Every, ["a", "b"])
    assert _sent(operation, ["A", "B"]) == ["A", "B"]


def _sent(operation: Any, replies: list[Any]) -> Any:
    try:
        operation.send(replies)
    except StopIteration as end:
        return end.value
    raise AssertionError("it goes on")
