"""Edit: change what a message carries while it waits, without a new life."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from delayq import (
    AsyncDelayQueue,
    ConfigurationError,
    Encrypted,
    InvalidValueError,
    NewMessage,
    PayloadTooLargeError,
)
from tests.behaviour.places import REPLIES, WAITING, bring, everywhere

pytestmark = everywhere


@pytest.mark.parametrize(("state", "attempts"), WAITING.items())
def test_waiting_message_keeps_its_life(queue, state, attempts):
    bring(queue, state, payload={"to": "a"}, headers={"h": "1"}, retries=3, name="mail")
    before = queue.get("m")

    assert queue.edit("m", payload={"to": "b"}, headers={"x": "2"}, name="push", expires="2d") == "edited"

    after = queue.get("m")
    assert (after.payload, after.headers, after.name) == ({"to": "b"}, {"x": "2"}, "push")
    assert after.expires == before.due + timedelta(days=2)
    kept = ("state", "due", "attempts", "retries_left", "error", "token", "deadline")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert after.attempts == attempts
    assert queue.stats().totals["sent"] == len({"m", *(["a-plug"] if state in ("ready", "retry") else [])})


def test_what_is_not_given_stays(queue):
    options = {"headers": {"h": "1"}, "name": "mail", "priority": 3, "expires": "1d", "missed": "drop", "key": "k:1"}
    bring(queue, "pending", payload="first", **options)
    before = queue.get("m")

    assert queue.edit("m", payload=None) == "edited"  # null is a payload

    after = queue.get("m")
    assert after.payload is None
    kept = ("headers", "name", "priority", "expires", "key", "due")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]


def test_headers_and_priority_are_taken_away(queue):
    bring(queue, "pending", headers={"h": "1"}, priority=3)
    assert queue.edit("m", headers={}, priority=0) == "edited"
    assert (queue.get("m").headers, queue.get("m").priority, queue.get("m").payload) == ({}, 0, "hello")


@pytest.mark.parametrize(("state", "reply"), REPLIES.items())
def test_edit_returns_the_state_it_leaves_as_it_is(queue, state, reply):
    bring(queue, state)
    before = queue.get("m")

    assert queue.edit("m", payload="other") == reply
    assert queue.get("m") == before


def test_delivery_has_what_was_edited_last(queue):
    bring(queue, "pending", delay="100ms")
    for number in range(3):
        assert queue.edit("m", payload=number, headers={"n": f"{number}"}) == "edited"
    with queue.lease(block=5) as message:
        assert (message.payload, message.headers, message.attempt) == (2, {"n": "2"}, 1)


def test_what_is_due_is_ranked_anew_by_its_priority(queue):
    queue.send_many([NewMessage(id, id=id) for id in "abc"])
    (held,) = queue.lease(n=1)
    assert queue.edit("c", priority=1) == "edited"
    with queue.lease(n=2) as messages:
        assert [message.id for message in messages] == ["c", "b"]
    held.ack()


def test_place_of_what_is_due_stays_without_another_priority(queue):
    queue.send_many([NewMessage(id, id=id) for id in "abc"])
    (held,) = queue.lease(n=1)
    assert queue.edit("b", payload="new", priority=0, name="other") == "edited"
    with queue.lease(n=2) as messages:
        assert [message.id for message in messages] == ["b", "c"]
    held.ack()


def test_message_that_a_limit_holds_back_starts_with_another_name(queue):
    queue.limits.set("slow", running=1)
    queue.send_many([NewMessage(id, id=id, name="slow") for id in "ab"])
    (held,) = queue.lease(n=2)
    assert queue.get("b").state == "throttled"

    assert queue.edit("b", payload="new") == "edited"
    assert queue.get("b").state == "throttled"
    assert queue.edit("b", name="quick") == "edited"
    with queue.lease(n=1, block=5) as (message,):
        assert (message.id, message.payload, message.name) == ("b", "new", "quick")
    held.ack()
    assert queue.counts().living == 0


# If unchanged


def test_edit_of_what_was_read_is_done(queue):
    bring(queue, "backoff", payload={"to": "a"})
    found = queue.get("m")
    assert queue.edit("m", payload=found.payload | {"cc": "b"}, if_unchanged=found) == "edited"
    assert queue.get("m").payload == {"to": "a", "cc": "b"}


CHANGES = {
    "edited": lambda queue: queue.edit("m", payload="other"),
    "other headers": lambda queue: queue.edit("m", headers={"h": "2"}),
    "other name": lambda queue: queue.edit("m", name="other"),
    "rescheduled": lambda queue: queue.reschedule("m", "2h"),
    "replaced": lambda queue: queue.send_delay_msg("other", 0, id="m", replace=True),
    "delivered": lambda queue: [queue.reschedule("m", 0), *(one.nack(delay=60) for one in queue.lease(n=1, block=5))],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_edit_of_what_has_changed_since_is_refused(queue, change):
    bring(queue, "pending", headers={"h": "1"}, name="mail")
    found = queue.get("m")
    change(queue)
    before = queue.get("m")

    assert queue.edit("m", payload="new", if_unchanged=found) == "changed"
    assert queue.get("m") == before


def test_what_has_ended_since_is_told(queue):
    bring(queue, "pending")
    found = queue.get("m")
    queue.cancel("m")
    assert queue.edit("m", payload="new", if_unchanged=found) == "gone"


# What is refused


def test_payload_is_checked_as_that_of_a_send(open_queue):
    queue = open_queue(max_payload=100)
    bring(queue, "pending")
    with pytest.raises(PayloadTooLargeError):
        queue.edit("m", payload="x" * 100)
    assert queue.get("m").payload == "hello"


def test_payload_is_encrypted_as_that_of_a_send(open_queue):
    pytest.importorskip("cryptography")
    queue = open_queue(codec=Encrypted({"k": bytes(16)}))
    bring(queue, "pending")
    found = queue.get("m")
    assert queue.edit("m", payload={"card": 4111}, if_unchanged=found) == "edited"
    assert queue.get("m").payload == {"card": 4111}
    assert b"4111" not in open_queue(codec="bytes").get("m").payload


def test_payload_of_a_group_is_refused(queue):
    for payload in "ab":
        queue.send_delay_msg(payload, id="m", debounce="1h", collect=9)
    with pytest.raises(ConfigurationError, match="collected"):
        queue.edit("m", payload=["c"])
    found = queue.get("m")
    assert queue.edit("m", name="digest", headers={"h": "1"}, if_unchanged=found) == "edited"
    queue.send_delay_msg("c", id="m", debounce="1h", collect=9)
    assert (queue.get("m").payload, queue.get("m").name) == (["a", "b", "c"], "digest")


def test_message_would_expire_before_it_is_due(queue):
    bring(queue, "pending", delay="2h")
    with pytest.raises(InvalidValueError, match="not after the due time"):
        queue.edit("m", expires=datetime.now(UTC) + timedelta(hours=1))
    at = (datetime.now(UTC) + timedelta(hours=3)).replace(microsecond=0)
    assert queue.edit("m", expires=at) == "edited"
    assert queue.get("m").expires == at


# What is told


def test_event_log_has_the_edit_without_its_payload(open_queue):
    queue = open_queue(events=True)
    bring(queue, "pending")
    queue.edit("m", payload="secret")
    queue.edit("gone", payload="secret")
    assert [(event.kind, event.id) for event in queue.events()] == [("sent", "m"), ("edited", "m")]


def test_asyncio_queue_edits(url):
    async def main():
        async with AsyncDelayQueue("edited", url=url) as queue:
            await queue.send("a", "1h", id="m")
            found = await queue.get("m")
            assert await queue.edit("m", payload="b", if_unchanged=found) == "edited"
            assert await queue.edit("m", payload="c", if_unchanged=found) == "changed"
            assert (await queue.get("m")).payload == "b"

    asyncio.run(main())
