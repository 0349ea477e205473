"""Garbage collection over many calls, and the call slots it prunes."""

from __future__ import annotations

import pytest

from delayq.broker.replies import CollectReply
from delayq.broker.requests import ScriptCall
from delayq.queue.repairing.repair import repair_dead_call
from tests.support.scripts import KEYS, NOW, T, World, calls, deliver, observe, observe_replies, plant


def collect(*, limit: int = 1000, slot_ttl: int = 1000) -> ScriptCall[CollectReply]:
    return calls.collect_garbage(limit=limit, dead_max=1000, dead_ttl=1000, slot_ttl=slot_ttl)


def test_collection_respects_its_limit_and_collects_each_once(executor):
    plant(
        executor,
        World(
            garbage=set("abcde"),
            messages={id: id.upper() for id in "abcde"},
            retries=dict.fromkeys("abcde", 0),
            deliveries=dict.fromkeys("abcde", "garbage -5 1 T-9 T-9 w"),
        ),
    )
    replies = [executor.call(collect(limit=2)) for _ in range(4)]
    assert replies == [(2, 0, 3), (2, 0, 1), (1, 0, 0), (0, 0, 0)]
    after = observe(executor)
    assert after.dead.keys() == {f"{id}:T-9" for id in "abcde"}
    assert {entry[0]: dead.payload for entry, dead in after.dead_messages.items()} == {id: id.upper() for id in "abcde"}
    assert after.but(dead={}, dead_messages={}, dead_ids={}) == World(meta={"dead": 5})


def test_limits_of_the_queue_that_are_no_numbers_do_not_count(executor):
    executor.client.zadd(KEYS.dead, {f"a:{T + n}": NOW + n for n in range(1003)})
    executor.client.hset(KEYS.meta, mapping={"dead_max": "many", "dead_ttl": "long"})
    assert executor.call(collect(limit=2)) == (0, 2, 0)


@pytest.mark.parametrize("removed", ["trimmed", "purged", "repaired"])
def test_tokens_of_an_id_are_read_and_written_once_for_all_its_entries(real_executor, removed):
    def commands(number: int) -> int:
        entries = [f"a:{T + n}" for n in range(number)]
        executor.client.flushdb()
        executor.client.zadd(KEYS.dead, {entry: NOW - 5000 + n for n, entry in enumerate(entries)})
        executor.client.hset(KEYS.dead_ids, "a", " ".join(str(T + n) for n in range(number)))
        if removed != "repaired":
            executor.client.hset(KEYS.dead_messages, mapping=dict.fromkeys(entries, "1 1 1 1 0 0 0\nA"))
        executor.client.config_resetstat()
        deliver(
            executor,
            {
                "trimmed": collect(),
                "purged": calls.dead_purge(entries),
                "repaired": repair_dead_call(calls, [entry.encode() for entry in entries], fix=True),
            }[removed],
        )
        stats = executor.client.info("commandstats")
        assert not executor.client.exists(KEYS.dead, KEYS.dead_ids)
        return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("hget", "hset", "hdel"))

    executor = real_executor
    assert commands(200) == commands(2)


def test_ends_go_a_minute_after_they_were_announced(executor):
    client = executor.client
    seconds, micros = client.time()
    millis = seconds * 1000 + micros // 1000
    for at in (millis - 90_000, millis - 60_001, millis - 30_000):
        client.xadd(KEYS.ends, {"ids": f"{at}"}, id=f"{at}-0")
    plant(executor, World(waited={"b": 900}))
    assert executor.call(collect()) == (0, 0, 0)
    assert observe(executor) == World(waited={"b": 900}, ends=[f"{millis - 30_000}"])


def test_slots_unused_for_longer_than_their_ttl_are_removed(executor):
    executor.client.hset(
        KEYS.meta,
        mapping={
            "silent.1": f"7 {NOW - 1001} 1",
            "not yet.1": f"8 {NOW - 1000} 0 1 2",
            "busy.1": f"9 {NOW} ",
            "strange.1": "what no call remembers",
            "me.1": f"1 {NOW - 5000} 1",
        },
    )
    assert deliver(executor, collect(), slot="me.1", sequence=2) == (0, 0, 0)
    assert observe_replies(executor) == {
        b"strange.1": b"what no call remembers",
        b"not yet.1": f"8 {NOW - 1000} 0 1 2".encode(),
        b"busy.1": f"9 {NOW} ".encode(),
        b"me.1": f"2 {NOW} 0 0 0".encode(),
    }
    assert observe(executor) == World()


@pytest.mark.parametrize("slots", [300, 3000])
def test_many_slots_are_scanned_over_several_calls(executor, slots):
    executor.client.hset(
        KEYS.meta,
        mapping={f"slot.{n}": f"1 {NOW - 2000 * (n % 2)} 1" for n in range(slots)},
    )
    calls_made = 0
    while "slot_cursor" in observe(executor).meta or not calls_made:
        deliver(executor, collect(), slot="me.1", sequence=calls_made)
        calls_made += 1
        assert calls_made <= slots / 50
    assert not executor.client.hexists(KEYS.meta, "slot_cursor")
    left = observe_replies(executor).keys() - {b"me.1"}
    assert left == {f"slot.{n}".encode() for n in range(0, slots, 2)}
    assert observe(executor) == World()
