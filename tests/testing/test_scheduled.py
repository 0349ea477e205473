"""Assertions find scheduled messages by payload, id and time; a failure lists the messages."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from delayq import ConfigurationError
from delayq.testing import assert_nothing_scheduled, assert_scheduled, drain

NEW_YEAR = datetime(2027, 1, 1, 9, tzinfo=UTC)


@pytest.fixture
def queue(delayq_clock, delayq_queue):
    """A queue with three messages at nine on New Year's day."""
    delayq_clock.move_to(NEW_YEAR)
    delayq_queue.send_delay_msg({"user": 1}, "1h", id="first")
    delayq_queue.send_delay_msg({"user": 2}, "2h", id="second")
    delayq_queue.send_delay_msg({"user": 2}, "1d", id="third")
    return delayq_queue


@pytest.mark.parametrize(
    ("query", "id"),
    [
        ({"payload": {"user": 1}}, "first"),
        ({"payload": {"user": 2}}, "second"),  # the first of two
        ({"id": "third"}, "third"),
        ({"at": NEW_YEAR + timedelta(hours=2)}, "second"),
        ({"at": NEW_YEAR + timedelta(hours=20), "within": "4h"}, "third"),
        ({"within": "1h"}, "first"),
        ({"payload": {"user": 2}, "within": timedelta(hours=2)}, "second"),
        ({"payload": {"user": 2}, "times": 2}, "second"),
        ({}, "first"),
    ],
)
def test_scheduled_message_is_found(queue, query, id):
    assert assert_scheduled(queue, **query).id == id


@pytest.mark.parametrize(
    "query",
    [
        {"payload": {"user": 3}},
        {"payload": None},
        {"id": "fourth"},
        {"at": NEW_YEAR + timedelta(minutes=59)},
        {"at": NEW_YEAR + timedelta(hours=20), "within": "3h59m"},
        {"within": "59m"},
        {"payload": {"user": 2}, "within": "1h"},
        {"id": "first", "payload": {"user": 2}},
    ],
)
def test_missing_message_is_not_found(queue, query):
    assert_nothing_scheduled(queue, **query)
    with pytest.raises(AssertionError):
        assert_scheduled(queue, **query)


def test_the_message_of_a_task_is_found_by_its_name(queue):
    remind = queue.task(name="remind", delay="1h")(lambda user: None)
    remind.options(id="task").send(1)

    assert assert_scheduled(queue, name="remind", payload={"user": 1}, times=1).id == "task"
    assert_nothing_scheduled(queue, name="warn")
    with pytest.raises(AssertionError, match=r"no message with id='first' and name='remind' is scheduled"):
        assert_scheduled(queue, id="first", name="remind")


def test_failure_lists_the_scheduled_messages(queue):
    with pytest.raises(AssertionError) as raised:
        assert_scheduled(queue, payload={"user": 2}, within="1h")
    assert str(raised.value) == (
        "no message with payload={'user': 2} due within 3600 s is scheduled. Queue queue has:\n"
        "  first  pending  due 2027-01-01T10:00:00Z  {'user': 1}\n"
        "  second  pending  due 2027-01-01T11:00:00Z  {'user': 2}\n"
        "  third  pending  due 2027-01-02T09:00:00Z  {'user': 2}"
    )
    with pytest.raises(
        AssertionError, match=r"^2 messages with payload=\{'user': 2\} are scheduled\. Queue queue has:"
    ):
        assert_nothing_scheduled(queue, payload={"user": 2})
    with pytest.raises(AssertionError, match=r"^expected 2 messages with id='first', but 1 are scheduled"):
        assert_scheduled(queue, id="first", times=2)
    with pytest.raises(AssertionError, match=r"^3 messages are scheduled"):
        assert_nothing_scheduled(queue)


def test_failure_of_an_empty_queue(delayq_queue):
    at = datetime(2027, 1, 1, 9, 0, 0, 250_000, tzinfo=UTC)
    with pytest.raises(
        AssertionError, match=r"^no message due at 2027-01-01T09:00:00\.250Z is scheduled\. Queue queue"
    ):
        assert_scheduled(delayq_queue, at=at)
    assert_nothing_scheduled(delayq_queue)


def test_failure_describes_the_expected_message(delayq_queue):
    at = datetime(2027, 1, 1, 9, tzinfo=UTC)
    query = r"^no message with payload='x' and id='m' due at 2027-01-01T09:00:00Z ± 60 s is scheduled\."
    with pytest.raises(AssertionError, match=query):
        assert_scheduled(delayq_queue, payload="x", id="m", at=at, within="1m")


def test_failure_lists_a_limited_number_of_messages(delayq_queue):
    delayq_queue.send_many(range(30), "1h")
    with pytest.raises(AssertionError) as raised:
        assert_scheduled(delayq_queue, payload=30)
    assert str(raised.value).splitlines()[-1] == "  and 10 more"


def test_messages_beyond_one_page_and_large_payloads_are_found(delayq_queue):
    delayq_queue.send_many([*range(1500), "x" * 10_000], "1h")
    assert_scheduled(delayq_queue, payload=1499)
    assert_scheduled(delayq_queue, payload="x" * 10_000)
    assert_scheduled(delayq_queue, times=1501)


def test_running_clock_does_not_cause_failures(delayq_queue):
    for n in range(20):
        delayq_queue.send_delay_msg(n, "1h")
        assert_scheduled(delayq_queue, payload=n, within="1h")


def test_retry_is_scheduled_for_its_time(delayq_clock, delayq_queues):
    queue = delayq_queues(nack_delay="5m")
    queue.callback(lambda message: False)
    queue.send_delay_msg("x")
    drain(queue, until=0)
    assert_scheduled(queue, payload="x", at=delayq_clock.now + timedelta(minutes=5))
    assert_nothing_scheduled(queue, within="4m")


def test_what_a_limit_holds_back_is_scheduled(delayq_queue):
    delayq_queue.pause(name="mail")
    delayq_queue.send_delay_msg("x", name="mail")
    assert len(delayq_queue.lease().messages) == 0
    assert delayq_queue.counts().throttled == 1
    assert_scheduled(delayq_queue, payload="x")


def test_active_dead_and_settled_messages_are_not_scheduled(queue, delayq_clock):
    delayq_clock.advance("1d")
    first, second, third = queue.lease(n=3)
    first.ack()
    second.reject("no")
    assert_nothing_scheduled(queue)
    third.release()
    assert_scheduled(queue, id="third")


@pytest.mark.parametrize("invalid", [{"within": -1}, {"at": datetime(2027, 1, 1)}, {"times": 0}])  # noqa: DTZ001
def test_invalid_arguments_are_refused(queue, invalid):
    with pytest.raises(ConfigurationError):
        assert_scheduled(queue, **invalid)


def test_assertions_are_awaited_for_asyncio_queues(delayq_async_queues):
    async def scenario():
        async with delayq_async_queues() as queue:
            await queue.send_delay_msg("x", "1h")
            found = await assert_scheduled(queue, payload="x", within="1h")
            with pytest.raises(AssertionError, match="no message with payload='y' is scheduled"):
                await assert_scheduled(queue, payload="y")
            await assert_nothing_scheduled(queue, payload="y")
            return found.state

    assert asyncio.run(scenario()) == "pending"
