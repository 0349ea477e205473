"""Schedules over partitions: each is in the partition of its name, and fires once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from delayq import ConfigurationError, Schedule
from delayq.values.times import timestamp
from tests.behaviour.places import everywhere
from tests.partitioned.places import PARTITIONS, one_of_each, place
from tests.support.schedules import HOUR, START, Clock, ran
from tests.support.waiting import wait_until


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def timed(queue, clock):
    """A queue whose partitions use the clock."""
    return on(queue, clock)


def on(queue, clock):
    for one in queue.partitions:
        one.context.calls = replace(one.context.calls, clock=lambda: timestamp(clock.now))
    return queue


def names(schedules):
    return [schedule.name for schedule in schedules]


@everywhere
def test_each_schedule_is_in_the_partition_of_its_name(queue):
    added = one_of_each()
    for name in added[:2]:
        assert queue.schedules.add(name, every="1h") == "new"
    outcomes = queue.schedules.add_many([Schedule(name, every="2h") for name in added[1:]])

    assert [*outcomes] == added[1:]
    assert [*outcomes.values()][1:] == ["new", "new"]
    assert names(queue.schedules.list()) == sorted(added)
    for number, partition in enumerate(queue.partitions):
        assert queue.partition_of(added[number]) is partition
    assert queue.schedules.get(added[0]).name == added[0]
    assert queue.schedules.get("nobody") is None
    assert sorted(names(read_pages(queue))) == sorted(added)


def read_pages(queue, limit=2):
    found, cursor = [], None
    while True:
        page = queue.schedules.page(limit=limit, cursor=cursor)
        found += page.schedules
        if (cursor := page.cursor) is None:
            return found


@everywhere
def test_one_schedule_is_changed_by_its_name(timed, clock):
    for name in one_of_each():
        timed.schedules.add(name, every="1h", payload=name)
    first, second, third, fourth = one_of_each()
    assert timed.schedules.pause(first)
    assert timed.schedules.remove(second)
    assert timed.schedules.skip(third, START + HOUR / 2)
    sent = timed.schedules.run_now(fourth)
    assert timed.get(sent.id).payload == fourth
    clock.advance(HOUR / 2)

    fired = ran(timed)
    assert sorted(fired) == sorted([sent.id, f"{fourth}@2026-11-20T08:00:00Z"])
    assert timed.schedules.resume(first)
    clock.advance(HOUR)
    assert Counter(id.partition("@")[0] for id in ran(timed)) == {first: 1, third: 1, fourth: 1}


@everywhere
def test_many_are_changed_by_a_prefix_or_a_label(queue):
    queue.schedules.add_many(Schedule(f"user-{n}", every="1h", labels=["digest"]) for n in range(12))
    queue.schedules.add_many(Schedule(f"job-{n}", every="1h") for n in range(6))

    assert queue.schedules.pause(prefix="job-") == 6
    assert queue.schedules.resume(prefix="job-") == 6
    assert queue.schedules.remove(prefix="user-") == 12
    assert len(queue.schedules.list()) == 6


@everywhere
def test_occurrences_of_all_partitions_are_merged(timed):
    timed.schedules.add_many(
        Schedule(name, cron=f"{5 * n} 8 * * *") for n, name in enumerate([*one_of_each(), "x", "y"])
    )

    upcoming = timed.schedules.upcoming(2)

    assert [one.time for one in upcoming] == sorted(one.time for one in upcoming)


@everywhere
def test_sync_keeps_what_is_listed_and_prunes_the_rest(queue):
    queue.schedules.sync([Schedule(f"s{n}", every="1h") for n in range(8)], owner="app")

    applied = queue.schedules.sync([Schedule(f"s{n}", every="1h") for n in range(4, 12)], owner="app", prune=True)

    assert applied.removed == [f"s{n}" for n in range(4)]
    assert names(queue.schedules.list()) == sorted(f"s{n}" for n in range(4, 12))


def declare(queue, count=9):
    """Declare schedules with decorators."""
    for number in range(count):
        queue.every("1h", name=f"job-{number}")(lambda message: None)


def test_declared_schedules_are_stored_once_each(open_queue, redis_client):
    queue = open_queue(partitions=PARTITIONS)
    declare(queue)
    applied = queue.schedules.apply()
    assert set(applied.outcomes) == {f"job-{number}" for number in range(9)}
    queue.start_consume()

    found = [redis_client.zrange(f"delayq:{{reminders#{n}}}:schedules", 0, -1) for n in range(PARTITIONS)]
    assert sorted(name.decode() for some in found for name in some) == sorted(applied.outcomes)
    assert all({place(name.decode()) for name in some} == {number} for number, some in enumerate(found))


@pytest.mark.long  # a worker looks every 10 s
def test_declared_schedules_are_stored_again_once_each_when_redis_has_lost_them(open_queue, redis_client):
    queue = open_queue(partitions=PARTITIONS)
    declare(queue)
    queue.start_consume()
    redis_client.flushdb()

    wait_until(lambda: redis_client.hget("delayq:{reminders}:meta", "partitions") == b"4")
    wait_until(lambda: sum(redis_client.zcard(f"delayq:{{reminders#{n}}}:schedules") for n in range(PARTITIONS)) == 9)
    with pytest.raises(ConfigurationError, match="has 4 partitions, not 8"):
        open_queue(partitions=8).open()


def test_each_occurrence_fires_once_with_two_workers(open_queue):
    seen: list[str] = []
    workers = [open_queue(partitions=PARTITIONS) for _ in range(2)]
    start = datetime.now(UTC).replace(microsecond=0)
    for queue in workers:
        for number in range(8):
            queue.every("1s", name=f"job-{number}")(lambda message: seen.append(message.id))
    for queue in workers:
        queue.start_consume()
    wait_until(lambda: len({*seen}) >= 24)
    for queue in workers:
        assert queue.stop_consume()
    assert len(seen) == len({*seen})
    assert all(datetime.fromisoformat(id.partition("@")[2]) > start - timedelta(seconds=2) for id in seen)


@pytest.mark.parametrize("cursor", ["x", "9:", "4:"])
def test_another_cursor_is_refused(queue, cursor):
    with pytest.raises(ConfigurationError, match="cursor"):
        queue.schedules.page(cursor=cursor)


def test_wrong_schedules_are_refused(queue):
    with pytest.raises(ConfigurationError):
        queue.schedules.add("no spaces", every="1h")
    with pytest.raises(ConfigurationError):
        queue.schedules.add("a", every="never")
    assert queue.schedules.list() == []
