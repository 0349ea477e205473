"""Remove: a queue that has nothing any more leaves no key behind, and is listed no more."""

from __future__ import annotations

import pytest

from delayq import QueueInUseError
from tests.behaviour.places import bring, everywhere
from tests.support.waiting import wait_until

LISTED = "delayq:queues"


@everywhere
def test_empty_queue_is_removed_and_may_be_used_anew(open_queue):
    queue = open_queue("drafts", events=True, dedupe_window="1h", retention="1h")
    queue.limits.set("mail", rate_limit="5/m")
    queue.send_delay_msg(1, id="m")
    with queue.lease() as message:
        message.ack()
    assert queue.counts().completed == 1

    assert queue.remove() is True

    assert (queue.stats().totals, queue.counts().completed, queue.limits.list(), list(queue.events())) == (
        {},
        0,
        [],
        [],
    )
    assert queue.send_delay_msg(1, id="m").new
    assert [event.kind for event in queue.events()] == ["sent"]
    assert queue.purge() == 1
    assert queue.remove() is True


def test_no_key_is_left_and_the_name_is_off_the_list(open_queue, redis_client):
    queue = open_queue("drafts", prefix="delayq")
    queue.send_delay_msg(1, "1h")
    queue.purge()
    assert redis_client.sismember(LISTED, "drafts")
    assert queue.remove() is True
    assert not redis_client.keys("*{drafts}*")
    assert not redis_client.sismember(LISTED, "drafts")
    assert queue.remove() is False
    queue.send_delay_msg(1)
    assert redis_client.sismember(LISTED, "drafts")


@everywhere
@pytest.mark.parametrize("state", ["pending", "active", "dead"])
def test_queue_with_messages_is_not_removed(queue, state):
    bring(queue, state)
    text = "1 dead message \\(purge its dead letter\\)" if state == "dead" else "1 message \\(purge it\\)"
    with pytest.raises(QueueInUseError, match=f"is not removed, it has {text}$"):
        queue.remove()
    assert queue.get("m").state == state


@everywhere
def test_queue_with_schedules_and_messages_is_not_removed(queue):
    queue.schedules.add("nightly", every="1d")
    queue.send_delay_msg(1, "1h")
    with pytest.raises(QueueInUseError, match=r"it has 1 message \(purge it\), 1 schedule \(remove them\)$"):
        queue.remove()
    assert queue.purge() == 1
    assert queue.schedules.remove("nightly") == 1
    queue.remove()


def test_queue_is_not_removed_while_somebody_consumes_it(open_queue):
    queue = open_queue()
    queue.callback(lambda message: None)
    queue.start_consume()
    wait_until(lambda: queue.workers())
    with pytest.raises(QueueInUseError, match=r"1 live consumer \(stop them\)"):
        queue.remove()
    queue.stop_consume()
    assert queue.remove() is True
