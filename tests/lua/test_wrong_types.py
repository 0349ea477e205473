"""A key of another type is found before anything is written: Redis does not take back what a script has done."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from delayq.errors import ServerError
from delayq.executor import Executor
from tests.lua.tables import parameters
from tests.support.scripts import KEYS, Case, World, observe, observe_replies, plant

PLACES = tuple(part.name for part in fields(World))


def run_without(executor: Executor, case: Case, part: str) -> tuple[Any, World]:
    """Run a case with a text in the place of one part; returns the answer or the error, and the other contents."""
    key = getattr(KEYS, part)
    executor.client.flushdb()
    plant(executor, case.before)
    executor.client.set(key, "a text")
    try:
        answer: Any = executor.call(case.call)
    except ServerError as error:
        assert "WRONGTYPE" in str(error)
        answer = ServerError
    if executor.client.type(key) == b"string":
        assert executor.client.get(key) == b"a text"
    return answer, observe(executor, without=[part])


@pytest.mark.faults
@pytest.mark.parametrize("case", parameters(refused=False))
def test_a_key_of_another_type_is_refused_before_the_first_write(real_executor, case: Case):
    executor, script = real_executor, case.call.script
    problems = {}
    for part in script.parts:
        if part == "replies":
            continue
        before, after = (world.but(**{part: getattr(World(), part)}) for world in (case.before, case.after))
        answer, left = run_without(executor, case, part)
        changed = getattr(case.before, part) != getattr(case.after, part)
        if answer is ServerError:
            if left != before:
                problems[part] = "refused, but some of it was done"
        elif changed and script.name != "purge":  # which removes a key whatever its type
            problems[part] = "not refused"
        elif left != after:
            problems[part] = "done otherwise"
    assert not problems


@pytest.mark.faults
@pytest.mark.parametrize("case", parameters(refused=False))
def test_replies_of_another_type_are_refused_before_the_first_write(real_executor, case: Case):
    answer, left = run_without(real_executor, case, "replies")
    assert answer is ServerError
    assert left == case.before


@pytest.mark.faults
def test_a_refused_call_does_not_make_its_slot_forget(real_executor):
    plant(real_executor, World(pending={"a": 5}))
    assert not observe_replies(real_executor)
