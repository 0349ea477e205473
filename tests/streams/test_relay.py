"""The relay moves due messages of a delay queue into a stream, each exactly once."""

import asyncio
import json
import os
import threading
import uuid
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
import redis

from delayq import AsyncDelayQueue, ConfigurationError, DelayQueue, EventKind, NewMessage, ServerError
from delayq.broker.calls import Calls
from delayq.broker.keys import Keys
from delayq.broker.transport.executor import open_executor
from delayq.options import read_settings
from delayq.streams import AsyncRelay, AsyncStreamQueue, Relay, StreamQueue
from delayq.streams.calls import relay
from tests.support.waiting import wait_until


@pytest.fixture
def queue(redis_url):
    with DelayQueue("reminders", url=redis_url, lease="300ms", events=True) as queue:
        yield queue


def burst(queue, stream="tasks"):
    return Relay(queue, stream).run(burst=True)


def entries(server, stream="tasks"):
    return [fields for _, fields in server.xrange(stream)]


def test_due_messages_are_moved_with_all_their_fields(queue, server):
    sent = queue.send_delay_msg({"user": 42}, retries=5, headers={"trace": "1"})
    due = queue.get(sent.id).due
    assert burst(queue) == 1
    (fields,) = entries(server)
    assert json.loads(fields.pop("payload")) == {"user": 42}
    assert json.loads(fields.pop("headers")) == {"trace": "1"}
    assert fields == {"id": sent.id, "retries": "5", "due": str(round(due.timestamp() * 1000))}
    assert queue.counts().living == 0
    assert queue.get(sent.id) is None


def test_what_waits_follows_a_message_that_is_moved(queue, server):
    queue.send_delay_msg("old", id="a")
    (running,) = queue.lease(n=1)
    sent = queue.send_delay_msg("new", "1h", 7, id="a", headers={"trace": "1"}, name="n", replace="after")
    assert running.release()

    assert burst(queue) == 1
    assert [json.loads(fields["payload"]) for fields in entries(server)] == ["old"]
    found = queue.get("a")
    assert (found.state, found.payload, found.due, found.retries_left) == ("pending", "new", sent.due, 7)
    assert (found.headers, found.name, queue.counts().successors) == ({"trace": "1"}, "n", 0)
    assert [event.kind for event in queue.events()][-2:] == [EventKind.ACKED, EventKind.SENT]

    queue.reschedule("a", 0)
    assert burst(queue) == 1
    assert [json.loads(fields["payload"]) for fields in entries(server)] == ["old", "new"]
    assert queue.counts().living == 0


def test_a_batch_of_a_group_is_moved_with_all_its_payloads_and_the_rest_follows(queue, server, redis_url):
    for number in range(5):
        queue.send(number, id="g", debounce="1h", collect=3)
    queue.send("alone", delay=0.001, group="other", debounce="1h", collect=3)
    wait_until(lambda: queue.counts().overdue == 2)
    assert burst(queue) == 2
    assert (queue.get("g").payload, queue.counts().living) == ([3, 4], 1)
    queue.reschedule("g", 0)
    assert burst(queue) == 1

    seen = []
    with StreamQueue("tasks", url=redis_url, callback=lambda message: seen.append(message.payload)) as stream:
        stream.run(burst=True)
    assert sorted(seen, key=str) == sorted([[0, 1, 2], [3, 4], "alone"], key=str)
    assert server.exists("delayq:{reminders}:gathered") == 0


def test_a_moved_message_keeps_its_expiry(queue, server, redis_url):
    queue.send_many([NewMessage(id, id=id, expires="2h") for id in ("late", "in-time")])
    server.zadd("delayq:{reminders}:pending", {"late": 1_700_000_000_000})
    assert burst(queue) == 2
    seen = []
    with StreamQueue("tasks", url=redis_url, callback=lambda message: seen.append(message.id)) as stream:
        stream.run(burst=True)
        assert [(dead.id, dead.reason) for dead in stream.dead.list().messages] == [("late", "missed")]
    assert seen == ["in-time"]


def test_messages_that_are_not_due_stay(queue, server):
    queue.send_delay_msg("later", "1h")
    assert burst(queue) == 0
    assert queue.counts().pending == 1
    assert entries(server) == []


def test_a_moved_message_leaves_no_keys(queue, redis_client):
    queue.send_many(range(700))
    assert burst(queue) == 700
    left = {key.decode().rpartition(":")[2] for key in redis_client.keys("delayq:{reminders}:*")}
    assert left <= {"meta", "events", "wake", "history"}
    assert redis_client.xlen("tasks") == 700


def test_the_queue_counts_a_moved_message_as_delivered_and_acknowledged(queue):
    queue.send_many(["a", "b"])
    burst(queue)
    happened = list(queue.events())
    assert [event.kind for event in happened] == [
        *[EventKind.SENT] * 2,
        *[EventKind.PROMOTED] * 2,
        *[EventKind.DELIVERED] * 2,
        *[EventKind.ACKED] * 2,
    ]
    assert {event.holder for event in happened if event.kind == "delivered"} == {"relay:tasks"}
    tokens = [event.token for event in happened if event.token]
    assert tokens[:2] == tokens[2:]
    assert tokens[0] < tokens[1]
    totals = queue.stats().totals
    assert (totals["sent"], totals["delivered"], totals["acked"]) == (2, 2, 2)


@pytest.mark.long
def test_what_a_relay_has_moved_is_in_the_history(queue):
    queue.send_many(range(300))
    assert burst(queue) == 300
    moving = Relay(queue, "tasks")
    thread = threading.Thread(target=moving.run)
    thread.start()
    queue.send_delay_msg("later", id="m")
    wait_until(lambda: not queue.counts().living)
    moving.stop()
    thread.join()
    total = queue.history().total
    assert (total.delivered, total.acked, total.callbacks, total.lateness.total) == (301, 301, 0, 0)
    assert queue.workers() == []


def test_an_id_that_was_relayed_is_refused_within_the_dedupe_window(redis_url):
    with DelayQueue("deduped", url=redis_url, dedupe_window="1h") as queue:
        queue.send_delay_msg("x", id="one")
        burst(queue)
        assert queue.send_delay_msg("x", id="one").status == "settled"


@pytest.mark.parametrize("where", ["ready", "retry", "expired"])
def test_messages_left_behind_by_a_consumer_are_moved(queue, server, where):
    queue.send_many(["a", "b"], retries=2)
    lease = queue.lease(n=2)
    for message in lease:
        if where == "ready":
            message.release()
        elif where == "retry":
            message.nack(delay=0)
    if where != "ready":  # by the server's clock, which a consumer only estimates
        last = max(message.deadline for message in queue.list("backoff" if where == "retry" else "active").messages)
        wait_until(lambda: last <= queue.stats().at)
    assert burst(queue) == 2
    left = "2" if where == "ready" else "1"
    assert sorted((fields["payload"], fields["retries"]) for fields in entries(server)) == [
        ('"a"', left),
        ('"b"', left),
    ]
    assert queue.counts().living == 0
    assert not lease.messages[0].ack()


def test_a_message_in_flight_is_not_moved(queue, server):
    queue.send_delay_msg("x")
    with queue.lease():
        assert burst(queue) == 0
    assert entries(server) == []


def test_stale_entries_of_the_lists_are_skipped(queue, server):
    ids = [queue.send_delay_msg(n).id for n in range(4)]
    for message in queue.lease(n=4):
        message.release()
    assert queue.cancel(ids[1]) == "cancelled"
    assert queue.reschedule(ids[2], "1h") == "rescheduled"
    assert burst(queue) == 2
    assert sorted(fields["payload"] for fields in entries(server)) == ["0", "3"]
    assert (queue.counts().pending, queue.counts().ready) == (1, 0)


def test_what_has_a_priority_is_moved_by_rank(queue, server):
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    queue.send_many([NewMessage(n, at=begin, priority=n) for n in (1, 2, 0, 3)])
    queue.send_schedule_msg(4, begin - timedelta(minutes=2, seconds=30))
    for message in queue.lease(n=3):  # which promotes all of them
        message.release()
    queue.send_many([NewMessage(n, at=begin, priority=n) for n in (-5, 5)])
    assert queue.counts().ready == 7
    assert burst(queue) == 7
    assert [fields["payload"] for fields in entries(server)] == ["3", "4", "2", "1", "0", "5", "-5"]
    assert queue.counts().living == 0


@pytest.mark.parametrize("name", ["ready", "retry"])
def test_an_entry_that_another_program_has_pushed_is_not_counted(queue, server, name):
    server.rpush(f"delayq:{{{queue.name}}}:{name}", "foreign")
    queue.send_delay_msg("x")
    assert burst(queue) == 1
    assert (queue.counts().ready, queue.counts().retry) == (0, 0)


@pytest.mark.parametrize(("part", "value"), [("deliveries", "x"), ("retries", "x"), ("headers", "{")])
def test_a_foreign_value_keeps_no_message_from_being_moved(queue, server, part, value):
    sent = queue.send_delay_msg("x")
    queue.send_delay_msg("later", "1h", id="of-a-fraction")
    queue.lease().messages[0].release()  # it is in ready
    server.hset(f"delayq:{{reminders}}:{part}", sent.id, value)
    server.zadd("delayq:{reminders}:pending", {"of-a-fraction": 1.5})
    assert burst(queue) == 2
    found = {fields["id"]: json.loads(fields["payload"]) for fields in entries(server)}
    assert found == {sent.id: "x", "of-a-fraction": "later"}


def test_a_message_without_retries_left_goes_to_the_dead_letter(queue, server):
    queue.send_delay_msg("x", retries=0)
    assert queue.lease()
    deadline = queue.list("active").messages[0].deadline
    wait_until(lambda: deadline <= queue.stats().at)
    assert burst(queue) == 0
    assert queue.counts().dead == 1
    assert entries(server) == []


def test_a_call_moves_a_limited_number_of_bytes(queue, server):
    queue.send_many(["x" * 400_000] * 10)
    executor = queue.executor
    moved = executor.call(relay(queue.context.calls, "tasks", consumer_id="relay:tasks")).moved
    assert moved == 3
    assert burst(queue) == 7
    assert len(entries(server)) == 10


def test_a_repeated_call_moves_no_message_twice(queue, server):
    queue.send_many(range(600))
    executor = open_executor({"url": queue._options["url"]}, read_settings({}))
    call = relay(queue.context.calls, "tasks", consumer_id="relay:tasks", limit=100)
    replies = []
    for _ in range(3):
        text = [call.script.sha, len(call.keys), *call.keys, "slot", 1, *call.args]
        try:
            replies.append(executor.client.evalsha(*text))
        except redis.exceptions.NoScriptError:
            executor.client.script_load(call.script.text)
            replies.append(executor.client.evalsha(*text))
    assert len(set(replies)) == 1
    assert len(entries(server)) == 100
    executor.close()


def test_messages_stay_in_the_queue_if_the_stream_cannot_be_written(queue, server):
    queue.send_many(["a", "b"])
    server.set("tasks", "text")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        burst(queue)
    assert queue.counts().ready == 2
    server.delete("tasks")
    assert burst(queue) == 2


@pytest.mark.long
def test_several_relays_share_the_work_and_move_each_message_once(queue, redis_url, server):
    others = [DelayQueue("reminders", url=redis_url) for _ in range(3)]
    relays = [Relay(each, "tasks") for each in others]
    threads = [threading.Thread(target=one.run) for one in relays]
    for thread in threads:
        thread.start()
    for first in range(0, 900, 100):
        queue.send_many(range(first, first + 100), 0.05)
    wait_until(lambda: server.xlen("tasks") >= 900)
    for one in relays:
        one.stop()
    for thread in threads:
        thread.join()
    assert sorted(int(fields["payload"]) for fields in entries(server)) == list(range(900))
    for each in others:
        each.close()


@pytest.mark.long
def test_an_idle_relay_is_woken_by_a_send(queue, redis_url, server):
    moving = Relay(queue, "tasks")
    thread = threading.Thread(target=moving.run)
    thread.start()
    with DelayQueue("reminders", url=redis_url) as producer:
        for number in count(1):
            producer.send_delay_msg(number)
            wait_until(lambda number=number: server.xlen("tasks") == number, timeout=5)
            if number == 5:
                break
        producer.send_delay_msg("soon", 0.2)
    wait_until(lambda: server.xlen("tasks") == 6, timeout=5)
    moving.stop()
    thread.join()
    (last,) = [fields for fields in server.xrange("tasks") if fields[1]["payload"] == '"soon"']
    late = int(last[0].partition("-")[0]) - int(last[1]["due"])
    assert 0 <= late < 1000


@pytest.mark.long
def test_a_relay_fires_the_schedules_of_its_queue(queue, server):
    queue.schedules.add("often", every="1s", payload="tick")
    moving = Relay(queue, "tasks")
    thread = threading.Thread(target=moving.run)
    thread.start()
    wait_until(lambda: server.xlen("tasks") >= 2)
    moving.stop()
    thread.join()
    found = [(entry, fields) for entry, fields in server.xrange("tasks") if fields["payload"] == '"tick"']
    dues = [int(fields["due"]) for _, fields in found]
    assert dues == [dues[0] + 1000 * n for n in range(len(dues))]
    assert all(int(entry.partition("-")[0]) >= int(fields["due"]) for entry, fields in found)


@pytest.mark.long
def test_a_relay_is_listed_among_the_workers_of_its_queue(queue, caplog):
    moving = Relay(queue, "tasks")
    thread = threading.Thread(target=moving.run)
    thread.start()
    wait_until(queue.workers)
    assert [(worker.pid, worker.held) for worker in queue.workers()] == [(os.getpid(), 0)]
    moving.stop()
    thread.join()
    assert queue.workers() == []
    Relay(queue, "tasks").run(burst=True)
    assert queue.workers() == []
    assert queue.history().total.delivered == 0
    assert not [record for record in caplog.records if record.name == "delayq.relay"]


async def _relay_async(url):
    async with AsyncDelayQueue("reminders", url=url) as queue, AsyncStreamQueue("tasks", url=url) as stream:
        moving = AsyncRelay(queue, stream)
        await moving.open()
        await queue.send_delay_msg("x")
        moved = await moving.run(burst=True)
        async with stream.lease() as message:
            return moved, message.payload


def test_an_asyncio_relay_moves_messages(redis_url):
    assert asyncio.run(_relay_async(redis_url)) == (1, "x")


@pytest.mark.long
def test_a_relay_continues_after_redis_comes_back(start_redis):
    redis_server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    with DelayQueue("reminders", url=redis_server.url, deadline=0.2) as queue:
        moving = Relay(queue, "tasks")
        moving.open()
        thread = threading.Thread(target=moving.run)
        thread.start()
        queue.send_many(range(100), 1)
        redis_server.kill()
        redis_server.start()
        with redis_server.client() as client:
            wait_until(lambda: client.xlen("tasks") == 100)
        moving.stop()
        thread.join()
        assert queue.counts().living == 0


def test_stop_does_not_wait_for_an_unreachable_redis(start_redis):
    redis_server = start_redis()
    with DelayQueue("reminders", url=redis_server.url) as queue:
        moving = Relay(queue, "tasks")
        moving.open()
        thread = threading.Thread(target=moving.run)
        thread.start()
        redis_server.kill()
        moving.stop()
        thread.join(15)  # half of the deadline of a call
        assert not thread.is_alive()


# Invalid input


def test_queue_and_stream_must_be_on_one_redis(queue):
    with (
        StreamQueue("tasks", url="redis://localhost:1/0") as stream,
        pytest.raises(ConfigurationError, match="one Redis"),
    ):
        Relay(queue, stream)


@pytest.mark.parametrize("stream", ["", "a b", "a{b", 7, None])
def test_an_invalid_stream_raises_a_configuration_error(queue, stream):
    with pytest.raises(ConfigurationError, match="stream"):
        Relay(queue, stream)


def test_in_a_cluster_queue_and_stream_must_share_a_hash_tag():
    with DelayQueue("reminders", url="redis+cluster://127.0.0.1:1") as queue:
        with pytest.raises(ConfigurationError, match=r"a name with \{reminders\} in it"):
            Relay(queue, "tasks")
        Relay(queue, "tasks.{reminders}")


def test_a_relay_uses_the_clock_of_its_queue(redis_url, server):
    with DelayQueue("reminders", url=redis_url) as queue:
        queue.send_delay_msg("x", "1h")
        ahead = Calls(Keys.of("delayq", "reminders"), clock=lambda: 4_000_000_000_000)
        assert queue.executor.call(relay(ahead, "tasks", consumer_id="relay:tasks")).moved == 1


@pytest.mark.long
def test_a_relay_works_on_the_embedded_server():
    url = f"memory://{uuid.uuid4().hex}"
    with DelayQueue("reminders", url=url) as queue, StreamQueue("tasks", url=url) as tasks:
        queue.send_many([NewMessage("soon", delay=0.1), NewMessage("now", headers={"a": "b"})])
        moving = Relay(queue, tasks)
        thread = threading.Thread(target=moving.run)
        thread.start()
        with tasks.lease(block=5) as first, tasks.lease(block=5) as second:
            assert [(one.payload, one.headers) for one in (first, second)] == [("now", {"a": "b"}), ("soon", {})]
        moving.stop()
        thread.join()
        assert queue.counts().living == tasks.counts().living == 0
