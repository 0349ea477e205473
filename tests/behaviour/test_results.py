"""Results: what a callback returned is kept for a while, and a program that waits for it gets it without polling."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from delayq import (
    ConfigurationError,
    Discard,
    MessageFailedError,
    NewMessage,
    NoResultError,
    PayloadError,
    Reject,
    ResultTimeoutError,
    State,
)
from delayq.streams import StreamQueue
from tests.support.waiting import wait_until

KEPT = {"retention": "1d"}


@pytest.fixture
def pool():
    with ThreadPoolExecutor(32) as threads:
        yield threads


def test_death_that_another_program_has_written_is_none(open_queue, redis_client):
    queue = open_queue()
    queue.open()
    redis_client.zadd("delayq:{reminders}:dead", {"n:1": 1})
    redis_client.hset("delayq:{reminders}:dead_messages", "n:1", "no message")
    redis_client.hset("delayq:{reminders}:dead_ids", "n", "1")
    with pytest.raises(NoResultError):
        queue.result("n", timeout=0)


def waited_for(redis_client):
    return redis_client.zcard("delayq:{reminders}:waited")


def reads(redis_client):
    return redis_client.info("commandstats").get("cmdstat_xread", {"calls": 0})["calls"]


def test_what_a_callback_returned_is_kept_and_the_id_is_free(open_queue):
    queue = open_queue(events=True)
    queue.callback(lambda message: {"double": message.payload * 2})
    queue.send_delay_msg(21, id="a", name="n", **KEPT)
    queue.run(burst=True)

    assert queue.result("a", timeout=0) == {"double": 42}
    found = queue.get("a")
    assert (found.state, found.result, found.attempts, found.name) == (State.COMPLETED, {"double": 42}, 1, "n")
    assert found.kept_until - found.completed == found.retention == timedelta(days=1)
    assert found.payload is None
    assert [message.id for message in queue.list(State.COMPLETED).messages] == ["a"]
    assert (queue.counts().completed, queue.counts().living, queue.stats().totals["acked"]) == (1, 0, 1)
    assert [event.kind for event in queue.events()][-1] == "acked"
    assert queue.send_delay_msg(3, id="a", **KEPT).new
    queue.run(burst=True)
    assert queue.result("a", timeout=0) == {"double": 6}


def test_without_retention_nothing_is_kept(open_queue, redis_client):
    queue = open_queue()
    queue.callback(lambda message: message.payload)
    sent = queue.send_delay_msg(1, "1h")
    with pytest.raises(NoResultError, match=f"no result of message {sent.id}: it was sent without retention"):
        queue.result(sent.id, timeout=5)
    queue.cancel(sent.id)
    with pytest.raises(NoResultError, match="the queue has none with this id"):
        queue.result(sent.id)
    parts = {key.decode().rpartition(":")[2] for key in redis_client.keys("delayq:{reminders}:*")}
    assert not parts & {"completed", "results", "waited", "ends", "attributes"}


def test_the_option_of_the_send_counts_before_that_of_the_queue(open_queue):
    queue = open_queue(retention="2h")
    ids = queue.send_many([1, NewMessage(2), NewMessage(3, retention=5), NewMessage(4, retention=0)]).ids
    ids.append(queue.send_delay_msg(5, retention="3h").id)
    kept = [queue.get(id).retention for id in ids]
    assert kept == [timedelta(hours=2), timedelta(hours=2), timedelta(seconds=5), None, timedelta(hours=3)]


@pytest.mark.parametrize(("returned", "kept"), [(None, None), (0, 0), ("", ""), ([], []), (True, True)], ids=repr)
def test_any_value_is_a_result(open_queue, returned, kept):
    queue = open_queue()
    queue.callback(lambda _: returned)
    sent = queue.send_delay_msg(1, **KEPT)
    queue.run(burst=True)
    assert queue.result(sent.id, timeout=0) == kept


def test_task_returns_its_result_also_false(open_queue):
    queue = open_queue()

    @queue.task(retention="1h")
    def is_even(number: int) -> bool:
        return number % 2 == 0

    odd, even = is_even.send(3), is_even.send(4)
    forgotten = is_even.options(retention=0).send(5)
    queue.run(burst=True)
    assert queue.result(odd.id, timeout=0) is False
    assert queue.result(even.id, timeout=0) is True
    with pytest.raises(NoResultError):
        queue.result(forgotten.id, timeout=0)


def test_batch_callback_returns_one_result_for_each_message(open_queue):
    queue = open_queue()
    queue.batch_callback(lambda messages: [message.payload * 2 for message in messages], most=10)
    sent = queue.send_many([NewMessage(n, **KEPT) for n in range(1, 5)])
    queue.run(burst=True)
    assert [queue.result(id, timeout=0) for id in sent.ids] == [2, 4, 6, 8]


def test_result_of_a_pulled_message_is_given_to_its_ack(open_queue):
    queue = open_queue()
    for id in ("by hand", "by the block"):
        queue.send_delay_msg(id, id=id.replace(" ", "-"), **KEPT)
    with queue.lease(n=2) as messages:
        assert messages[0].ack(result=[1, 2])
        with pytest.raises(PayloadError, match="result cannot be encoded"):
            messages[1].ack(result=object())
    assert queue.result("by-hand", timeout=0) == [1, 2]
    assert queue.result("by-the-block", timeout=0) is None


def test_the_first_of_two_consumers_that_settle_keeps_its_result(open_queue):
    queue = open_queue()
    queue.send_delay_msg(1, id="a", retries=3, **KEPT)
    late = queue.lease("100ms", n=1).messages[0]
    now = queue.lease("30s", n=1, block=5).messages[0]
    assert late.ack(result="late, but first")
    assert not now.ack(result="second")
    assert queue.result("a", timeout=0) == "late, but first"


def test_failures_say_why(open_queue):
    queue = open_queue(default_retries=1, nack_delay=0)
    queue.send_many([NewMessage(kind, id=kind, **KEPT) for kind in ("rejected", "discarded", "spent", "cancelled")])
    queue.cancel("cancelled")

    @queue.callback
    def fail(message):
        if message.payload == "rejected":
            raise Reject("no such customer")
        if message.payload == "discarded":
            raise Discard("already shipped")
        raise ValueError("boom")

    queue.run(burst=True)

    def failure(id):
        with pytest.raises(MessageFailedError) as caught:
            queue.result(id, timeout=0)
        return caught.value.id, caught.value.reason, caught.value.error, caught.value.attempts

    assert failure("rejected") == ("rejected", "no such customer", "", 1)
    assert failure("discarded") == ("discarded", "already shipped", "", 1)
    assert failure("spent") == ("spent", "retries spent", "ValueError: boom", 2)
    with pytest.raises(NoResultError):
        queue.result("cancelled", timeout=0)
    assert queue.get("discarded").reason == "already shipped"


@pytest.mark.parametrize(
    ("returned", "why"),
    [("x" * 99, "the result is 101 bytes encoded; max_result is 100"), (object(), "result cannot be encoded as JSON")],
)
def test_result_that_cannot_be_kept_does_not_fail_the_work(open_queue, caplog, returned, why):
    queue = open_queue(max_result=100)
    queue.callback(lambda _: returned)
    queue.send_delay_msg(1, id="a", **KEPT)
    queue.run(burst=True)
    with pytest.raises(NoResultError, match=f"message a is done, but its result was not kept: {why}"):
        queue.result("a", timeout=0)
    assert why in queue.get("a").reason
    assert "message a is done, but its result is not kept" in caplog.text
    assert queue.counts().dead == 0


def test_waiting_returns_as_soon_as_the_message_has_ended(open_queue, pool, redis_client):
    queue = open_queue()
    queue.callback(lambda message: message.payload)
    sent = queue.send_many([NewMessage(n, "1h", **KEPT) for n in range(20)])
    results = [pool.submit(queue.result, id, timeout=30) for id in sent.ids]
    wait_until(lambda: waited_for(redis_client) == 20, 10)
    assert not any(one.done() for one in results)
    for id in sent.ids:
        queue.reschedule(id, 0)
    queue.start_consume()
    assert [one.result(20) for one in results] == list(range(20))


def test_all_waits_of_a_queue_object_share_one_blocking_read(open_queue, pool, redis_client):
    queue = open_queue(socket_timeout="1h")  # so that no read ends by itself
    sent = queue.send_many([NewMessage(n, "1h", **KEPT) for n in range(20)])
    redis_client.config_resetstat()
    results = [pool.submit(queue.result, id, timeout=30) for id in sent.ids]
    wait_until(lambda: waited_for(redis_client) == 20, 10)
    wait_until(lambda: redis_client.info("clients")["blocked_clients"] == 1, 10)
    for id in sent.ids[:-1]:
        queue.cancel(id)
    for one in results[:-1]:
        with pytest.raises(MessageFailedError, match="was cancelled or purged"):
            one.result(20)
    assert not results[-1].done()
    wait_until(lambda: redis_client.info("clients")["blocked_clients"] == 1, 10)
    assert reads(redis_client) <= 20
    queue.purge()
    with pytest.raises(MessageFailedError, match="was cancelled or purged"):
        results[-1].result(20)
    assert redis_client.info("clients")["blocked_clients"] == 0


def test_waiting_ends_in_time_and_the_others_go_on(open_queue, pool, redis_client):
    queue = open_queue()
    queue.send_many([NewMessage(n, "1h", id=f"m{n}", **KEPT) for n in range(3)])
    long = pool.submit(queue.result, "m0", timeout=30)
    wait_until(lambda: waited_for(redis_client) == 1, 10)
    short = pool.submit(queue.result, "m1", timeout=0.3)
    with pytest.raises(ResultTimeoutError, match="message m1 has not ended within 300ms"):
        short.result(20)
    with pytest.raises(TimeoutError):
        queue.result("m2", timeout=0)
    queue.callback(lambda message: message.payload)
    queue.reschedule("m0", 0)
    queue.run(burst=True)
    assert long.result(20) == 0


def test_the_reader_that_gives_up_hands_its_part_on(open_queue, pool, redis_client):
    queue = open_queue()
    queue.send_many([NewMessage(n, "1h", id=f"m{n}", **KEPT) for n in range(2)])
    reader = pool.submit(queue.result, "m0", timeout=0.5)
    wait_until(lambda: redis_client.info("clients")["blocked_clients"] == 1, 10)
    other = pool.submit(queue.result, "m1", timeout=30)
    with pytest.raises(ResultTimeoutError):
        reader.result(20)
    queue.callback(lambda message: message.payload)
    queue.reschedule("m1", 0)
    queue.run(burst=True)
    assert other.result(20) == 1


def test_wait_survives_ends_that_redis_has_lost(open_queue, pool, redis_client, monkeypatch):
    monkeypatch.setattr("delayq.queue.results.result_waits.RENEW_EVERY", 0.2)
    queue = open_queue()
    queue.callback(lambda message: message.payload)
    sent = queue.send_delay_msg(7, "1h", **KEPT)
    result = pool.submit(queue.result, sent.id, timeout=30)
    wait_until(lambda: waited_for(redis_client) == 1, 10)
    redis_client.delete("delayq:{reminders}:waited")
    queue.reschedule(sent.id, 0)
    queue.run(burst=True)
    assert result.result(20) == 7


def test_redriven_message_is_waited_for_again(open_queue, pool, redis_client):
    queue = open_queue()
    fails = threading.Event()
    fails.set()

    @queue.callback
    def work(_):
        if fails.is_set():
            raise Reject("not yet")
        return "done"

    queue.send_delay_msg(1, id="a", **KEPT)
    queue.run(burst=True)
    with pytest.raises(MessageFailedError):
        queue.result("a", timeout=0)
    fails.clear()
    queue.dead.redrive("a")
    queue.run(burst=True)
    assert queue.result("a", timeout=0) == "done"
    assert queue.get("a").state == State.COMPLETED


def test_progress_is_reported_under_the_lease(open_queue):
    queue = open_queue()
    queue.send_delay_msg(1, id="a", name="n", retries=3)
    lost = queue.lease("100ms", n=1).messages[0]
    assert lost.report("a first step")
    assert (queue.get("a").progress, queue.get("a").name) == ("a first step", "n")
    held = queue.lease("30s", n=1, block=5).messages[0]
    assert not lost.report("too late")
    assert held.report({"rows": 3000})
    assert held.report({"rows": 6000})
    assert queue.get("a").progress == {"rows": 6000}
    with pytest.raises(PayloadError, match="the progress is 5002 bytes encoded; allowed are 4096"):
        held.report("x" * 5000)
    with pytest.raises(PayloadError, match="progress cannot be encoded"):
        held.report(object())
    assert held.release(delay="1h")
    assert (queue.get("a").progress, queue.get("a").snoozes) == ({"rows": 6000}, 1)


def test_results_whose_time_is_over_are_deleted(open_queue, redis_client):
    queue = open_queue(tick=0.05)
    queue.callback(lambda message: message.payload)
    ids = queue.send_many([NewMessage(n, retention="1h") for n in range(3)]).ids
    queue.run(burst=True)
    redis_client.zadd("delayq:{reminders}:completed", dict.fromkeys(ids[:2], 1_700_000_000_000))
    queue.run(burst=True)
    assert [message.id for message in queue.list("completed").messages] == ids[2:]
    assert redis_client.hlen("delayq:{reminders}:results") == 1


@pytest.mark.parametrize("codec", ["text", "bytes"])
def test_results_take_the_codec_of_the_queue(open_queue, codec):
    queue = open_queue(codec=codec)
    value = "ä" if codec == "text" else b"\xff"
    queue.callback(lambda message: message.payload * 2)
    sent = queue.send_delay_msg(value, **KEPT)
    queue.run(burst=True)
    assert queue.result(sent.id, timeout=0) == value * 2


def test_payload_type_does_not_bind_results(open_queue):
    queue = open_queue(payload_type=int)
    queue.callback(lambda message: f"{message.payload} pieces")
    sent = queue.send_delay_msg(3, **KEPT)
    queue.run(burst=True)
    assert queue.result(sent.id, timeout=0) == "3 pieces"


@pytest.mark.parametrize("retention", [-1, "soon", True, "101y"])
def test_invalid_retention_is_refused_and_nothing_is_stored(open_queue, retention):
    queue = open_queue()
    with pytest.raises(ConfigurationError, match="retention"):
        queue.send_delay_msg(1, retention=retention)
    with pytest.raises(ConfigurationError, match="retention"):
        queue.task(name="n", retention=retention)(lambda: None)
    with pytest.raises(ConfigurationError, match="id"):
        queue.result("no id")
    assert queue.counts().pending == 0


def test_streams_refuse_retention():
    with pytest.raises(ConfigurationError, match="the streams engine has no option 'retention'"):
        StreamQueue("s", url="memory://", retention="1d")
