"""Every script does what its table says, does it once however often it is run, and not at all once overtaken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import redis

from delayq.answers import Claimed, Expired, Promoted
from delayq.errors import OutcomeUnknown
from delayq.values import Call
from tests.lua.tables import TABLES, parameters
from tests.support.scripts import KEYS, NOW, Case, World, deliver, observe, observe_replies, plant

LATER = 1000


def later(call: Call[Any], by: int) -> Call[Any]:
    """Return the same call as it arrives later."""
    return replace(call, args=[NOW + by, *call.args[1:]])


def looks_again(case: Case) -> bool:
    """Tell whether a call has nothing to remember: a promotion or an expiry that found nothing to do."""
    return isinstance(case.answer, Promoted | Expired) and case.before == case.after


def renewed(world: World, answer: Any, by: int) -> World:
    """Return a world after a claim was run again `by` milliseconds later."""
    return world.but(
        unack={id: time + by * (id in {one.id for one in answer.deliveries}) for id, time in world.unack.items()}
    )


@pytest.mark.parametrize("script", TABLES)
def test_every_mutating_script_has_a_table_without_double_names(script):
    names = [case.name for case in TABLES[script]]
    assert names
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", parameters())
def test_a_call_does_what_its_table_says(executor, case: Case):
    plant(executor, case.before)
    assert observe(executor) == case.before
    if isinstance(case.answer, type):
        with pytest.raises(case.answer):
            executor.call(case.call)
    else:
        assert executor.call(case.call) == case.answer
    assert observe(executor) == case.after


@pytest.mark.parametrize("case", parameters(refused=False))
def test_a_call_that_is_run_again_changes_nothing_and_answers_the_same(executor, case: Case):
    plant(executor, case.before)
    assert deliver(executor, case.call) == case.answer
    remembered = observe_replies(executor)
    if looks_again(case):
        assert not remembered
    else:
        assert remembered.keys() == {b"a-slot"}
        assert remembered[b"a-slot"].startswith(b"1 %d " % NOW)
    for run in range(2, 6):
        late = 0 if looks_again(case) else run * LATER
        answer, after = case.answer, case.after
        if isinstance(answer, Claimed):
            answer = answer._replace(now=answer.now + late, deadline=answer.deadline + late)
            after = renewed(after, answer, late)
        assert deliver(executor, later(case.call, late)) == answer
        if run in (2, 5):
            assert observe(executor) == after
            assert observe_replies(executor) == remembered


@pytest.mark.parametrize("case", parameters())
def test_a_call_that_a_later_one_of_its_slot_has_overtaken_answers_empty_and_changes_nothing(real_executor, case: Case):
    plant(real_executor, case.before)
    real_executor.client.hset(KEYS.replies, "a-slot", f"10 {NOW} 1")
    if case.call.script.name == "ready_to_unack":
        assert deliver(real_executor, case.call, sequence=9).deliveries == []
    else:
        with pytest.raises(OutcomeUnknown, match="overtaken"):
            deliver(real_executor, case.call, sequence=9)
    assert observe(real_executor) == case.before
    assert observe_replies(real_executor) == {b"a-slot": f"10 {NOW} 1".encode()}


@pytest.mark.parametrize("case", parameters(refused=False))
def test_the_next_call_of_a_slot_and_calls_of_other_slots_are_executed(real_executor, case: Case):
    plant(real_executor, case.before)
    real_executor.client.hset(KEYS.replies, mapping={"a-slot": f"9 {NOW} 1", "other": f"10 {NOW} 1"})
    assert deliver(real_executor, case.call, sequence=10) == case.answer
    assert observe(real_executor) == case.after
    replies = observe_replies(real_executor)
    assert replies[b"other"] == f"10 {NOW} 1".encode()
    assert replies[b"a-slot"].startswith(b"9 " if looks_again(case) else b"10 ")


@pytest.mark.faults
@pytest.mark.parametrize("case", parameters(refused=False))
def test_a_call_whose_replies_are_lost_is_carried_out_once(executor, monkeypatch, case: Case):
    plant(executor, case.before)
    executor.client.script_load(case.call.script.text)
    lost = lose_replies(executor, monkeypatch, 3)
    assert executor.call(case.call) == case.answer
    assert len(lost) == 3
    assert observe(executor) == case.after


def lose_replies(executor: Any, monkeypatch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Have the next `number` replies to scripts read from the server and lost; returns the list of those lost."""
    pool = executor.client.connection_pool
    lost: list[str] = []

    class Lossy(pool.connection_class):  # type: ignore[misc, name-defined]
        def send_packed_command(self, command, *args, **options):
            command = list(command)
            self.asked = any(b"EVALSHA" in chunk for chunk in command)
            return super().send_packed_command(command, *args, **options)

        def read_response(self, *args, **options):
            try:
                return super().read_response(*args, **options)
            finally:
                if self.asked and len(lost) < number:
                    lost.append("EVALSHA")
                    raise redis.ConnectionError("the reply was lost")

    pool.disconnect()
    pool.reset()
    pool.connection_class = Lossy
    monkeypatch.setattr("delayq.conversation._FIRST_PAUSE", 0.0)
    return lost
