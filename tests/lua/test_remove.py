"""`remove`: every key of a queue, once it has nothing any more."""

from __future__ import annotations

from dataclasses import fields

import pytest

from delayq.broker.keys import Keys
from delayq.errors import ServerError
from delayq.queue.delay_base import remove_call
from tests.lua.cases.states import BACKOFF, DEAD, with_meta
from tests.support.scripts import KEYS, NOW, World, calls, observe, plant

HELD = {
    "messages": (World(messages={"a": "A", "b": "B"}), (2, 0, 0, 0, 0)),
    "dead messages": (DEAD, (0, 1, 0, 0, 0)),
    "schedules": (World(schedule_specs={"s": "{}", "t": "{}", "u": "{}"}), (0, 0, 3, 0, 0)),
    "a consumer that counts until now": (World(workers={"w": "{}"}, beats={"w": 0}), (0, 0, 0, 1, 0)),
    "consumers": (World(workers={"v": "{}", "w": "{}"}, beats={"v": 5, "w": 7, "x": -1}), (0, 0, 0, 2, 0)),
    "a message and a dead one": (DEAD + World(messages={"b": "B"}), (1, 1, 0, 0, 0)),
    "a schedule and a consumer": (World(schedule_specs={"s": "{}"}, beats={"w": 9}), (0, 0, 1, 1, 0)),
    "a message and a consumer": (World(messages={"a": "A"}, beats={"w": 9}), (1, 0, 0, 1, 0)),
    "cold messages": (World(meta={"schema": 8, "cold": 3}, cold={"file x": "3 0"}), (0, 0, 0, 0, 3)),
    "a message and a cold one": (World(messages={"a": "A"}, meta={"cold": 1}), (1, 0, 0, 0, 1)),
    "cold messages that are being moved": (World(meta={"cold": 1}, cold={"moved x": "01"}), (0, 0, 0, 0, 1)),
    "all of it": (
        with_meta(BACKOFF + DEAD, World(schedule_specs={"s": "{}"}, beats={"w": 9}, meta={"cold": 1})),
        (1, 1, 1, 1, 1),
    ),
}


@pytest.mark.parametrize(("world", "found"), HELD.values(), ids=HELD)
def test_queue_that_has_something_stays_as_it_is(executor, world, found):
    plant(executor, world)
    assert executor.call(remove_call(calls)) == found
    assert observe(executor) == world


def test_every_key_of_an_empty_queue_is_deleted(executor):
    client, others = executor.client, [part.name for part in fields(Keys) if part.name not in _EMPTY]
    for part in others:
        client.set(getattr(KEYS, part), "anything")
    client.zadd(KEYS.beats, {"silent": NOW - 1})
    client.hset(KEYS.meta, mapping={"schema": 8, "cold": 0})
    client.set("delayq:{another}:meta", "stays")
    assert [*executor.call(remove_call(calls))] == [0] * 5
    assert client.keys() == [b"delayq:{another}:meta"]
    assert [*executor.call(remove_call(calls))] == [0] * 5


_EMPTY = ("messages", "dead_messages", "schedule_specs", "beats", "meta")
"""What is looked at before, and may not have another type."""


@pytest.mark.parametrize("part", _EMPTY)
def test_key_of_wrong_type_is_refused(executor, part):
    executor.client.set(getattr(KEYS, part), "a text")
    executor.client.set(KEYS.wake, "stays")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        executor.call(remove_call(calls))
    assert len(executor.client.keys()) == 2
