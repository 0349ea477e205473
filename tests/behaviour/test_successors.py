"""What is sent with `replace="after"` while its id runs waits, and follows the message once, however that ends."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from delayq import ConfigurationError, DelayQueue, NewMessage
from delayq.queue.repairing.repair_report import FindingKind
from delayq.reminders import Calendar, Event
from delayq.streams import StreamQueue
from tests.behaviour.places import ID, bring, everywhere
from tests.support.processes import PATIENCE, Process
from tests.support.waiting import wait_until

WORKER = """
import sys
from delayq import DelayQueue

queue = DelayQueue("reminders", url=sys.argv[1])

@queue.callback
def remind(message):
    what = message.payload if isinstance(message.payload, str) else message.payload["summary"]
    print(message.id, what, message.due.isoformat(), flush=True)
    sys.stdin.readline()

queue.run()
"""


def follow(queue, payload="new", delay=0, **options):
    return queue.send_delay_msg(payload, delay, id=ID, replace="after", **options)


def claim(queue):
    (message,) = queue.lease(n=1, block=5)
    assert message.id == ID
    return message


ENDS = {
    "ack": lambda message: message.ack(),
    "reject": lambda message: message.reject("no such user"),
    "retries spent": lambda message: message.nack(),
}


@everywhere
@pytest.mark.parametrize("how", ENDS)
def test_what_was_sent_meanwhile_follows_a_message_however_it_ends(queue, how):
    queue.send_delay_msg("old", 0, 0, id=ID, headers={"is": "old"}, name="old")
    running = claim(queue)

    sent = follow(queue, "new", 60, retries=7, headers={"is": "new"}, name="new")

    assert (sent.status, sent.new) == ("after", False)
    assert (queue.counts().active, queue.counts().successors, queue.counts().living) == (1, 1, 1)
    ENDS[how](running)
    queue.callback(lambda message: message)
    queue.run(burst=True)
    found = queue.get(ID)
    assert (found.state, found.payload, found.due) == ("pending", "new", sent.due)
    assert (found.retries_left, found.headers, found.name) == (7, {"is": "new"}, "new")
    assert (queue.counts().living, queue.counts().successors) == (1, 0)
    assert queue.counts().dead == (how != "ack")


@everywhere
def test_the_last_that_was_sent_follows_and_no_other(queue):
    seen = []
    queue.send_delay_msg("old", id=ID)
    running = claim(queue)
    for number in range(10):
        assert follow(queue, number).status == "after"

    running.ack()
    queue.callback(lambda message: seen.append(message.payload))
    queue.run(burst=True)

    assert seen == [9]
    assert queue.stats().totals["sent"] == 2


@everywhere
def test_what_follows_has_what_it_is_not_given_from_what_is_before_it(queue):
    queue.send_delay_msg(1, retries=7, id="m", name="mail", headers={"trace": "1"}, priority=2)
    with queue.lease(block=5) as message:
        queue.send_delay_msg(2, id="m", priority=3, replace="after")
        queue.send_delay_msg(3, id="m", headers={"trace": "2"}, replace="after")
        assert message.payload == 1
    found = queue.get("m")
    assert (found.payload, found.retries_left, found.name, found.priority) == (3, 7, "mail", 3)
    assert found.headers == {"trace": "2"}


def test_it_waits_while_the_message_is_tried_again(queue):
    queue.send_delay_msg("old", id=ID)
    running = claim(queue)
    follow(queue)
    running.nack()
    queue.reschedule(ID, 0)

    again = claim(queue)
    assert (again.payload, again.attempt, queue.counts().successors) == ("old", 2, 1)
    again.ack()
    assert (claim(queue).payload, queue.counts().successors) == ("new", 0)


@everywhere
@pytest.mark.parametrize("state", ["pending", "ready", "backoff", "retry"])
def test_a_message_that_does_not_run_is_replaced(queue, state):
    bring(queue, state)

    assert follow(queue).status == "replaced"
    assert queue.counts().successors == 0
    assert (queue.get(ID).payload, queue.get(ID).attempts) == ("new", 0)


@everywhere
def test_a_new_id_is_sent(queue):
    assert follow(queue).status == "new"


@everywhere
def test_cancel_takes_what_waits_and_lets_the_running_message_go_on(queue):
    bring(queue, "active")
    follow(queue)

    assert [queue.cancel(ID), queue.cancel(ID)] == ["successor", "running"]
    assert queue.get(ID).state == "active"
    assert queue.counts().successors == 0


@everywhere
def test_cancel_takes_a_message_that_waits_for_a_retry_and_what_waits_for_it(queue):
    queue.send_delay_msg("old", id=ID)
    running = claim(queue)
    follow(queue)
    running.nack(delay=60)

    assert [queue.cancel(ID), queue.cancel(ID)] == ["cancelled", "gone"]
    assert (queue.counts().living, queue.counts().successors) == (0, 0)


@everywhere
def test_purge_takes_what_waits(queue):
    bring(queue, "active")
    follow(queue)

    assert queue.purge() == 1
    assert queue.counts().successors == 0


@everywhere
def test_it_needs_no_room_in_a_full_queue(open_queue):
    queue = open_queue(max_length=1)
    bring(queue, "active")

    assert follow(queue).status == "after"


@everywhere
def test_it_follows_although_its_id_is_settled_within_the_dedupe_window(open_queue):
    queue = open_queue(dedupe_window="1h")
    queue.send_delay_msg("old", id=ID)
    running = claim(queue)
    follow(queue)
    running.ack()

    assert queue.get(ID).payload == "new"
    claim(queue).ack()
    assert follow(queue).status == "settled"


@everywhere
def test_a_batch_follows_and_replaces_by_each_state(queue):
    bring(queue, "active")
    queue.send_delay_msg("old", 60, id="waits")

    batch = [NewMessage("new", id=id) for id in (ID, "waits", "new")]
    sent = queue.send_many(batch, replace="after", run="r")

    assert [one.status for one in sent] == ["after", "replaced", "new"]
    (run,) = queue.runs()
    assert (run.new, run.replaced) == (1, 2)


def test_doctor_stores_what_waits_for_a_message_that_is_gone(redis_url):
    with DelayQueue("reminders", url=redis_url) as queue:
        bring(queue, "active")
        follow(queue)
        keys = queue.context.calls.keys
        queue.executor.client.delete(keys.messages, keys.retries, keys.deliveries, keys.unack)

        found = [one for one in queue.repair(deep=True).findings if one.kind is FindingKind.REMAINS]
        assert [(one.count, one.mended) for one in found] == [(1, 1)]
        assert queue.get(ID).payload == "new"


@pytest.mark.parametrize("options", [{"id": "m", "replace": "before"}, {"id": "m", "replace": 1}, {"replace": "after"}])
def test_bad_options_store_nothing(queue, options):
    with pytest.raises(ConfigurationError, match="replace"):
        queue.send_delay_msg("new", **options)
    assert queue.counts().living == 0


def test_streams_refuse_before_anything_is_sent(redis_url):
    with StreamQueue("reminders", url=redis_url) as queue:
        with pytest.raises((ConfigurationError, TypeError)):
            queue.send_many([NewMessage("new", id="m")], replace="after")
        assert queue.counts().ready == 0


def test_a_prefetched_message_that_has_not_started_is_replaced(open_queue, busy):
    queue = open_queue(callback=busy, prefetch=5)
    queue.start_consume()
    queue.send_many([NewMessage("first", id="first"), NewMessage("old", id=ID)])
    wait_until(lambda: queue.counts().active == 2)

    assert follow(queue).status == "replaced"
    assert queue.counts().successors == 0
    assert queue.get(ID).payload == "new"


def send_message(queue):
    sent = queue.send_delay_msg("first", id=ID)
    return sent.id, lambda number, at: queue.send_schedule_msg(f"moved-{number}", at, id=ID, replace="after").status


def send_occurrence(queue):
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    queue.schedules.add("report", every="1d", start=start, payload="first")
    id = f"report@{start:%Y-%m-%dT%H:%M:%SZ}"
    return id, lambda number, at: queue.send_schedule_msg(f"moved-{number}", at, id=id, replace="after").status


def send_reminder(queue):
    calendar, before = Calendar(queue, "team", "1h"), timedelta(hours=1)
    calendar.update([Event("meeting", datetime.now(UTC) + before + timedelta(seconds=1), "first")])

    def move(number, at):
        changes = calendar.update([Event("meeting", at + before, f"moved-{number}")])
        return "after" if len(changes.moved) == len(changes) == 1 else changes

    return "team/meeting//1h", move


@pytest.mark.parametrize("send", [send_message, send_occurrence, send_reminder])
def test_what_is_moved_ten_times_while_it_runs_is_delivered_once_more_at_the_last_time(redis_url, send):
    with DelayQueue("reminders", url=redis_url) as queue:
        id, move = send(queue)
        worker = Process([sys.executable, "-c", WORKER, redis_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert worker.stdout.readline().decode().split()[:2] == [id, "first"]
            at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
            for number in range(10):
                due = at + timedelta(milliseconds=100 * number)
                assert move(number, due) == "after"
            assert queue.counts().successors == 1
            worker.stdin.write(b"\n")
            worker.stdin.flush()

            assert worker.stdout.readline().decode().split() == [id, "moved-9", due.isoformat()]
            assert datetime.now(UTC) >= due
            worker.stdin.write(b"\n" * 9)
            worker.stdin.flush()
            worker.terminate()
            assert worker.stdout.read() == b""
            assert worker.wait(PATIENCE) == 0
        finally:
            worker.kill()
            worker.stdin.close()
            worker.stdout.close()
        totals, counts = queue.stats().totals, queue.counts()
        assert (totals["delivered"], totals["acked"], totals.get("nacked", 0)) == (2, 2, 0)
        assert (counts.living, counts.successors, counts.dead) == (0, 0, 0)
