"""The clock stands still until it is moved, and all queues follow it while it is active."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest
from freezegun import freeze_time

from delayq import ConfigurationError, DelayQueue
from delayq.broker.calls import Calls
from delayq.broker.keys import Keys
from delayq.testing import Clock, drain, ruling
from tests.support.waiting import wait_until

NEW_YEAR = datetime(2027, 1, 1, 9, tzinfo=UTC)


def test_clock_starts_now_and_stands_still():
    before = datetime.now(UTC)
    clock = Clock()
    assert before <= clock.now <= datetime.now(UTC) + timedelta(milliseconds=1)
    assert clock.now == clock.now
    assert repr(clock) == f"<Clock {clock.now.isoformat()}>"


def test_clock_moves_by_durations_and_to_times_also_back():
    clock = Clock()
    clock.move_to(NEW_YEAR.astimezone(timezone(timedelta(hours=5))))
    assert clock.now == NEW_YEAR
    assert clock.now.tzinfo is UTC
    for duration in ("1d", timedelta(hours=1), 60, 0.0015):
        clock.advance(duration)
    assert clock.now - NEW_YEAR == timedelta(days=1, hours=1, minutes=1, milliseconds=2)  # rounded up, as everywhere
    clock.move_to(NEW_YEAR)
    assert clock.now == NEW_YEAR


@pytest.mark.parametrize("invalid", [-1, "tomorrow", timedelta(seconds=-1)])
def test_invalid_duration_is_refused(invalid):
    with pytest.raises(ConfigurationError):
        Clock().advance(invalid)


def test_naive_time_is_refused():
    with pytest.raises(ConfigurationError, match="must carry a time zone"):
        Clock().move_to(datetime(2027, 1, 1))  # noqa: DTZ001


def test_nested_clocks_are_restored():
    calls = Calls(Keys.of("delayq", "q"))
    ours = Calls(Keys.of("delayq", "q"), clock=lambda: 5)
    outer, inner = Clock(), Clock()
    inner.advance("1d")
    with ruling(outer):
        with ruling(inner):
            assert calls.pending_to_ready().args[0] == inner.milliseconds()
            assert ours.pending_to_ready().args[0] == 5
        assert calls.pending_to_ready().args[0] == outer.milliseconds()
    assert calls.pending_to_ready().args[0] == ""


def test_server_time_is_that_of_the_clock(delayq_clock, delayq_queues):
    delayq_clock.move_to(NEW_YEAR)
    queue = delayq_queues()
    assert queue.executor.call(queue.context.calls.time()) == delayq_clock.milliseconds()
    assert queue.stats().at == NEW_YEAR


def test_messages_sent_before_follow_the_clock(delayq_queue):
    delayq_queue.callback(lambda message: None)
    delayq_queue.send_delay_msg("x", "1d")
    with ruling(Clock()) as clock:
        assert drain(delayq_queue, until="23h") == []
        assert len(drain(delayq_queue, until="2h")) == 1
        assert clock.now - datetime.now(UTC) > timedelta(hours=24)


def test_setting_the_clock_back_delivers_nothing_twice(delayq_clock, delayq_queue):
    delayq_queue.callback(lambda message: None)
    delayq_queue.send_delay_msg("x", "1h")
    delayq_clock.advance("1h")
    assert len(drain(delayq_queue, until=0)) == 1
    delayq_clock.move_to(delayq_clock.now - timedelta(days=1))
    assert drain(delayq_queue) == []
    delayq_queue.send_delay_msg("y", "1h")
    assert [one.payload for one in drain(delayq_queue)] == ["y"]


def test_clock_and_freezegun_show_the_same_time():
    clock = Clock()
    with freeze_time(NEW_YEAR, ignore=["_pytest.timing"]) as frozen:
        assert clock.now == NEW_YEAR
        frozen.tick(timedelta(microseconds=1999))
        assert clock.now == NEW_YEAR + timedelta(milliseconds=1)  # rounded down
        clock.advance("1d")
        assert datetime.now(UTC) == clock.now
        clock.move_to(NEW_YEAR)
        assert datetime.now(UTC) == NEW_YEAR


def test_coroutines_see_the_time_of_freezegun(delayq_clock, delayq_async_queues):
    async def scenario():
        async with delayq_async_queues() as queue:
            seen = []

            @queue.callback
            async def look(message):
                await asyncio.sleep(0)
                seen.append(datetime.now(UTC))

            await queue.send_schedule_msg("x", NEW_YEAR + timedelta(days=1))
            await drain(queue)
            return seen

    with freeze_time(NEW_YEAR, real_asyncio=True, ignore=["_pytest.timing"]):
        assert asyncio.run(scenario()) == [NEW_YEAR + timedelta(days=1)]


def test_running_consumer_follows_the_clock_within_a_tick(delayq_clock, delayq_queues):
    queue, seen = delayq_queues(tick="20ms"), []
    queue.callback(lambda message: seen.append(message.payload))
    queue.start_consume()
    queue.send_delay_msg("x", "3d")
    delayq_clock.advance("3d")
    wait_until(lambda: seen == ["x"])


def test_clock_works_without_pytest(delayq_url):
    with ruling(Clock()), DelayQueue("mails", url=delayq_url, prefix="unittest") as queue:
        queue.callback(lambda message: None)
        queue.send_delay_msg("x", "3d")
        assert len(drain(queue)) == 1
        queue.purge()
