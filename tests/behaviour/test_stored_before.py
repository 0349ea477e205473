"""What the version before has stored is still delivered: messages with `after_outage`, which this one does not have."""

from __future__ import annotations

import pytest

from delayq.queue.repairing.repair_report import FindingKind
from delayq.values.states import State

DUE = 1_767_225_600_000
MESSAGES = {
    "report:00": (DUE, "name=report missed=drop latest=1"),
    "report:01": (DUE + 3_600_000, "name=report missed=drop latest=1"),
    "bill:1": (DUE, "latest=1"),
}
SLOTS = {"0123456789ab.1": f"7 {DUE} 1", "0123456789ab.2": f"1 {DUE} 0 1 2"}
PREFIX = "delayq:{reminders}:"


@pytest.fixture
def stored(redis_client):
    """Store what a send of the version before has stored, and the replies of calls long ago."""
    redis_client.sadd("delayq:queues", "reminders")
    redis_client.zadd(PREFIX + "pending", {id: due for id, (due, _) in MESSAGES.items()})
    redis_client.hset(PREFIX + "messages", mapping=dict.fromkeys(MESSAGES, "1"))
    redis_client.hset(PREFIX + "retries", mapping=dict.fromkeys(MESSAGES, 3))
    redis_client.hset(PREFIX + "attributes", mapping={id: text for id, (_, text) in MESSAGES.items()})
    redis_client.hset(PREFIX + "replies", mapping=SLOTS)
    redis_client.hset(PREFIX + "meta", mapping={"schema": 2, "sent": 3})


def defects(queue):
    others = (FindingKind.SERVER, FindingKind.UNCONSUMED)  # nothing consumes yet
    return [one for one in queue.examine(deep=True).findings if one.kind not in others]


@pytest.mark.usefixtures("stored")
def test_all_are_delivered_and_old_call_slots_go_away(open_queue, redis_client):
    queue = open_queue()
    seen = []
    queue.callback(lambda message: seen.append(message.id))
    assert defects(queue) == []
    assert queue.get("report:00").name == "report"

    queue.run(burst=True)

    assert sorted(seen) == sorted(MESSAGES)
    assert queue.counts().living == queue.counts().dead == 0
    assert not redis_client.exists(PREFIX + "replies")
    assert defects(queue) == []


@pytest.mark.usefixtures("stored")
def test_all_are_leased(open_queue):
    queue = open_queue()
    with queue.lease(n=9) as messages:
        assert sorted(message.id for message in messages) == sorted(MESSAGES)


@pytest.mark.usefixtures("stored")
def test_all_are_replaced_moved_and_redriven(open_queue):
    queue = open_queue()
    assert queue.send_delay_msg(2, "1h", id="report:00", replace=True).status == "replaced"
    assert queue.reschedule("report:01", "1h") == "rescheduled"
    with queue.lease() as message:
        assert message.id == "bill:1"
        message.reject("no such user")
    assert queue.dead.redrive("bill:1").redriven == 1
    assert defects(queue) == []
    with queue.lease(n=9) as messages:
        assert [message.id for message in messages] == ["bill:1"]
    assert [queue.get(id).state for id in ("report:00", "report:01")] == [State.PENDING] * 2


@pytest.mark.usefixtures("stored")
def test_a_removed_queue_leaves_no_index(open_queue, redis_client):
    queue = open_queue()
    queue.purge()
    assert queue.remove() is True
    assert redis_client.keys(PREFIX + "*") == []
