"""Forget: erase what a queue keeps of messages that have ended."""

from __future__ import annotations

import asyncio

import pytest

from delayq import AsyncDelayQueue, DelayQueue, Forgotten, NewMessage
from tests.behaviour.places import bring, everywhere
from tests.support.scripts import without_gaps

pytestmark = everywhere

NOTHING = {"results": 0, "deaths": 0, "reserved": 0, "remains": 0, "events": 0, "log_entries": 0, "other_events": 0}


def report(*, alive: tuple[str, ...] = (), dry_run: bool = False, **counts: int) -> Forgotten:
    """Return what is expected; what is not named is 0."""
    return Forgotten(**NOTHING | counts, alive=len(alive), alive_ids=alive, dry_run=dry_run)


@pytest.fixture
def stored_texts(url):
    """Return all that Redis has of the queues, but for the slots of calls."""
    with DelayQueue("looking", url=url) as looking:
        yield lambda: _texts_in(looking.executor.client)


def _texts_in(client) -> str:
    read = {
        b"hash": lambda key: {name: value for name, value in client.hgetall(key).items() if b"." not in name},
        b"zset": lambda key: client.zrange(key, 0, -1),
        b"list": lambda key: client.lrange(key, 0, -1),
        b"set": client.smembers,
        b"stream": client.xrange,
    }
    return "\n".join(str(read[client.type(key)](key)) for key in client.keys("delayq:{*"))


def end(queue, id: str, *, how: str = "ack", **options) -> None:
    """Send a message and let it end."""
    queue.send_delay_msg({"who": id}, id=id, **options)
    (message,) = queue.lease(n=1, block=5)
    if how == "ack":
        message.ack()
    else:
        message.reject(f"no {id}")


@pytest.fixture
def ended(open_queue):
    """Two dead messages, one with a result, and one that was settled, in a queue that remembers."""
    queue = open_queue(events=True, dedupe_window="1h")
    end(queue, "ada:1", how="reject", name="mail")
    end(queue, "bob:1", how="reject", name="mail")
    end(queue, "ada:2", retention="1h", name="mail")
    end(queue, "ada:3")
    return queue


def test_nothing_is_left_of_what_is_forgotten(ended, stored_texts):
    found = ended.forget(id_prefix="ada:")

    assert found == report(results=1, deaths=1, reserved=3, events=12, log_entries=12)
    assert "ada:" not in stored_texts()
    assert "bob:" in stored_texts()
    assert [ended.get(id) for id in ("ada:1", "ada:2", "ada:3")] == [None] * 3
    assert {event.id for event in ended.events()} == {"bob:1"}
    assert ended.get("bob:1").reason == "no bob:1"
    assert ended.send({"who": "ada"}, id="ada:3").new  # no more reserved


def test_dry_run_counts_the_same_and_changes_nothing(ended, stored_texts):
    before = stored_texts()
    found = ended.forget(id_prefix="ada:", dry_run=True)
    assert stored_texts() == before
    assert found == report(results=1, deaths=1, reserved=3, events=12, log_entries=12, dry_run=True)


def test_ids_are_forgotten_and_a_second_time_there_is_nothing(ended):
    assert ended.forget("ada:2", "ada:1", "ada:1", "gone") == report(
        results=1, deaths=1, reserved=2, events=8, log_entries=8
    )
    assert ended.forget("ada:2", "ada:1", "gone") == report()
    assert {event.id for event in ended.events()} == {"ada:3", "bob:1"}


def test_kept_results_and_dead_messages_are_found_by_name(ended):
    assert ended.forget(name="mail") == report(results=1, deaths=2, reserved=3, events=12, log_entries=12)
    assert {event.id for event in ended.events()} == {"ada:3"}
    assert ended.counts().dead == 0


@pytest.mark.parametrize("state", ["pending", "ready", "active", "backoff", "retry"])
@pytest.mark.parametrize("how", [{"id_prefix": "m"}, {"name": "mail"}, None], ids=str)
def test_message_that_is_alive_stays_with_all_that_is_kept_of_it(open_queue, state, how):
    queue = open_queue(events=True)
    end(queue, "m", how="reject", name="mail")
    bring(queue, state, name="mail")
    before = list(queue.events())

    assert (queue.forget(**how) if how else queue.forget("m")) == report(alive=("m",))

    assert list(queue.events()) == before
    assert (queue.get("m").state, queue.counts().dead) == (state, 1)


def test_cancelled_message_is_forgotten(open_queue):
    queue = open_queue(events=True, dedupe_window="1h")
    bring(queue, "pending")
    queue.cancel("m")
    assert queue.forget("m") == report(reserved=1, events=2, log_entries=2)


@without_gaps
def test_entry_of_the_log_goes_with_its_events_of_others_and_tells_how_many(open_queue):
    queue = open_queue(events=True)
    queue.send_many([NewMessage(id, "1h", id=id) for id in ("a:1", "b:1", "a:2", "c:1")])
    queue.send("later", "1h", id="d:1")
    queue.cancel("a:2")

    found = queue.forget("a:2")

    assert found == report(events=2, log_entries=2, other_events=3)
    assert [(event.offset, event.id) for event in queue.events()] == [(2, "d:1")]


def test_what_a_cancelled_group_has_gathered_is_forgotten(queue, stored_texts):
    for payload in "ab":
        queue.send_delay_msg({"secret": payload}, id="m:1", debounce="1h", collect=9)
    queue.cancel("m:1")
    assert "secret" in stored_texts()
    assert queue.forget(id_prefix="m:", dry_run=True).remains == 2
    assert queue.forget("m:1") == report(remains=2)
    assert "secret" not in stored_texts()


def test_many_are_forgotten_in_short_calls(open_queue):
    queue = open_queue(events=True, dedupe_window="1h", dead_max=5000)
    ids = [f"ada:{n}" for n in range(1200)]
    for first in range(0, 1200, 400):
        queue.send_many([NewMessage("x", "1h", id=id) for id in [*ids[first : first + 400], f"bob:{first}"]])
    queue.select(id_prefix="ada:").kill()
    found = queue.forget(id_prefix="ada:")
    assert (found.deaths, found.reserved, found.events) == (1200, 1200, 2400)
    assert found.other_events == 3
    assert (queue.counts().dead, queue.counts().pending, list(queue.events())) == (0, 3, [])


def test_asyncio_queue_forgets(url):
    async def main():
        async with AsyncDelayQueue("forgotten", url=url, dedupe_window="1h") as queue:
            await queue.send("a", "1h", id="m")
            assert (await queue.forget("m")).alive == 1
            await queue.cancel("m")
            assert (await queue.forget("m", dry_run=True)).reserved == 1
            assert (await queue.forget("m")).reserved == 1
            assert (await queue.forget("m")).reserved == 0

    asyncio.run(main())
