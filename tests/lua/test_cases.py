"""Every script does what its table says, executes once when repeated, and never executes once overtaken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import redis

from delayq.broker.replies import ClaimReply, ExpireReply, PromoteReply, TurnReply
from delayq.broker.requests import ScriptCall
from delayq.errors import OutcomeUnknown
from tests.lua.tables import TABLES, every_case, on_both
from tests.support.scripts import KEYS, NOW, Case, World, deliver, observe, observe_replies, plant

LATER = 1000


def later(call: ScriptCall[Any], by: int) -> ScriptCall[Any]:
    """Return the same call, arriving later."""
    return replace(call, args=[NOW + by, *call.args[1:]])


def is_not_remembered(case: Case) -> bool:
    """Return whether a call is not remembered: a promotion, an expiry or a claim from pending that moved nothing."""
    claims = case.call.script.name in {"pending_to_unack", "turn"}
    return (claims or isinstance(case.reply, PromoteReply | ExpireReply)) and case.before == case.after


def finds_nothing(case: Case) -> bool:
    """Return whether a call is a promotion in an empty queue, which has no use for replies and does not read them."""
    return isinstance(case.reply, PromoteReply) and case.before.but(meta={}) == World()


def told_later(reply: Any, by: int, after: World) -> Any:
    """Return the reply of a claim that was run again `by` milliseconds later."""
    if isinstance(reply, TurnReply):
        if not reply.micros:  # it was to claim nothing
            return reply
        return reply._replace(claimed=told_later(reply.claimed, by, after), micros=reply.micros + by * 1000)
    reply = reply._replace(now=reply.now + by, deadline=reply.deadline + by)
    return reply if reply.next_deadline < 0 else reply._replace(next_deadline=NOW + min(after.unack.values()))


def renewed(world: World, reply: Any, by: int) -> World:
    """Return a world after a claim was run again `by` milliseconds later."""
    return world.but(
        unack={id: time + by * (id in {one.id for one in reply.messages}) for id, time in world.unack.items()}
    )


@pytest.mark.table("script", TABLES)
def test_every_mutating_script_has_a_table_with_unique_names(script):
    names = [case.name for case in TABLES[script]]
    assert names
    assert len(set(names)) == len(names)


@on_both
@every_case()
def test_call_does_what_its_table_says(executor, case: Case):
    plant(executor, case.before)
    assert observe(executor) == case.before
    if isinstance(case.reply, type):
        with pytest.raises(case.reply):
            executor.call(case.call)
    else:
        assert executor.call(case.call) == case.reply
    assert observe(executor) == case.after


@every_case(refused=False)
def test_who_waits_no_more_is_told_and_can_read_it(case: Case):
    told = {id for id, until in case.before.waited.items() if until >= 0} - case.after.waited.keys()
    assert case.after.ends[: len(case.before.ends)] == case.before.ends
    new = case.after.ends[len(case.before.ends) :]
    assert (
        new == [""] if case.call.script.name == "purge" and told else {id for ids in new for id in ids.split()} == told
    )


@on_both
@every_case(refused=False)
def test_repeated_call_changes_nothing_and_returns_the_same_reply(executor, case: Case):
    plant(executor, case.before)
    assert deliver(executor, case.call) == case.reply
    remembered = observe_replies(executor)
    if is_not_remembered(case):
        assert not remembered
    else:
        assert remembered.keys() == {b"a.slot"}
        assert remembered[b"a.slot"].startswith(b"1 %d " % NOW)
    for run in range(2, 6):
        late = 0 if is_not_remembered(case) else run * LATER
        reply, after = case.reply, case.after
        if (claimed := reply.claimed if isinstance(reply, TurnReply) else reply) and isinstance(claimed, ClaimReply):
            after = renewed(after, claimed, late)
            reply = told_later(reply, late, after)
        assert deliver(executor, later(case.call, late)) == reply
        if run in (2, 5):
            assert observe(executor) == after
            assert observe_replies(executor) == remembered


@every_case()
def test_call_overtaken_by_a_later_one_of_its_slot_changes_nothing(real_executor, case: Case):
    plant(real_executor, case.before)
    real_executor.client.hset(KEYS.meta, "a.slot", f"10 {NOW} 1")
    if case.call.script.name in {"ready_to_unack", "pending_to_unack"}:
        assert deliver(real_executor, case.call, sequence=9).messages == []
    elif finds_nothing(case):
        assert deliver(real_executor, case.call, sequence=9) == case.reply
    else:
        with pytest.raises(OutcomeUnknown, match="overtaken"):
            deliver(real_executor, case.call, sequence=9)
    assert observe(real_executor) == case.before
    assert observe_replies(real_executor) == {b"a.slot": f"10 {NOW} 1".encode()}


@every_case(refused=False)
def test_next_call_of_a_slot_is_executed_and_other_slots_are_kept(real_executor, case: Case):
    plant(real_executor, case.before)
    real_executor.client.hset(KEYS.meta, mapping={"a.slot": f"9 {NOW} 1", "another.slot": f"10 {NOW} 1"})
    assert deliver(real_executor, case.call, sequence=10) == case.reply
    assert observe(real_executor) == case.after
    replies = observe_replies(real_executor)
    assert replies[b"another.slot"] == f"10 {NOW} 1".encode()
    assert replies[b"a.slot"].startswith(b"9 " if is_not_remembered(case) else b"10 ")


@pytest.mark.faults
@on_both
@every_case(refused=False, some=4)
def test_call_whose_replies_are_lost_executes_once(executor, monkeypatch, case: Case):
    plant(executor, case.before)
    executor.client.script_load(case.call.script.text)
    with monkeypatch.context() as patch:
        lost = lose_replies(executor, patch, 3)
        assert executor.call(case.call) == case.reply
        assert len(lost) == 3
    assert observe(executor) == case.after


def lose_replies(executor: Any, monkeypatch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Lose the next `number` replies to scripts after they are read; return the list of lost replies."""
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

    for server in executor._servers:
        server.forget()
    pool.disconnect()
    pool.reset()
    monkeypatch.setattr(pool, "connection_class", Lossy)
    monkeypatch.setattr("delayq.broker.transport.protocol._FIRST_PAUSE", 0.0)
    return lost
