"""Priority: a larger one comes first among those that are due, and waiting makes up for a smaller one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from delayq import ConfigurationError, NewMessage
from delayq.broker.message.attributes import Attributes
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until

INVALID = [101, -101, True, False, 1.5, "1"]
PAST = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)


@everywhere
def test_of_equal_due_times_the_larger_priority_comes_first(open_queue):
    queue = open_queue()
    seen = []
    queue.callback(lambda message: seen.append((message.payload, message.priority)))
    queue.send_many([NewMessage(str(p), at=PAST, priority=p) for p in (0, -10, 10, 0, -10, 10)])

    queue.run(burst=True)

    assert seen == [(str(p), p) for p in (10, 10, 0, 0, -10, -10)]


def test_a_consumer_that_is_at_work_takes_the_urgent_one_next(open_queue, busy, gate):
    queue = open_queue()
    queue.callback(busy)
    queue.send_delay_msg("first", priority=1)
    queue.start_consume()
    wait_until(lambda: busy.seen)
    queue.send_many(["a", "b", "c"])
    queue.send_delay_msg("urgent", priority=10)
    gate.set()
    wait_until(lambda: len(busy.seen) == 5)
    assert busy.seen[1] == "urgent"


def test_nothing_starves(open_queue):
    """Each step of waiting is worth as much as 1 of a priority."""
    queue = open_queue(priority_step="1s")
    now = datetime.now(UTC).replace(microsecond=0)

    def send(payload, late, priority):
        queue.send_schedule_msg(payload, now - timedelta(seconds=late), priority=priority)

    send("low", 201, -100)  # 201 s ago, 100 s behind: as if due 101 s ago
    send("plain", 102, 0)
    for n in range(20):
        send(f"high {n}", n, 100)
    taken = [message.payload for message in queue.lease(n=30)]
    assert taken[:3] == ["high 19", "high 18", "high 17"]
    assert taken.index("plain") < taken.index("low") < taken.index("high 0")


def test_a_priority_is_kept(open_queue):
    queue = open_queue(nack_delay=0.05)
    later = {"delay": "1h", "priority": 7}
    queue.send_delay_msg(1, id="a", **later)
    queue.reschedule("a", delay=0)
    with queue.lease() as message:
        assert message.priority == 7
        message.nack(delay=0)
    with queue.lease(block=5) as message:
        assert (message.priority, message.attempt) == (7, 2)
        message.reject("no")
    assert queue.dead.list().messages[0].priority == 7
    queue.dead.redrive("a")
    assert queue.get("a").priority == 7


def test_ready_lists_and_counts_what_is_ranked(open_queue):
    queue = open_queue()
    queue.send_many([NewMessage(n, at=PAST, priority=n, id=f"m{n}") for n in range(6)])
    with queue.lease() as message:
        assert message.id == "m5"
        counts = queue.counts()
        assert (counts.ready, counts.active, counts.living) == (5, 1, 6)
        first = queue.list("ready", limit=3)
        second = queue.list("ready", limit=3, cursor=first.cursor)
        ids = [one.id for one in first.messages + second.messages]
        assert ids == ["m4", "m3", "m2", "m1", "m0"]
        assert {one.state for one in first.messages} == {"ready"}
        sent = queue.send_delay_msg(1, id="m4")
        assert (sent.status, sent.owner.state) == ("exists", "ready")
        assert queue.cancel("m4")
        assert {finding.kind for finding in queue.examine(deep=True).findings} <= {"server"}


@pytest.mark.parametrize("priority", INVALID)
def test_an_invalid_priority_is_refused_and_nothing_is_stored(open_queue, priority):
    queue = open_queue()
    for send in (
        lambda: queue.send_delay_msg(1, priority=priority),
        lambda: queue.send_schedule_msg(1, PAST, priority=priority),
        lambda: queue.send_many([1, NewMessage(1, priority=priority)]),
        lambda: queue.task(lambda: None, name="n", priority=priority),
    ):
        with pytest.raises(ConfigurationError, match="priority must be a whole number from -100 to 100"):
            send()
    assert queue.counts().living == 0


@pytest.mark.parametrize("step", [0, "2d", -1, "soon"])
def test_an_invalid_step_is_refused(open_queue, step):
    with pytest.raises(ConfigurationError, match="priority_step"):
        open_queue(priority_step=step)


def test_a_task_has_a_priority_and_a_send_another(open_queue):
    queue = open_queue()

    @queue.task(priority=3)
    def remind(user: int) -> None:
        pass

    assert remind.message(1).priority == 3
    assert remind.options(priority=0).message(1).priority == 0
    with pytest.raises(ConfigurationError, match="priority must be"):
        queue.send_many([remind.options(priority=101).message(1)])


def test_the_step_is_that_of_all_processes(open_queue, redis_client):
    queue = open_queue()
    meta = f"delayq:{{{queue.name}}}:meta"
    assert redis_client.hget(meta, "priority_step") is None
    queue.send_delay_msg(1, priority=0)
    assert redis_client.hget(meta, "priority_step") is None
    queue.send_delay_msg(1, priority=1)
    assert redis_client.hmget(meta, "priority_step", "schema") == [b"60000", b"4"]
    open_queue(priority_step="5s").open()
    open_queue().open()
    assert redis_client.hget(meta, "priority_step") == b"5000"


def test_stored_text():
    assert Attributes(priority=-5).encode() == b"priority=-5"
    assert Attributes.of(b"name=n priority=-5 new=1").priority == -5
    assert Attributes.of(b"priority=high").priority == 0
