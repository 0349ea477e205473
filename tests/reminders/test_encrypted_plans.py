"""The plan of a calendar in a queue that encrypts: titles and places of events are readable with the key only."""

from __future__ import annotations

import asyncio

import pytest

from delayq import AsyncDelayQueue, ConfigurationError, DelayQueue, Encrypted
from delayq.reminders import AsyncCalendar, Calendar, calendars
from tests.reminders.test_calendar import event, numbers

OLD, NEW = bytes(16), bytes(range(32))
EVENTS = [event("a", 48, "surgery", location="room 7"), event("b", 50, "surgery")]


def plan_in(client):
    return client.hget("delayq:{secret}:plans", "team")


@pytest.fixture
def queue_with(redis_url):
    """`queue_with(old=OLD)` opens the queue with these keys; without any, in the clear."""
    opened = []

    def open_(**keys):
        codec = {"codec": Encrypted(keys, allow_plain=True)} if keys else {}
        opened.append(DelayQueue("secret", url=redis_url, **codec))
        return opened[-1]

    yield open_
    for queue in opened:
        queue.close()


def test_a_plan_is_encrypted_and_an_unchanged_import_writes_nothing(queue_with, redis_client):
    queue = queue_with(old=OLD)
    assert numbers(Calendar(queue, "team", "1h").update(EVENTS)) == "new 2"
    before = plan_in(redis_client)
    assert b"\x93dq\x01\x03old" in before
    assert numbers(Calendar(queue, "team", "1h").update(EVENTS)) == "unchanged 2"
    assert plan_in(redis_client) == before
    assert [one.event.summary for info in calendars(queue) for one in info.reminders] == ["surgery", "surgery"]


def test_the_next_import_encrypts_what_was_in_the_clear_or_has_another_key(queue_with, redis_client):
    assert numbers(Calendar(queue_with(), "team", "1h").update(EVENTS)) == "new 2"
    for keys, head in (({"old": OLD}, b"\x03old"), ({"new": NEW, "old": OLD}, b"\x03new")):
        changes = Calendar(queue_with(**keys), "team", "1h").update(EVENTS)
        assert numbers(changes) == "unchanged 2"
        assert plan_in(redis_client).partition(b" ")[2].startswith(b"\x93dq\x01" + head)


@pytest.mark.parametrize(
    ("keys", "text"), [({}, "is encrypted: use a program that has its keys"), ({"new": NEW}, "with key old")], ids=str
)
def test_without_the_key_a_plan_is_neither_read_nor_replaced(queue_with, redis_client, keys, text):
    Calendar(queue_with(old=OLD), "team", "1h").update(EVENTS)
    before = plan_in(redis_client)
    other = queue_with(**keys)
    for use in (lambda: calendars(other), lambda: Calendar(other, "team", "1h").update([])):
        with pytest.raises(ConfigurationError, match=f"the plan of calendar team.*{text}"):
            use()
    assert plan_in(redis_client) == before
    assert other.counts().pending == 2


def test_asyncio(queue_with, redis_url, redis_client):
    async def scene():
        async with AsyncDelayQueue("secret", url=redis_url, codec=Encrypted({"old": OLD})) as queue:
            return numbers(await AsyncCalendar(queue, "team", "1h").update(EVENTS))

    assert asyncio.run(scene()) == "new 2"
    assert b"\x03old" in plan_in(redis_client)
    assert Calendar(queue_with(old=OLD), "team", "1h").info().reminders[0].event.location == "room 7"
