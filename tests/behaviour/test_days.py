"""Days pass in a test: the embedded mode follows freezegun's clock; a real server ignores the clocks of its clients."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
from freezegun import freeze_time

from tests.support.processes import run
from tests.support.waiting import wait_until

DAY = timedelta(days=1)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock():
    """A clock that is frozen until a test calls `tick`; the event loop keeps its own."""
    with freeze_time(NEW_YEAR, real_asyncio=True, ignore=["_pytest.timing"]) as frozen:
        yield frozen


embedded = pytest.mark.parametrize("url", ["memory"], indirect=True)


def wait(condition):
    """Wait on the real clock, whatever the frozen one says (unlike `wait_until`)."""
    deadline = time.clock_gettime(time.CLOCK_MONOTONIC) + 10
    while not condition():
        assert time.clock_gettime(time.CLOCK_MONOTONIC) < deadline
        time.sleep(0.005)


@embedded
def test_burst_delivers_messages_as_the_clock_advances(clock, open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.payload))
    for day in (0, 1, 2, 30):
        queue.send_delay_msg(day, day * DAY)

    queue.run(burst=True)
    assert seen == [0]

    for _ in range(29):
        clock.tick(DAY)
        queue.run(burst=True)
    assert seen == [0, 1, 2]

    clock.tick(DAY)
    queue.run(burst=True)
    assert seen == [0, 1, 2, 30]


@pytest.mark.long
@embedded
def test_message_is_not_delivered_a_second_early(clock, open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.payload))
    queue.send_schedule_msg("noon", NEW_YEAR + timedelta(hours=12))

    clock.tick(timedelta(hours=12) - timedelta(seconds=1))
    queue.run(burst=True)
    assert seen == []

    clock.tick(timedelta(seconds=1))
    queue.run(burst=True)
    assert seen == ["noon"]


@embedded
def test_a_running_consumer_follows_the_clock(clock, open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.payload), tick="50ms")
    queue.start_consume()
    for day in (1, 2, 3):
        queue.send_delay_msg(day, day * DAY)

    for day in (1, 2, 3):
        clock.tick(DAY)
        wait(lambda day=day: seen == [*range(1, day + 1)])


@embedded
def test_consumer_that_was_away_for_two_days_gets_every_message(clock, open_queue):
    sender, seen = open_queue(), []
    for hour in range(48):
        sender.send_delay_msg(hour, timedelta(hours=hour))
    clock.tick(2 * DAY)

    consumer = open_queue(callback=lambda message: seen.append((message.payload, round(message.lateness / 3600))))
    consumer.run(burst=True)

    assert seen == [(hour, 48 - hour) for hour in range(48)]


@embedded
def test_a_leased_message_comes_back_after_a_weekend(clock, open_queue):
    queue, seen = open_queue(), []
    queue.send_delay_msg("hello")
    queue.lease("8h")
    queue.callback(lambda message: seen.append(message.attempt))

    queue.run(burst=True)
    assert seen == []

    clock.tick(2 * DAY)
    queue.run(burst=True)
    assert seen == [2]


@embedded
def test_retries_follow_the_clock(clock, open_queue):
    attempts = []
    queue = open_queue(callback=lambda message: attempts.append(message.attempt) or False, nack_delay="1d")
    queue.send_delay_msg("hopeless", retries=2, id="m")

    for _ in range(3):
        queue.run(burst=True)
        clock.tick(DAY)

    assert attempts == [1, 2, 3]
    assert queue.get("m").state == "dead"


@embedded
def test_burst_does_not_wait_for_a_frozen_clock(clock, open_queue):
    attempts = []
    queue = open_queue(callback=lambda message: attempts.append(message.attempt) or False)
    queue.send_delay_msg("hopeless", retries=1)

    queue.run(burst=True)
    assert attempts == [1]

    clock.tick(5)
    queue.run(burst=True)
    assert attempts == [1, 2]


@embedded
def test_retries_are_spaced_by_default_so_that_they_outlive_the_restart_of_a_service(clock, open_queue):
    waits = []
    queue = open_queue(callback=lambda message: False)
    queue.send_delay_msg("hopeless", retries=5, id="m")
    queue.run(burst=True)
    while (found := queue.get("m")).state == "backoff":
        waits.append((found.deadline - datetime.now(UTC)).total_seconds())
        clock.tick(found.deadline - datetime.now(UTC))
        queue.run(burst=True)
    longest = [5, 25, 125, 600, 600]
    assert all(0.8 * most <= wait <= most for wait, most in zip(waits, longest, strict=True)), waits
    assert len(set(waits[-2:])) == 2  # spread at random


@embedded
def test_blocking_lease_times_out_although_the_clock_is_frozen(clock, open_queue):
    with open_queue().lease(block="200ms") as message:
        assert message is None


@embedded
def test_dead_letter_entries_are_trimmed_after_their_ttl(clock, open_queue):
    queue = open_queue(callback=lambda message: False)
    queue.send_delay_msg("hopeless", retries=0)
    queue.run(burst=True)

    clock.tick(29 * DAY)
    queue.run(burst=True)
    assert queue.counts().dead == 1

    clock.tick(2 * DAY)
    queue.run(burst=True)
    assert queue.counts().dead == 0


@embedded
def test_a_message_sent_for_tomorrow_can_be_moved_to_today(clock, open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.payload))
    queue.send_delay_msg("party", DAY, id="m")
    queue.reschedule("m", "1h")

    clock.tick(3600)
    queue.run(burst=True)

    assert seen == ["party"]


@embedded
def test_callback_sees_correct_lateness_while_the_clock_is_frozen(clock, open_queue):
    seen = []

    def deeper(message, depth):
        return deeper(message, depth - 1) if depth else (message.lease_lost, message.lateness < 60)

    queue = open_queue(callback=lambda message: seen.append(deeper(message, 10)))
    queue.send_delay_msg("hello")
    clock.tick(30)
    queue.run(burst=True)

    assert seen == [(False, True)]


# A client's clock and a real server

WRONG = {"a day slow": -DAY, "a day fast": DAY, "ten years fast": 3650 * DAY}


@pytest.mark.parametrize("off", WRONG.values(), ids=WRONG)
def test_wrong_client_clock_makes_no_difference(open_queue, off):
    seen = []
    with freeze_time(datetime.now(UTC) + off, tick=True, real_asyncio=True):
        queue = open_queue(callback=lambda message: seen.append((message.payload, message.lateness)))
        queue.start_consume()
        queue.send_delay_msg("at once")
        queue.send_delay_msg("soon", "300ms")
        queue.send_delay_msg("tomorrow", "1d", id="tomorrow")
        wait(lambda: len(seen) == 2)
        with queue.lease(block="100ms") as message:
            assert message is None
        queue.stop_consume()

    assert [payload for payload, _ in seen] == ["at once", "soon"]
    assert all(0 <= lateness < 5 for _, lateness in seen)
    due = queue.get("tomorrow").due
    assert timedelta(hours=23) < due - datetime.now(UTC) < timedelta(hours=25)


@pytest.mark.long
def test_producer_with_another_date_sends_messages_on_time(open_queue, url):
    """The producer runs in another process, whose clock is years ahead."""
    script = f"""
from datetime import timedelta
from freezegun import freeze_time
with freeze_time("2040-01-01", tick=True):
    from delayq import DelayQueue
    with DelayQueue("reminders", url={url!r}) as queue:
        queue.send_many(range(5), timedelta(milliseconds=300))
"""
    seen = []
    queue = open_queue(callback=lambda message: seen.append((message.payload, message.lateness)))
    queue.start_consume()
    run([sys.executable, "-c", script], check=True, timeout=30)

    wait_until(lambda: len(seen) == 5)
    assert all(0 <= lateness < 5 for _, lateness in seen)
