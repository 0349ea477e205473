"""A key of the wrong type is found before anything is written: Redis never rolls a script back.

Except for the event log, which must not stop a call: see `test_log_lost`.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest

from delayq.broker.requests import Outgoing
from delayq.broker.transport.executor import Executor
from delayq.errors import ServerError
from delayq.queue.repairing.repair import repair_call, repair_dead_call
from delayq.queue.sweeps.rekeying import rekey_call
from tests.lua.cases.states import PENDING
from tests.lua.tables import TABLES, every_case
from tests.support.scripts import KEYS, LOG, NOW, Case, World, calls, observe, observe_replies, plant

MANY = 20
"""From so many cases of a script on, each case is run with every other of its keys."""
NOT_LOOKED_AT = {name: {"messages", "retries"} for name in ("ack", "turn", "commit_staged")}
"""Keys whose type a script does not check ahead: the call can be repeated once the key is gone, or repaired."""


def run_without(executor: Executor, case: Case, part: str, remembered: dict[bytes, bytes]) -> tuple[Any, World]:
    """Run a case with a text in place of one part; return the reply or error, and the contents of the other parts."""
    key = getattr(KEYS, part)
    executor.client.flushdb()
    plant(executor, case.before)
    executor.client.hset(KEYS.meta, mapping=remembered)
    executor.client.set(key, "a text")
    reply = executor.run([case.call])[0]
    if executor.client.type(key) == b"string":
        assert executor.client.get(key) == b"a text"
    return reply, observe(executor, without=[part])


def assert_repairable(executor: Executor, case: Case, part: str) -> None:
    """Delete the text, repair, and assert that nothing else is left of the messages."""
    ids = [id.encode() for id in case.before.deliveries]
    executor.client.delete(getattr(KEYS, part))
    executor.call(repair_call(calls, ids, fix=True, search=True, retries=4))
    assert set(executor.call(repair_call(calls, ids, fix=False, search=True, retries=4))) <= {"0"}


def assert_executes_again(executor: Executor, case: Case, part: str) -> None:
    """Delete the text, repeat the call, and assert that it replies and leaves what it would have at once."""
    executor.client.delete(getattr(KEYS, part))
    assert executor.run([case.call])[0] == case.reply
    assert observe(executor, without=[part]) == without(case.after, part)


def without(world: World, part: str) -> World:
    return world.but(**{part: getattr(World(), part)})


@pytest.mark.faults
@every_case(refused=False, some=4)
def test_key_of_wrong_type_is_refused_before_the_first_write(real_executor, case: Case):
    executor, script = real_executor, case.call.script
    # The remembered reply of the slot of the call, which is the first or the second of this client.
    remembered = {
        f"{executor.protocol.call_slots.client_name}.{number}".encode(): f"0 {NOW} 1".encode() for number in (1, 2)
    }
    problems = {}
    turn = crc32(case.name.encode()) if len(TABLES[script.name]) >= MANY else None
    for number, part in enumerate(script.parts):
        if part == "events" or (turn is not None and (turn + number) % 2):
            continue
        reply, left = run_without(executor, case, part, remembered)
        changed = getattr(case.before, part) != getattr(case.after, part)
        if isinstance(reply, ServerError) and "WRONGTYPE" in str(reply):
            if left == without(case.before, part) and (part == "meta" or observe_replies(executor) == remembered):
                continue
            if part in NOT_LOOKED_AT.get(script.name, ()):
                assert_executes_again(executor, case, part)
                run_without(executor, case, part, remembered)
                assert_repairable(executor, case, part)
            else:
                problems[part] = "refused, but partly executed"
        elif changed and script.name != "purge":  # which removes a key whatever its type
            problems[part] = "not refused"
        elif (reply, left) != (case.reply, without(case.after, part)):
            problems[part] = "executed differently"
    assert not problems


@pytest.mark.faults
@pytest.mark.parametrize("fix", [True, False], ids=["mends", "looks"])
def test_repair_and_rekey_refuse_a_key_of_wrong_type_that_they_do_not_use(real_executor, fix):
    logged = PENDING + World(meta=LOG)
    repairs = (
        repair_call(calls, [b"a"], fix=fix, search=False, retries=4),
        repair_dead_call(calls, [b"no entry"], fix=fix),
    )
    for call in (
        *repairs,
        *((rekey_call(calls, part, [("none", b"A", b"new")]) for part in ("messages", "successors")) if fix else ()),
    ):
        case = Case("well", logged, call, "0", logged)
        for part in set(call.script.parts) - {"events"}:
            reply, _ = run_without(real_executor, case, part, {b"another.slot": b"1 1 1"})
            assert isinstance(reply, ServerError), part
            assert "WRONGTYPE" in str(reply), part


@pytest.mark.faults
def test_send_without_a_run_ignores_a_ledger_of_wrong_type(real_executor):
    real_executor.client.set(KEYS.runs, "a text")
    a, b = (Outgoing(id, 5, 3, b"A", b"") for id in "ab")
    for out, statuses in ([a], "1"), ([a, b], "01"):
        assert real_executor.call(calls.send(out, replace=False, max_length=None)) == statuses
    with pytest.raises(ServerError, match="WRONGTYPE"):
        real_executor.call(calls.send([a], replace=True, max_length=None, run="r"))
    assert observe(real_executor, without=["runs"]) == World(
        pending={"a": 5, "b": 5}, retries={"a": 3, "b": 3}, messages={"a": "A", "b": "A"}, meta={"sent": 2}, wake=1
    )
