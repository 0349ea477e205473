"""A client is cut off before and after each command of each operation: every command is executed or not.

A process that continues gets the same result, once. If it is gone for ever, its commands so far stay executed,
and another consumer finishes the remaining work.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from delayq import DelayQueue
from delayq.broker.transport.executor import Executor
from tests.crash.cuts import Cut, Cutter, GoneError, gone
from tests.crash.operations import BURST, BY_NAME, CALLS, OCCURRENCE, OPERATIONS, OPTIONS, Operation, begun
from tests.crash.standing import finish, standing
from tests.model.running import connected
from tests.support.processes import run

EACH = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
TURNS = pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.long)])
"""Commands are cut off before and after in turn, and in the long tests the other way round as well."""


def cuts(course: Course, turn: int) -> Iterator[tuple[int, Cut]]:
    """Yield each command of a course, and where it is cut off."""
    for at in range(1, len(course.stood)):
        yield at, list(Cut)[(at + turn) % len(Cut)]


class Course(NamedTuple):
    """An undisturbed operation: its result, and the contents before it and after each of its commands."""

    result: Any
    stood: list[dict[str, Any]]


@pytest.fixture
def looking(redis_url) -> Iterator[Executor]:
    with connected(redis_url) as executor:
        yield executor


_courses: dict[str, Course] = {}
"""By the names of operations: each course is the same every time."""


def undisturbed(url: str, looking: Executor, operation: Operation) -> Course:
    if operation.name not in _courses:
        _courses[operation.name] = _watched(url, looking, operation)
    return _courses[operation.name]


def _watched(url: str, looking: Executor, operation: Operation) -> Course:
    cutter = Cutter()
    stood: list[dict[str, Any]] = []
    with begun(url, operation, cutter) as (queue, prepared):
        stood.append(standing(looking, CALLS))
        cutter.watch = lambda: stood.append(standing(looking, CALLS))
        cutter.arm(0, Cut.BEFORE)
        return Course(operation.act(queue, prepared), stood)


@TURNS
@EACH
def test_process_that_continues_gets_its_result_once(redis_url, looking, operation, turn):
    course = undisturbed(redis_url, looking, operation)
    assert len(course.stood) > 1
    for at, cut in cuts(course, turn):
        cutter = Cutter()
        with begun(redis_url, operation, cutter) as (queue, prepared):
            cutter.arm(at, cut)
            assert operation.act(queue, prepared) == course.result, f"cut {cut} command {at}"
            assert cutter.count > at
        assert standing(looking, CALLS) == course.stood[-1], f"cut {cut} command {at}"


@TURNS
@EACH
def test_executed_commands_of_a_dead_process_stay(redis_url, looking, operation, turn):
    course = undisturbed(redis_url, looking, operation)
    for at, cut in cuts(course, 1 - turn):
        cutter = Cutter()
        with begun(redis_url, operation, cutter) as (queue, prepared):
            cutter.arm(at, cut, ends=gone)
            with pytest.raises(GoneError):
                operation.act(queue, prepared)
            cutter.armed = cutter.is_gone = False
        stands = standing(looking, CALLS)
        assert stands == course.stood[at - (cut is Cut.BEFORE)], f"gone {cut} command {at}"
        finish(looking, CALLS)


def commands_of_a_burst(url: str) -> int:
    cutter = Cutter()
    with begun(url, BURST, cutter) as (queue, prepared):
        cutter.arm(0, Cut.BEFORE)
        assert BURST.act(queue, prepared) == [("a", 1), ("a", 2), ("b", 1)]
    return cutter.count


@pytest.mark.long
@pytest.mark.parametrize("cut", Cut)
def test_burst_that_is_cut_off_delivers_nothing_twice(redis_url, looking, cut):
    for at in range(1, commands_of_a_burst(redis_url) + 1):
        cutter = Cutter()
        with begun(redis_url, BURST, cutter) as (queue, prepared):
            cutter.arm(at, cut)
            assert BURST.act(queue, prepared) == [("a", 1), ("a", 2), ("b", 1)], f"cut {cut} command {at}"
        stands = standing(looking, CALLS)
        assert not stands["messages"]
        assert stands["totals"] == {"sent": "2", "delivered": "3", "nacked": "1", "acked": "2"}


def burst_killed(url: str, looking: Executor, at: int, cut: Cut) -> None:
    killed(url, BURST.name, at, cut)
    stands = standing(looking, CALLS)
    assert len(stands["messages"]) + int(stands["totals"].get("acked", 0)) == 2, f"killed {cut} command {at}"
    finish(looking, CALLS)


@pytest.mark.long
@pytest.mark.faults
def test_burst_killed_after_its_claim_loses_nothing(redis_url, looking):
    burst_killed(redis_url, looking, 8, Cut.AFTER)


@pytest.mark.torture
@pytest.mark.timeout(600)
@pytest.mark.parametrize("cut", Cut)
def test_burst_killed_at_any_command_loses_nothing(redis_url, looking, cut):
    # A burst ends by itself, and how often it has looked whether anything is due depends on the time.
    for at in range(1, commands_of_a_burst(redis_url) - 3):
        burst_killed(redis_url, looking, at, cut)


def commands_of_an_occurrence(url: str) -> int:
    cutter = Cutter()
    with begun(url, OCCURRENCE, cutter) as (queue, prepared):
        cutter.arm(0, Cut.BEFORE)
        assert OCCURRENCE.act(queue, prepared) == [("s", 1)]
    return cutter.count


@pytest.mark.long
@pytest.mark.parametrize("cut", Cut)
def test_occurrence_is_fired_once_if_its_consumer_is_cut_off(redis_url, looking, cut):
    for at in range(1, commands_of_an_occurrence(redis_url) + 1):
        cutter = Cutter()
        with begun(redis_url, OCCURRENCE, cutter) as (queue, prepared):
            cutter.arm(at, cut)
            assert OCCURRENCE.act(queue, prepared) == [("s", 1)], f"cut {cut} command {at}"
        assert fired(looking) == 1


def fired(looking: Executor) -> int:
    """Return how often the occurrence was fired; events, schedule and totals must agree."""
    stands = standing(looking, CALLS)
    sent = [kind for kind, _ in stands["events"] if kind == "sent"]
    ((_, _, counted, _, _),) = stands["schedules"]
    assert len(sent) == counted == int(stands["totals"].get("sent", 0))
    return int(counted)


def occurrence_killed(url: str, looking: Executor, at: int, cut: Cut) -> int:
    """Kill a consumer at a command or at its end, let another go on, and return how often the first had fired."""
    killed(url, OCCURRENCE.name, at, cut)
    before = fired(looking)
    if before == 0:
        with begun_again(url) as queue:
            OCCURRENCE.act(queue, None)
        assert fired(looking) == 1, f"killed {cut} command {at}"
    finish(looking, CALLS)
    return before


@contextmanager
def begun_again(url: str) -> Iterator[Any]:
    with DelayQueue("crash", url=url, **OPTIONS) as queue:
        yield queue


def command_that_fires(url: str, looking: Executor) -> int:
    """Return about which command fires: a wait for a wake-up may come before or after it."""
    stood = undisturbed(url, looking, OCCURRENCE).stood
    return next(at for at, stands in enumerate(stood) if stands["totals"].get("sent"))


@pytest.mark.long
@pytest.mark.faults
def test_occurrence_is_fired_once_if_its_consumer_is_killed_around_firing(redis_url, looking):
    fires = command_that_fires(redis_url, looking)
    ends = [(1, Cut.BEFORE), (fires, Cut.BEFORE), (fires, Cut.AFTER), (fires + 4, Cut.AFTER), (10_000, Cut.AFTER)]
    fired_before = [occurrence_killed(redis_url, looking, at, cut) for at, cut in ends]
    assert (fired_before[0], fired_before[-1]) == (0, 1)


@pytest.mark.torture
@pytest.mark.timeout(600)
@pytest.mark.parametrize("cut", Cut)
def test_occurrence_is_fired_once_if_its_consumer_is_killed_at_any_command(redis_url, looking, cut):
    for at in range(1, command_that_fires(redis_url, looking) + 2):
        occurrence_killed(redis_url, looking, at, cut)


KILLED = [("lease and ack", 6), ("redrive all", 6)]
CHILD = "from tests.crash.child import main; main()"


def killed(url: str, name: str, at: int, cut: Cut) -> None:
    """Kill a process during an operation."""
    words = [sys.executable, "-c", CHILD, url, name, str(at), cut]
    ended = run(words, check=False, capture_output=True, timeout=60)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()


def end_to_end(url: str, looking: Executor, name: str, ats: list[int]) -> None:
    course = undisturbed(url, looking, BY_NAME[name])
    for at in ats or range(1, len(course.stood)):
        for cut in Cut:
            killed(url, name, at, cut)
            assert standing(looking, CALLS) == course.stood[at - (cut is Cut.BEFORE)], f"killed {cut} command {at}"
            finish(looking, CALLS)


@pytest.mark.long
@pytest.mark.faults
@pytest.mark.parametrize(("name", "at"), KILLED)
def test_killed_process_leaves_whole_commands(redis_url, looking, name, at):
    end_to_end(redis_url, looking, name, [at])


@pytest.mark.torture
@pytest.mark.timeout(600)
@EACH
def test_process_killed_at_any_command_leaves_whole_commands(redis_url, looking, operation):
    end_to_end(redis_url, looking, operation.name, [])
