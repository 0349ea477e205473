"""Repair scripts can also only inspect: they find the same, write nothing, and inspect again when repeated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from delayq.broker.requests import ScriptCall
from delayq.queue.repairing.repair import DEAD, DEEP, recount_call, repair_dead_call
from tests.lua.cases.states import CROWD, LEASED, READY
from tests.lua.cases.states import DEAD as DIED
from tests.lua.tables import TABLES
from tests.support.scripts import KEYS, NOW, Case, World, calls, deliver, observe, observe_replies, plant

REPAIR_SCRIPTS = ["repair", "repair_dead", "recount"]


def inspecting(call: ScriptCall[Any]) -> ScriptCall[Any]:
    """Return the call that only inspects instead of repairing."""
    assert call.args[1] == 1
    return replace(call, args=[call.args[0], 0, *call.args[2:]])


@pytest.mark.table(
    "case", [pytest.param(case, id=f"{name}: {case.name}") for name in REPAIR_SCRIPTS for case in TABLES[name]]
)
def test_inspection_finds_the_same_as_repair_and_writes_nothing(real_executor, case: Case):
    plant(real_executor, case.before)
    assert deliver(real_executor, inspecting(case.call)) == case.reply
    assert observe(real_executor) == case.before
    assert not observe_replies(real_executor)
    assert deliver(real_executor, inspecting(case.call)) == case.reply


@pytest.mark.table(
    "case",
    [
        pytest.param(case, id=f"{name}: {case.name}")
        for name in REPAIR_SCRIPTS
        for case in TABLES[name]
        if case.before == case.after
    ],
)
def test_repair_of_a_healthy_queue_does_not_change_meta(real_executor, case: Case):
    plant(real_executor, case.before)
    before = observe(real_executor).meta
    deliver(real_executor, case.call)
    assert observe(real_executor).meta == before


@pytest.mark.parametrize("limit", [0, 5], ids=["beyond what is counted", "counted"])
def test_counter_that_is_not_a_number_is_repaired(executor, limit):
    plant(executor, World(ready=["x"], unack={"y": 5}, messages={"y": "Y"}))
    executor.client.hset(KEYS.meta, mapping={"stale_ready": "many", "stale_retry": "few", "backoffs": ""})
    stale = min(limit, 1)
    assert deliver(executor, recount_call(calls, fix=True, limit=limit)) == (-1 - stale, -1, -1, 0, 0)
    counted = {b"stale_ready": b"%d" % stale, b"stale_retry": b"0", b"backoffs": b"0"}
    assert executor.client.hgetall(KEYS.meta) == counted | observe_replies(executor)


@pytest.mark.table("case", [case for case in TABLES["repair"] if case.before != case.after], ids=lambda case: case.name)
def test_second_repair_finds_nothing(real_executor, case: Case):
    plant(real_executor, case.before)
    deliver(real_executor, case.call)
    again = deliver(real_executor, case.call, sequence=2)
    assert set(again) <= set("078"), again


EVERYWHERE = World(
    pending={"p1": 1, "p2": 2},
    ready=["r1", "r2", "r1"],
    unack={"u1": 1},
    retry=["t1"],
    garbage={"g1", "g2"},
    retries={"b1": 1},
    messages={"m1": "one", "m2": "two"},
    deliveries={"d1": "leased -5 1 T-9 T-9 w"},
    headers={"h1": "h"},
    attributes={"n1": "name=n"},
    errors={"e1": "e"},
    dead={"x:T-7": -1},
    dead_messages={"y:T-7": DIED.dead_messages["a:T-7"]},
    dead_ids={"z": "T-9 T-7"},
)
"""Different ids in every structure."""


def walk(executor, part: str, limit: int) -> list[str]:
    found, cursor = [], "0"
    for _ in range(100):
        cursor, ids = executor.call(calls.walk(part, cursor=cursor, limit=limit))
        found += [id.decode() for id in ids]
        if cursor == "0":
            return found
    raise AssertionError("the walk does not end")


@pytest.mark.parametrize("part", [*DEEP, *DEAD])
def test_walk_returns_all_ids_of_a_structure(executor, part):
    plant(executor, EVERYWHERE + CROWD + LEASED)
    world = observe(executor)
    expected = [*getattr(world, part)]
    if part == "dead_ids":
        expected = [f"{id}:{token}" for id, tokens in world.dead_ids.items() for token in tokens.split()]
    if part in ("pending", "retries", "headers", "attributes", "errors"):
        expected = [id for id in expected if id not in world.messages]
    tokens = {"T-9": "1699999999999991", "T-7": "1699999999999993", "T-60": "1699999999999940"}
    for limit in (1, 2, 1000):
        found = walk(executor, part, limit)
        assert sorted(found) == sorted(
            f"{id}:{tokens[token]}" if token in tokens else entry
            for entry in expected
            for id, _, token in [entry.partition(":")]
        )
    assert observe(executor) == world


def test_walk_over_a_list_finds_all_remaining_ids_while_its_head_changes(executor):
    plant(executor, World(ready=[f"m{number}" for number in range(10)]))
    cursor, first = executor.call(calls.walk("ready", cursor="0", limit=4))
    assert first == [b"m6", b"m7", b"m8", b"m9"]
    executor.client.lpop(KEYS.ready, 3)
    executor.client.lpush(KEYS.ready, "again")
    cursor, second = executor.call(calls.walk("ready", cursor=cursor, limit=4))
    assert (cursor, second) == ("8", [b"again", b"m3", b"m4", b"m5"])
    assert executor.call(calls.walk("ready", cursor=cursor, limit=4)) == ("0", [])


def test_walk_over_thousands_of_ids_misses_none(executor):
    ids = {f"m{number}": 5 for number in range(3000)}
    plant(executor, World(unack=ids, messages=dict.fromkeys(ids, "m"), ready=[*ids]))
    for part in ("unack", "messages", "ready"):
        assert set(walk(executor, part, 700)) == set(ids)


def test_an_empty_structure_has_no_ids(executor):
    plant(executor, READY)
    assert walk(executor, "retry", 5) == walk(executor, "dead", 5) == walk(executor, "garbage", 5) == []


def test_invalid_dead_letter_entry_is_removed_unless_it_has_a_message(executor):
    plant(executor, CROWD)
    executor.client.zadd(KEYS.dead, {"stray": 1, "odd": 2})
    executor.client.hset(KEYS.dead_messages, "odd", "x")
    assert deliver(executor, repair_dead_call(calls, [b"stray", b"odd", b"none"], fix=True)) == "100"
    assert executor.client.zrange(KEYS.dead, 0, -1)[0] == b"odd"
    assert executor.client.hget(KEYS.dead_messages, "odd") == b"x"


def test_unreadable_dead_message_gets_an_entry_with_the_current_time(executor):
    executor.client.hset(KEYS.dead_messages, "a:5", "no line of counts")
    assert deliver(executor, repair_dead_call(calls, [b"a:5"], fix=True)) == "2"
    assert executor.client.zrange(KEYS.dead, 0, -1, withscores=True) == [(b"a:5", NOW)]
    assert executor.client.hgetall(KEYS.dead_ids) == {b"a": b"5"}
