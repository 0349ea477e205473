"""A drain fires schedules at their times, by the clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from delayq import ConfigurationError
from delayq.testing import assert_nothing_scheduled, crash, drain

BEGIN = datetime(2027, 3, 26, 12, tzinfo=UTC)  # a Friday; on Sunday the clocks of Berlin go forward


@pytest.fixture
def queue(delayq_clock, delayq_queues):
    """A queue that reports on workdays at nine in Berlin."""
    delayq_clock.move_to(BEGIN)
    queue = delayq_queues("reports")

    @queue.cron("0 9 * * MON-FRI", tz="Europe/Berlin")
    def report(message):
        return None

    return queue


def times(delivered):
    return [(one.payload, one.at.isoformat()) for one in delivered]


def test_occurrences_are_on_time_and_the_clock_ends_at_until(queue, delayq_clock):
    delivered = drain(queue, until="5d")
    assert [one.at for one in delivered] == [datetime(2027, 3, day, 7, tzinfo=UTC) for day in (29, 30, 31)]
    assert {one.outcome for one in delivered} == {"acked"}
    assert delivered[0].id == "report@2027-03-29T07:00:00Z"
    assert delayq_clock.now == BEGIN + timedelta(days=5)
    assert_nothing_scheduled(queue)
    assert len(drain(queue, until="1d")) == 1


def test_schedules_alone_do_not_keep_a_drain_running(queue, delayq_clock):
    assert drain(queue) == []
    assert delayq_clock.now == BEGIN

    queue.callback(lambda message: None)
    queue.send_delay_msg("a message", "4d")
    assert [one.payload for one in drain(queue)][-1] == "a message"
    assert delayq_clock.now == BEGIN + timedelta(days=4)


def test_messages_and_occurrences_are_delivered_in_order_of_time(delayq_clock, delayq_queues):
    delayq_clock.move_to(BEGIN)
    queue = delayq_queues()
    queue.schedules.add("tick", every="10m", payload="tick")
    queue.callback(lambda message: None)
    queue.send_delay_msg("message", "15m")
    assert times(drain(queue, until="20m")) == [
        ("tick", "2027-03-26T12:10:00+00:00"),
        ("message", "2027-03-26T12:15:00+00:00"),
        ("tick", "2027-03-26T12:20:00+00:00"),
    ]


def test_crash_does_not_repeat_an_occurrence(delayq_clock, delayq_queues):
    delayq_clock.move_to(BEGIN)
    queue = delayq_queues(lease="1m")

    @queue.every("10m")
    def tick(message):
        if message.attempt == 1:
            crash()

    delivered = [(one.outcome, one.at - BEGIN) for one in drain(queue, until="25m")]
    minutes = [timedelta(minutes=minute) for minute in (10, 11, 20, 21)]
    assert delivered == list(zip(["crashed", "acked"] * 2, minutes, strict=True))


def test_missed_occurrences_are_caught_up(delayq_clock, delayq_queues):
    delayq_clock.move_to(BEGIN)
    queue = delayq_queues()
    queue.schedules.add("one", every="1h", payload="one")
    queue.schedules.add("all", every="1h", payload="all", misfire=3)
    queue.callback(lambda message: None)
    delayq_clock.advance("5h30m")
    assert sorted(one.payload for one in drain(queue, until=0)) == ["all", "all", "all", "one"]


def test_unfireable_schedule_does_not_block_messages(delayq_clock, delayq_queues, monkeypatch, caplog):
    def missing(*_, **__):
        raise ConfigurationError("cron expressions need cronsim: pip install 'delayq[cron]'")

    delayq_clock.move_to(BEGIN)
    queue = delayq_queues()
    queue.schedules.add("daily", cron="@daily", payload="daily")
    queue.callback(lambda message: None)
    queue.send_delay_msg("a message", "4d")
    monkeypatch.setattr("delayq.schedules.messages.firing", missing)
    assert [one.payload for one in drain(queue, until="5d")] == ["a message"]
    assert "schedule daily cannot be fired here" in caplog.text
    assert delayq_clock.now == BEGIN + timedelta(days=5)


def test_burst_fires_due_schedules_by_the_clock(queue, delayq_clock):
    queue.run(burst=True)
    delayq_clock.move_to(datetime(2027, 3, 29, 7, tzinfo=UTC))
    queue.run(burst=True)
    assert queue.stats().totals["acked"] == 1


def test_schedules_of_an_asyncio_queue(delayq_clock, delayq_async_queues):
    delayq_clock.move_to(BEGIN)

    async def scenario():
        async with delayq_async_queues() as queue:

            @queue.every("1d")
            async def daily(message):
                await asyncio.sleep(0)

            return await drain(queue, until="3d")

    assert [one.at.day for one in asyncio.run(scenario())] == [27, 28, 29]
