"""Behaviour of stream queues, blocking and asyncio."""

import threading
import time
from datetime import timedelta
from time import monotonic

import pytest

from delayq import (
    ConfigurationError,
    Counts,
    NewMessage,
    NoCallbackError,
    QueueFullError,
    Reject,
    Retry,
    SendStatus,
    Snooze,
    StoppedByCallbackError,
    StopWorker,
)
from delayq.broker.shared_calls import preload
from delayq.worker.drivers.wakeup import LISTENER
from tests.streams.conftest import everywhere
from tests.support.waiting import wait_until

NOTHING = Counts(0, 0, 0, 0, 0, 0, 0, 0)


def counts(queue):
    """Counts of messages: ready, active, backoff and dead."""
    found = queue.counts()
    return (found.ready, found.active, found.backoff, found.dead)


def is_waited(server):
    """Whether a client is in a blocking read."""
    return any("b" in one["flags"] for one in server.client_list())


# Sending


@everywhere
def test_a_sent_message_is_delivered_at_once(queue):
    sent = queue.send({"user": 42}, headers={"trace": "1"})
    assert sent.new
    with queue.lease() as message:
        assert (message.id, message.payload, message.headers) == (sent.id, {"user": 42}, {"trace": "1"})
        assert (message.attempt, message.retries_left) == (1, 3)
        assert message.lateness >= 0
        assert (message.queue, message.sent) == ("tasks", message.due)
        assert queue.get(message.id).sent == queue.list("active").messages[0].sent == message.sent
        assert abs(sent.due - message.due) < timedelta(seconds=30)  # an entry has Redis' cached time
    assert queue.counts() == NOTHING


@everywhere
def test_messages_come_in_the_order_they_were_sent(queue):
    queue.send_many(["a", "b"])
    queue.send("c")
    with queue.lease(n=10) as messages:
        assert [message.payload for message in messages] == ["a", "b", "c"]


@everywhere
def test_an_id_is_unique_while_its_message_exists(queue):
    assert queue.send("first", id="one").status is SendStatus.NEW
    assert queue.send("second", id="one").status is SendStatus.EXISTS
    with queue.lease() as message:
        assert queue.send("third", id="one").status is SendStatus.EXISTS
        assert message.payload == "first"
    assert queue.send("fourth", id="one").status is SendStatus.NEW


def test_ids_are_unique_within_one_send(queue):
    sent = queue.send_many([NewMessage("a", id="one"), NewMessage("b", id="one"), NewMessage("c", id="two")])
    assert [one.status for one in sent] == ["new", "exists", "new"]
    assert counts(queue) == (2, 0, 0, 0)


def test_send_many_sends_in_batches(queue):
    assert len(queue.send_many(range(1200)).new) == 1200
    assert counts(queue) == (1200, 0, 0, 0)


def test_a_full_stream_refuses_the_whole_send(open_queue):
    queue = open_queue(max_length=3)
    queue.send_many([1, 2])
    with pytest.raises(QueueFullError, match="holds 2 of at most 3"):
        queue.send_many([3, 4])
    assert queue.send(3).new


@pytest.mark.parametrize("delayed", [{"delay": 5}, {"delay": "1h"}])
def test_a_stream_has_no_delays(queue, delayed):
    with pytest.raises(ConfigurationError, match="no delays: send to a delay queue"):
        queue.send_many([NewMessage("later", **delayed)])
    assert queue.send_many([NewMessage("now", delay=0)]).new


@pytest.mark.parametrize("option", ["prefix", "events", "events_max_len", "dedupe_window", "dedupe_max"])
def test_unsupported_options_raise_a_configuration_error(open_queue, option):
    with pytest.raises(ConfigurationError, match=f"no option '{option}'"):
        open_queue(**{option: 1})


def test_a_stream_has_no_schedules(queue):
    with pytest.raises(ConfigurationError, match="the streams engine has no schedules"):
        queue.every("1h")
    with pytest.raises(ConfigurationError, match="the streams engine has no schedules"):
        queue.cron("0 9 * * *")
    with pytest.raises(ConfigurationError, match="the streams engine has no schedules"):
        _ = queue.schedules


@pytest.mark.parametrize("name", ["", "a b", "x" * 201, "a{b", "}{", "{}", "{eu}", "ä", "a\n", 7])
def test_an_invalid_name_raises_a_configuration_error(open_queue, name):
    with pytest.raises(ConfigurationError, match="stream"):
        open_queue(name)


@pytest.mark.parametrize("group", ["", "a b", "x" * 129])
def test_an_invalid_group_raises_a_configuration_error(open_queue, group):
    with pytest.raises(ConfigurationError, match="group"):
        open_queue(group=group)


# Settling


@everywhere
def test_only_the_first_ack_wins(queue):
    queue.send("x")
    lease = queue.lease()
    (message,) = lease
    assert message.ack()
    assert not message.ack()
    assert queue.counts() == NOTHING


@everywhere
def test_a_nack_takes_a_retry_and_keeps_the_error(open_queue):
    queue = open_queue(lease="2s", nack_delay=0)
    queue.send("x", 1)
    (message,) = queue.lease()
    assert message.nack(error="at first")
    assert not message.nack()
    assert counts(queue) == (0, 0, 1, 0)
    (message,) = queue.lease(block=2)
    assert (message.attempt, message.retries_left) == (2, 0)
    assert message.nack()
    assert counts(queue) == (0, 0, 0, 1)
    (dead,) = queue.dead.list().messages
    assert (dead.payload, dead.attempts, dead.reason, dead.error) == ("x", 2, "retries spent", "at first")


@pytest.mark.parametrize(
    ("outcome", "left"), [(Retry("later", delay=10), (0, 0, 600, 0)), (Reject("no"), (0, 0, 0, 600))]
)
def test_leaving_the_block_settles_any_number_of_messages(queue, outcome, left):
    queue.send_many(range(600))
    for _ in range(3):
        with queue.lease(n=1000):
            raise outcome
    assert counts(queue) == left


def test_a_nack_delay_is_exact_even_if_longer_than_a_lease(open_queue):
    queue = open_queue(lease="100ms", tick="50ms")
    queue.send("x")
    (message,) = queue.lease()
    began = monotonic()
    assert message.nack(delay=0.4)
    (again,) = queue.lease(block=30)
    assert monotonic() - began >= 0.4
    assert (again.payload, again.attempt) == ("x", 2)
    assert again.ack()
    assert queue.counts() == NOTHING


@everywhere
def test_a_rejected_message_is_dead_at_once(queue):
    queue.send("x", 9)
    (message,) = queue.lease()
    assert message.reject("nobody of that name")
    assert not message.reject("once more")
    (dead,) = queue.dead.list().messages
    assert (dead.reason, dead.attempts, dead.error) == ("nobody of that name", 1, "")


@everywhere
def test_a_release_costs_no_attempt(queue):
    queue.send("x")
    (message,) = queue.lease()
    assert message.release()
    assert not message.release()
    (again,) = queue.lease()
    assert again.attempt == 1
    assert again.token > message.token


@everywhere
def test_a_message_is_taken_over_when_its_lease_expires(open_queue):
    ours, theirs = open_queue(lease="100ms"), open_queue(lease="100ms")
    ours.send("x")
    (message,) = ours.lease()
    (taken,) = theirs.lease(block=5)
    assert (taken.payload, taken.attempt, taken.retries_left) == ("x", 2, 2)
    assert not message.extend()
    assert not message.nack()
    assert not message.reject("late")
    assert not message.release()
    assert message.ack(), "the first to complete it wins, late or not"
    assert not taken.ack()
    assert ours.counts() == NOTHING


def test_a_message_whose_consumers_keep_dying_goes_to_the_dead_letter(open_queue):
    queue = open_queue(lease="100ms")
    queue.send("x", 1)
    assert len(queue.lease(block=5)) == 1
    assert len(queue.lease(block=5)) == 1
    wait_until(lambda: len(queue.lease()) == 0 and counts(queue) == (0, 0, 0, 1))
    (dead,) = queue.dead.list().messages
    assert (dead.attempts, dead.reason) == (2, "retries spent")


def test_a_claim_also_scans_entries_before_its_cursor(queue):
    queue.send_many(["a", "b", "c"])
    first, second = queue.lease(n=2).messages
    assert first.release()
    (first,) = queue.lease()
    assert first.payload == "a"
    assert first.release()
    assert [message.payload for message in queue.lease(n=9)] == ["a", "c"]
    assert second.ack()


@pytest.mark.long
def test_an_extended_lease_keeps_the_message(open_queue):
    ours, theirs = open_queue(lease="2s"), open_queue(lease="2s")
    ours.send("x")
    (message,) = ours.lease()
    for _ in range(5):
        assert len(theirs.lease(block=0.5)) == 0
        assert message.extend()
    assert message.attempt == 1
    assert message.ack()


def test_a_lease_must_not_be_longer_than_the_queues(open_queue):
    queue = open_queue(lease="10s")
    queue.send("x")
    assert len(queue.lease("200ms")) == 1
    (message,) = queue.lease(block=5)
    assert message.attempt == 2
    for beyond in (lambda: queue.lease("11s"), lambda: message.extend("11s")):
        with pytest.raises(ConfigurationError, match="must not be longer than the queue's lease of 10 s"):
            beyond()


def test_a_stream_with_a_hash_tag_and_a_group_with_a_name(open_queue):
    queue = open_queue("tasks.{eu}", group="readers")
    assert queue.send("x", id="one").new
    with queue.lease() as message:
        assert message.payload == "x"
    assert queue.counts() == NOTHING


# The dead letter


@everywhere
def test_a_dead_message_is_redriven_as_it_was_sent(queue):
    queue.send({"a": 1}, 0, id="one", headers={"h": "v"})
    (message,) = queue.lease()
    message.reject("no")
    (dead,) = queue.dead.list().messages
    assert dead.headers == {"h": "v"}
    assert queue.dead.redrive(dead.entry).redriven == 1
    assert queue.dead.redrive(dead.entry).redriven == 0
    assert queue.send("other", id="one").status is SendStatus.EXISTS
    (again,) = queue.lease()
    assert (again.id, again.payload, again.headers, again.attempt) == ("one", {"a": 1}, {"h": "v"}, 1)
    assert again.retries_left == 0


def test_a_dead_message_frees_its_id_and_stays_dead_while_the_id_is_in_use(queue):
    queue.send("first", id="one")
    (message,) = queue.lease()
    message.reject("no")
    assert queue.send("second", id="one").new
    done = queue.dead.redrive(all=True)
    assert (done.redriven, done.exists) == (0, 1)


def test_the_dead_letter_is_read_in_pages_redriven_and_purged(queue):
    queue.send_many(range(250), 0)
    with queue.lease(n=250) as messages:
        for message in messages:
            message.reject(f"no {message.payload}")
    page = queue.dead.list(limit=200)
    rest = queue.dead.list(cursor=page.cursor)
    assert [one.payload for one in page.messages + rest.messages] == list(range(250))
    assert rest.cursor is None
    assert queue.dead.purge(page.messages[0].entry) == 1
    assert queue.dead.redrive(all=True, retries=2).redriven == 249
    (message,) = queue.lease()
    assert (message.payload, message.retries_left) == (1, 2)
    assert message.reject("again")
    assert queue.dead.purge(all=True) == 1
    assert counts(queue) == (248, 0, 0, 0)


def test_the_dead_letter_keeps_at_most_dead_max_messages(open_queue):
    queue = open_queue(dead_max=2)
    queue.send_many(range(4), 0)
    with queue.lease(n=4) as messages:
        for message in messages:
            message.reject("no")
    assert [one.payload for one in queue.dead.list().messages] == [2, 3]


@pytest.mark.parametrize("wrong", [{}, {"entry": "x"}, {"entry": "1-1", "all": True}])
def test_redrive_and_purge_need_an_entry_or_everything(queue, wrong):
    with pytest.raises(ConfigurationError):
        queue.dead.redrive(**wrong)
    with pytest.raises(ConfigurationError):
        queue.dead.purge(**wrong)


# Consuming


@pytest.mark.long
@everywhere
@pytest.mark.parametrize("delay", [0.1, 1.5])  # within a lease, and beyond it
def test_snoozed_message_comes_again_after_the_delay_and_is_not_counted(open_queue, delay):
    queue = open_queue(lease="1s", tick="100ms")
    seen = []

    @queue.callback
    def work(message):
        seen.append((message.attempt, time.monotonic()))
        if len(seen) == 1:
            raise Snooze(delay)

    queue.send("x", retries=0)
    queue.start_consume()
    wait_until(lambda: len(seen) == 2 and counts(queue) == (0, 0, 0, 0))
    queue.stop_consume()
    assert [attempt for attempt, _ in seen] == [1, 1]
    assert seen[1][1] - seen[0][1] >= delay


@everywhere
def test_stop_by_a_callback_ends_the_consumer_and_counts_no_attempt(open_queue):
    queue = open_queue(lease="2s", tick="100ms")
    attempts = []

    @queue.callback
    def work(message):
        attempts.append(message.attempt)
        if len(attempts) == 1:
            raise StopWorker("no password")

    queue.send("x", retries=0)
    with pytest.raises(StoppedByCallbackError, match=r"^no password$"):
        queue.run()
    queue.start_consume()
    wait_until(lambda: counts(queue) == (0, 0, 0, 0))
    queue.stop_consume()
    assert attempts == [1, 1]


@everywhere
def test_the_outcome_of_a_callback_settles_the_message(open_queue):
    queue = open_queue(lease="2s", tick="100ms", nack_delay=0)
    seen = []

    def work(message):
        seen.append((message.payload, message.attempt))
        if message.payload == "retry" and message.attempt == 1:
            raise Retry("not yet")
        if message.payload == "reject":
            raise Reject("never")
        if message.payload == "fail":
            raise ValueError("broken")

    queue.callback(work)
    queue.send_many([NewMessage("fine"), NewMessage("retry"), NewMessage("reject"), NewMessage("fail", retries=1)])
    queue.run(burst=True)
    assert sorted(seen) == [("fail", 1), ("fail", 2), ("fine", 1), ("reject", 1), ("retry", 1), ("retry", 2)]
    assert counts(queue) == (0, 0, 0, 2)
    assert {(one.payload, one.reason) for one in queue.dead.list().messages} == {
        ("reject", "never"),
        ("fail", "retries spent"),
    }


def test_a_waiting_consumer_gets_a_sent_message_at_once(open_queue):
    queue, seen = open_queue(tick="30s"), []
    queue.callback(lambda message: seen.append(message.payload))
    queue.start_consume()
    for number in range(5):
        queue.send(number)
        wait_until(lambda number=number: seen == list(range(number + 1)), timeout=20)
    assert queue.stop_consume()
    assert queue.counts() == NOTHING


@pytest.mark.parametrize("loss", ["flushall", "delete", "xgroup_destroy"])
def test_a_waiting_lease_survives_the_deletion_of_stream_and_group(open_queue, server, loss):
    waiting, producer = open_queue(), open_queue()
    found = []

    def wait():
        with waiting.lease(block=20) as message:
            found.append(message.payload)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: is_waited(server))
    getattr(server, loss)(*{"flushall": [], "delete": ["tasks"], "xgroup_destroy": ["tasks", "workers"]}[loss])
    producer.send("x")
    thread.join(20)
    assert found == ["x"]
    assert producer.counts() == NOTHING


def test_a_stopped_consumer_does_not_create_the_stream_again(open_queue, server):
    queue = open_queue()
    queue.callback(lambda _: None)
    queue.start_consume()
    wait_until(lambda: is_waited(server))
    assert queue.stop_consume()
    server.delete("tasks")
    wait_until(lambda: LISTENER not in {thread.name for thread in threading.enumerate()})
    assert not server.exists("tasks")


def test_a_stopped_consumer_leaves_messages_to_others(open_queue):
    ours, theirs = open_queue(), open_queue(tick="30s")
    ours.callback(lambda _: None)
    for _ in range(3):
        ours.start_consume()
        assert ours.stop_consume()
        theirs.send("x")
        with theirs.lease(block=5) as message:
            assert (message.payload, message.attempt) == ("x", 1)


def test_stop_requeues_messages_that_have_not_started(open_queue):
    queue, started, gate = open_queue(prefetch=5), [], threading.Event()

    def work(message):
        started.append(message.payload)
        gate.wait(30)

    queue.callback(work)
    queue.send_many(range(4))
    consuming = queue.start_consume()
    wait_until(lambda: counts(queue) == (0, 4, 0, 0) and started == [0])
    consuming.stop(5)
    gate.set()
    assert consuming.wait()
    assert counts(queue) == (0, 0, 3, 0)
    with queue.lease(n=9) as messages:
        assert {message.attempt for message in messages} == {1}


def test_a_batch_callback_gets_several_messages(open_queue):
    queue, seen = open_queue(), []
    queue.batch_callback(lambda messages: seen.append(len(messages)), most=10)
    queue.send_many(range(10))
    queue.run(burst=True)
    assert sum(seen) == 10
    assert queue.counts() == NOTHING


def test_an_undecodable_payload_goes_to_the_dead_letter(open_queue):
    raw, queue = open_queue(codec="bytes"), open_queue(nack_delay=0)
    queue.callback(lambda _: None)
    raw.send(b"\xff")
    queue.run(burst=True)
    (dead,) = queue.dead.list().messages
    assert (dead.payload, dead.reason[:11]) == (b"\xff", "undecodable")


def test_consuming_without_a_callback_raises(queue):
    with pytest.raises(NoCallbackError):
        queue.start_consume()


def test_scripts_can_be_loaded_in_advance(queue, server):
    assert queue.preload() == len(preload("streams"))
    assert len(server.info("stats")) > 0


@everywhere
def test_no_keys_are_left_when_all_messages_are_settled(queue, url, redis_client):
    queue.send_many([NewMessage(n, id=f"id{n}") for n in range(10)])
    with queue.lease(n=10):
        pass
    if url.startswith("memory"):
        assert queue.counts() == NOTHING
        return
    assert set(redis_client.keys()) == {b"tasks", b"{tasks}.meta", b"{tasks}.replies"}
    assert redis_client.xlen("tasks") == 0
