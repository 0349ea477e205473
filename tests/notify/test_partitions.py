"""A notifier of a queue over partitions tells what happens in each, once, and follows it as it grows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from delayq import DelayQueue
from delayq.broker.calls import Calls
from delayq.broker.keys import Keys
from delayq.broker.transport.executor import open_executor
from delayq.notify.notices import NoticeKind
from delayq.notify.notifier import Notifier, Sink
from delayq.notify.watch import Watched
from delayq.options import read_settings
from delayq.queue.placing.repartitioning import change_partitions

HOUR = 3_600_000


@pytest.fixture
def told(redis_url):
    """`told(later)` looks after some milliseconds, as after a restart, and returns what was told."""
    executor = open_executor({"url": redis_url}, read_settings({}))
    clock = [round(datetime.now(UTC).timestamp() * 1000)]

    def turn(later: int = 0) -> list[str]:
        texts: list[Any] = []
        clock[0] += later
        calls = Calls(Keys.of("delayq", "jobs"), clock=lambda: clock[0])
        watched = Watched("delayq", "jobs", tuple(NoticeKind), 60_000, HOUR)
        sink = Sink("ops", lambda notice: texts.append(notice.payload["text"]))
        Notifier(executor, calls, "ops", watched, [sink]).turn()
        return texts

    yield turn
    executor.close()


def die(queue: DelayQueue[Any], reason: str, number: int) -> None:
    """Let as many messages fail, so many that each partition has some."""
    queue.send_many([reason] * number)
    with queue.lease(n=number) as leased:
        assert len(leased) == number
        for message in leased:
            message.reject(reason)


@pytest.fixture
def queue(redis_url):
    with DelayQueue("jobs", url=redis_url, events=True, partitions=4) as made:
        made.open()
        yield made


def test_deaths_of_all_partitions_are_one_notice(queue, told):
    die(queue, "before", 8)
    assert told() == []
    die(queue, "no such user", 12)
    assert told() == ["jobs: 12 messages moved to the dead letter: no such user"]
    assert told(HOUR) == []


def test_states_are_those_of_the_whole_queue(queue, told):
    told()
    queue.pause(reason="maintenance")
    assert told() == ["jobs: paused: maintenance"]


def test_a_notifier_follows_a_queue_that_grows(queue, told, redis_url):
    told()
    die(queue, "early", 12)
    assert told() == ["jobs: 12 messages moved to the dead letter: early"]
    for partitions in (9, 1):
        queue.executor.perform(change_partitions("delayq", "jobs", partitions))
        with DelayQueue("jobs", url=redis_url, partitions=partitions) as grown:
            die(grown, f"at {'many' if partitions > 1 else 'one'}", 12)
        assert told() == [f"jobs: 12 messages moved to the dead letter: at {'many' if partitions > 1 else 'one'}"]
        assert told(HOUR) == []


def test_what_a_notifier_keeps_goes_with_the_queue(queue, told, redis_client):
    told()
    assert redis_client.exists(Keys.of("delayq", "jobs").notifiers)
    assert queue.remove()
    assert told() == []
    assert not redis_client.keys("delayq:{jobs*")
