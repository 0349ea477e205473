"""The clock stands still until it is turned, and all queues go by it for as long as it rules."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest
from freezegun import freeze_time

from delayq import ConfigurationError, DelayQueue
from delayq.calls import Calls
from delayq.keys import Keys
from delayq.testing import Clock, drain, ruling
from tests.support.waiting import wait_until

NEW_YEAR = datetime(2027, 1, 1, 9, tzinfo=UTC)


def test_it_begins_now_and_stands_still():
    before = datetime.now(UTC)
    clock = Clock()
    assert before <= clock.now <= datetime.now(UTC) + timedelta(milliseconds=1)
    assert clock.now == clock.now
    assert repr(clock) == f"<Clock {clock.now.isoformat()}>"


def test_it_is_turned_by_durations_and_to_times_also_back():
    clock = Clock()
    clock.move_to(NEW_YEAR.astimezone(timezone(timedelta(hours=5))))
    assert clock.now == NEW_YEAR
    assert clock.now.tzinfo is UTC
    for duration in ("1d", timedelta(hours=1), 60, 0.0015):
        clock.advance(duration)
    assert clock.now - NEW_YEAR == timedelta(days=1, hours=1, minutes=1, milliseconds=2)  # rounded up, as everywhere
    clock.move_to(NEW_YEAR)
    assert clock.now == NEW_YEAR


@pytest.mark.parametrize("wrong", [-1, "tomorrow", timedelta(seconds=-1)])
def test_a_duration_that_is_none_is_refused(wrong):
    with pytest.raises(ConfigurationError):
        Clock().advance(wrong)


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ConfigurationError, match="must carry a time zone"):
        Clock().move_to(datetime(2027, 1, 1))  # noqa: DTZ001


def test_clocks_rule_one_within_the_other_and_then_no_more():
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


def test_whoever_asks_the_server_for_its_time_gets_that_of_the_clock(delayq_clock, delayq_queues):
    delayq_clock.move_to(NEW_YEAR)
    queue = delayq_queues()
    assert queue._executor.call(queue._tools.calls.time()) == delayq_clock.milliseconds()
    assert queue.stats().at == NEW_YEAR


def test_what_was_sent_before_it_ruled_is_due_by_it(delayq_queue):
    delayq_queue.callback(lambda message: None)
    delayq_queue.send_delay_msg("x", "1d")
    with ruling(Clock()) as clock:
        assert drain(delayq_queue, until="23h") == []
        assert len(drain(delayq_queue, until="2h")) == 1
        assert clock.now - datetime.now(UTC) > timedelta(hours=24)


def test_a_clock_that_is_set_back_makes_nothing_come_twice(delayq_clock, delayq_queue):
    delayq_queue.callback(lambda message: None)
    delayq_queue.send_delay_msg("x", "1h")
    delayq_clock.advance("1h")
    assert len(drain(delayq_queue, until=0)) == 1
    delayq_clock.move_to(delayq_clock.now - timedelta(days=1))
    assert drain(delayq_queue) == []
    delayq_queue.send_delay_msg("y", "1h")
    assert [one.payload for one in drain(delayq_queue)] == ["y"]


def test_while_freezegun_freezes_the_time_both_clocks_are_one():
    clock = Clock()
    with freeze_time(NEW_YEAR, ignore=["_pytest.timing"]) as frozen:
        assert clock.now == NEW_YEAR
        frozen.tick(timedelta(microseconds=1999))
        assert clock.now == NEW_YEAR + timedelta(milliseconds=1)  # not before it is over
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


def test_a_running_consumer_follows_within_a_tick(delayq_clock, delayq_queues):
    queue, seen = delayq_queues(tick="20ms"), []
    queue.callback(lambda message: seen.append(message.payload))
    queue.start_consume()
    queue.send_delay_msg("x", "3d")
    delayq_clock.advance("3d")
    wait_until(lambda: seen == ["x"])


def test_a_program_without_pytest(delayq_url):
    with ruling(Clock()), DelayQueue("mails", url=delayq_url, prefix="unittest") as queue:
        queue.callback(lambda message: None)
        queue.send_delay_msg("x", "3d")
        assert len(drain(queue)) == 1
        queue.purge()
