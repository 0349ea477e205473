"""A key of another type is found before anything is written: Redis does not take back what a script has done."""

from __future__ import annotations

from typing import Any

import pytest

from delayq.errors import ServerError
from delayq.executor import Executor
from delayq.values import Outgoing
from tests.lua.cases.states import PENDING
from tests.lua.tables import parameters
from tests.support.scripts import KEYS, LOG, NOW, Case, World, calls, observe, observe_replies, plant


def run_without(executor: Executor, case: Case, part: str, remembered: dict[bytes, bytes]) -> tuple[Any, World]:
    """Run a case with a text in the place of one part; returns the answer or error, and the contents of the others."""
    key = getattr(KEYS, part)
    executor.client.flushdb()
    plant(executor, case.before)
    executor.client.hset(KEYS.replies, mapping=remembered)
    executor.client.set(key, "a text")
    answer = executor.run([case.call])[0]
    if executor.client.type(key) == b"string":
        assert executor.client.get(key) == b"a text"
    return answer, observe(executor, without=[part])


def without(world: World, part: str) -> World:
    return world.but(**{part: getattr(World(), part)})


@pytest.mark.faults
@pytest.mark.parametrize("case", parameters(refused=False))
def test_a_key_of_another_type_is_refused_before_the_first_write(real_executor, case: Case):
    executor, script = real_executor, case.call.script
    # What the slot of the call remembers, be it the first or the second of this client.
    remembered = {f"{executor.client_name}.{number}".encode(): f"0 {NOW} 1".encode() for number in (1, 2)}
    problems = {}
    for part in script.parts:
        if part == "replies":
            continue
        answer, left = run_without(executor, case, part, remembered)
        changed = getattr(case.before, part) != getattr(case.after, part)
        if isinstance(answer, ServerError) and "WRONGTYPE" in str(answer):
            if left != without(case.before, part) or observe_replies(executor) != remembered:
                problems[part] = "refused, but some of it was done"
        elif changed and script.name != "purge":  # which removes a key whatever its type
            problems[part] = "not refused"
        elif (answer, left) != (case.answer, without(case.after, part)):
            problems[part] = "done otherwise"
    assert not problems


@pytest.mark.faults
@pytest.mark.parametrize("mend", [True, False], ids=["mends", "looks"])
def test_a_repair_refuses_a_key_of_another_type_though_it_has_nothing_to_do_with_it(real_executor, mend):
    logged = PENDING + World(meta=LOG)
    for call in (calls.repair([b"a"], mend=mend, look=False, retries=4), calls.repair_dead([b"no entry"], mend=mend)):
        case = Case("well", logged, call, "0", logged)
        for part in set(call.script.parts) - {"replies"}:
            answer, _ = run_without(real_executor, case, part, {b"another": b"1 1 1"})
            assert isinstance(answer, ServerError), part
            assert "WRONGTYPE" in str(answer), part


@pytest.mark.faults
@pytest.mark.parametrize("case", parameters(refused=False))
def test_replies_of_another_type_are_refused_before_the_first_write(real_executor, case: Case):
    plant(real_executor, case.before)
    real_executor.client.set(KEYS.replies, "a text")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        real_executor.call(case.call)
    assert observe(real_executor) == case.before
    assert real_executor.client.get(KEYS.replies) == b"a text"


@pytest.mark.faults
def test_a_foreign_key_in_the_place_of_the_ledger_is_nothing_to_a_send_without_a_run(real_executor):
    real_executor.client.set(KEYS.runs, "a text")
    out = [Outgoing("a", 5, 3, b"A", b"")]
    assert real_executor.call(calls.send(out, replace=False, max_length=None)) == "1"
    with pytest.raises(ServerError, match="WRONGTYPE"):
        real_executor.call(calls.send(out, replace=True, max_length=None, run="r"))
    assert observe(real_executor, without=["runs"]) == World(
        pending={"a": 5}, retries={"a": 3}, messages={"a": "A"}, meta={"sent": 1}, wake=1
    )
