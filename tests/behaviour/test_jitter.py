"""Jitter: what is due at the same time is spread, each message by its id."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from delayq import ConfigurationError, NewMessage
from delayq.streams import StreamQueue
from tests.behaviour.places import everywhere

AT = datetime(2190, 1, 1, 9, tzinfo=UTC)
FIVE = timedelta(minutes=5)


@everywhere
def test_what_is_due_at_one_time_is_spread_over_the_jitter(open_queue):
    queue = open_queue()
    queue.send_many([NewMessage(n, id=f"m{n}", at=AT, jitter="5m") for n in range(600)])

    later = [message.due - AT for message in queue.list("pending", limit=1000).messages]

    assert min(later) >= timedelta(0)
    assert max(later) <= FIVE
    in_minute = [sum(timedelta(minutes=n) <= one < timedelta(minutes=n + 1) for one in later) for n in range(5)]
    assert min(in_minute) > 60  # of 120; ids are the same in each run


@everywhere
def test_an_id_is_always_due_at_the_same_time(open_queue):
    queue = open_queue()
    first = queue.send_schedule_msg(1, AT, id="m", jitter="5m")
    assert queue.send_schedule_msg(2, AT, id="m", jitter="5m", replace=True).due == first.due
    assert queue.get("m").due == first.due != AT
    assert queue.send_schedule_msg(1, AT, id="same", jitter=0).due == AT
    sooner = queue.send_delay_msg(1, "1h", id="d", jitter="5m").due - queue.send_delay_msg(1, "1h", id="e").due
    assert -timedelta(seconds=30) < sooner < FIVE


@everywhere
def test_a_message_expires_so_long_after_its_own_due_time(open_queue):
    queue = open_queue()
    queue.send_schedule_msg(1, AT, id="m", jitter="5m", expires="1h")
    found = queue.get("m")
    assert found.expires - found.due == timedelta(hours=1)


@everywhere
def test_a_task_has_its_own_jitter(open_queue):
    queue = open_queue()
    remind = queue.task(name="remind", jitter="5m")(lambda user: None)
    due = remind.options(at=AT, id="m").send(1).due
    assert due == queue.send_schedule_msg(1, AT, id="m", jitter="5m", replace=True).due
    assert remind.options(at=AT, id="n", jitter=0).send(1).due == AT
    queue.send_many([remind.options(at=AT, id="o").message(1)])
    assert AT < queue.get("o").due < AT + FIVE
    assert remind.options(debounce="1h", id="p").send(1).new  # which says when it is due


@everywhere
@pytest.mark.parametrize("jitter", [-1, "soon", "25h", True])
def test_jitter_that_is_no_time_of_up_to_a_day_is_refused(open_queue, jitter):
    queue = open_queue()
    with pytest.raises(ConfigurationError, match="jitter"):
        queue.send_delay_msg(1, id="m", jitter=jitter)
    with pytest.raises(ConfigurationError, match="jitter"):
        queue.send_many([1, NewMessage(1, jitter=jitter)])
    with pytest.raises(ConfigurationError, match="jitter"):
        queue.task(name="t", jitter=jitter)(lambda user: None)
    assert queue.counts().living == 0


@everywhere
def test_jitter_beside_debounce_is_refused(open_queue):
    queue = open_queue()
    with pytest.raises(ConfigurationError, match="give debounce or jitter, but not both"):
        queue.send_delay_msg(1, id="m", debounce="1h", jitter="5m")
    assert queue.counts().living == 0


def test_a_stream_refuses_it(redis_url):
    with StreamQueue("tasks", url=redis_url) as tasks, pytest.raises(ConfigurationError, match="delays"):
        tasks.send_many([NewMessage(1, jitter="5m")])
