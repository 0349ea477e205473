"""Consuming: start, stop, run and burst; how a stop treats running callbacks and prefetched messages."""

from __future__ import annotations

import threading
import time

import pytest

from delayq import ConfigurationError, NewMessage, NoCallbackError
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until

pytestmark = everywhere


def test_callback_can_be_passed_when_the_queue_is_opened(open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.payload))
    queue.send_delay_msg("hello")

    queue.run(burst=True)

    assert seen == ["hello"]


def test_callback_decorator_returns_the_function_unchanged(queue):
    @queue.callback
    def double(number):
        return 2 * number

    assert double(21) == 42


def test_second_callback_is_refused_and_the_first_is_named(queue):
    seen = []

    @queue.callback
    def remind(message):
        seen.append(message.payload)

    already = r"has a callback already: .*remind \(.*test_consuming.py:\d+\)"
    with pytest.raises(ConfigurationError, match=already):
        queue.callback(lambda message: seen.append("second"))
    with pytest.raises(ConfigurationError, match=already):
        queue.batch_callback(lambda messages: seen.append("batch"))
    queue.send_delay_msg("hello")
    queue.run(burst=True)

    assert seen == ["hello"]


def test_same_callback_may_be_registered_again(queue):
    seen = []
    for _ in range(2):
        queue.callback(seen.append)
    queue.send_delay_msg("hello")

    queue.run(burst=True)

    assert len(seen) == 1


@pytest.mark.parametrize("start", [lambda queue: queue.start_consume(), lambda queue: queue.run(burst=True)])
def test_consuming_without_a_callback_is_refused(queue, start):
    with pytest.raises(NoCallbackError, match="no callback"):
        start(queue)


def test_start_consume_runs_in_the_background(open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.payload))
    queue.start_consume()

    for number in range(3):
        queue.send_delay_msg(number)
        wait_until(lambda number=number: seen == [*range(number + 1)])


def test_run_blocks_until_it_is_stopped(open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.payload))
    running = threading.Thread(target=queue.run)
    running.start()
    queue.send_delay_msg("hello")
    wait_until(lambda: seen == ["hello"])
    assert running.is_alive()

    queue.stop_consume()

    running.join(30)
    assert not running.is_alive()


# A burst


def test_burst_on_an_empty_queue_ends_at_once(open_queue):
    queue = open_queue(callback=lambda message: None)

    queue.run(burst=True)


def test_burst_delivers_due_messages_and_leaves_later_ones(open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.payload))
    queue.send_many(range(100))
    queue.send_delay_msg("later", 60)

    queue.run(burst=True)

    assert seen == [*range(100)]
    assert queue.counts().living == queue.counts().pending == 1


def test_burst_delivers_messages_that_its_callbacks_send(open_queue):
    seen = []
    queue = open_queue()

    @queue.callback
    def count_down(message):
        seen.append(message.payload)
        if message.payload:
            queue.send_delay_msg(message.payload - 1)

    queue.send_delay_msg(3)
    queue.run(burst=True)

    assert seen == [3, 2, 1, 0]


def test_burst_waits_for_retries_that_are_due_soon(open_queue):
    attempts = []
    queue = open_queue(callback=lambda message: attempts.append(message.attempt) or message.attempt == 3, nack_delay=0)
    queue.send_delay_msg("third time lucky")

    queue.run(burst=True)

    assert attempts == [1, 2, 3]


def test_burst_leaves_retries_that_are_due_later(open_queue):
    queue = open_queue(callback=lambda message: False, nack_delay=60)
    queue.send_delay_msg("hopeless")

    queue.run(burst=True)

    assert queue.counts().backoff == 1


def test_burst_collects_spent_messages_before_it_ends(open_queue):
    queue = open_queue(callback=lambda message: False)
    queue.send_many(range(150), retries=0)

    queue.run(burst=True)

    assert (queue.counts().dead, queue.counts().garbage) == (150, 0)


def test_a_burst_can_be_run_again(open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.payload))
    for number in range(3):
        queue.send_delay_msg(number)
        queue.run(burst=True)

    assert seen == [0, 1, 2]


# Concurrency


@pytest.mark.parametrize("concurrency", [1, 4])
def test_concurrency_limits_the_callbacks_that_run_at_once(open_queue, gate, concurrency):
    running, most = [], []
    queue = open_queue(concurrency=concurrency)

    @queue.callback
    def work(message):
        running.append(message.id)
        most.append(len(running))
        if len(most) == concurrency:
            gate.set()
        gate.wait(30)
        running.remove(message.id)

    queue.send_many(range(20))
    queue.run(burst=True)

    assert len(most) == 20
    assert max(most) == concurrency


def test_two_consumers_share_the_work(open_queue):
    seen = {"a": [], "b": []}

    def worker(name):
        def work(message):
            seen[name].append(message.payload)
            wait_until(lambda: seen["a"] and seen["b"])  # neither goes on alone

        return work

    queues = [open_queue(callback=worker(name)) for name in "ab"]
    queues[0].send_many(range(40))
    for queue in queues:
        queue.start_consume()

    wait_until(lambda: queues[0].counts().living == 0)
    assert sorted(seen["a"] + seen["b"]) == [*range(40)]
    assert seen["a"]
    assert seen["b"]


def test_slow_consumer_leaves_messages_to_others(open_queue, gate):
    slow = open_queue(callback=lambda message: gate.wait(30))
    slow.send_many(range(20))
    slow.start_consume()
    wait_until(lambda: slow.counts().active)

    seen = []
    quick = open_queue(callback=lambda message: seen.append(message.payload))
    quick.start_consume()

    wait_until(lambda: len(seen) == 19)  # all but the one that runs
    wait_until(lambda: slow.counts().living == 1)


def test_prefetch_sets_how_many_messages_wait_in_the_process(open_queue, gate):
    queue = open_queue(callback=lambda message: gate.wait(30), concurrency=2, prefetch=3)
    queue.send_many(range(10))
    queue.start_consume()

    wait_until(lambda: queue.counts().active == 5)
    assert queue.counts().ready == 5


# Stopping


def test_stop_waits_for_running_callbacks(open_queue, busy, gate):
    queue = open_queue(callback=busy)
    queue.send_delay_msg("hello")
    consuming = queue.start_consume()
    wait_until(lambda: busy.seen)

    consuming.stop()
    assert consuming.running
    assert queue.counts().active == 1
    gate.set()

    assert queue.stop_consume()
    assert queue.counts().living == 0
    assert queue.stats().totals["acked"] == 1


def test_stop_releases_prefetched_messages_to_the_head_without_using_a_retry(open_queue, busy, gate):
    queue = open_queue(callback=busy, prefetch=4)
    ids = queue.send_many(range(7)).ids
    consuming = queue.start_consume()
    wait_until(lambda: busy.seen and queue.counts().active == 5)

    consuming.stop()
    wait_until(lambda: queue.counts().ready == 6)
    gate.set()
    consuming.wait()

    left = queue.list("ready").messages
    assert [message.id for message in left] == ids[1:]
    assert {(message.attempts, message.retries_left) for message in left} == {(0, 3)}
    assert queue.counts().living == 6


@pytest.mark.parametrize("retries", [3, 0])
def test_message_that_a_stop_cuts_off_goes_back_to_the_head_uncharged(open_queue, busy, retries, caplog):
    queue = open_queue(callback=busy, nack_delay=60, prefetch=0)
    queue.send_many([NewMessage("endless", retries=retries, id="m"), NewMessage("waits", id="z")])
    queue.start_consume()
    wait_until(lambda: busy.seen)

    assert queue.stop_consume(grace="100ms")

    message, _ = queue.list("ready").messages
    assert (message.id, message.attempts, message.retries_left, message.snoozes) == ("m", 0, retries, 1)
    assert queue.counts().dead == 0
    assert "message m was cut off by a stop, and goes back uncharged" in caplog.text


def test_message_that_stops_cut_off_too_often_is_charged(open_queue, busy, caplog):
    queue = open_queue(callback=busy, nack_delay=60, max_snoozes=1, grace="10ms")
    queue.send_delay_msg("endless", retries=3, id="m")
    for times in (1, 2):
        queue.start_consume()
        wait_until(lambda times=times: len(busy.seen) == times)
        queue.stop_consume()

    message, text = queue.get("m"), "cut off by a stop, and snoozed 1 times, as often as max_snoozes allows"
    assert (message.state, message.attempts, message.retries_left, message.error) == ("backoff", 1, 2, text)
    assert f"message m failed at attempt 1 and is tried again in 1m: {text}" in caplog.text


def test_grace_period_is_an_option_of_the_queue(open_queue, busy):
    queue = open_queue(callback=busy, grace="100ms")
    queue.send_delay_msg("endless")
    queue.start_consume()
    wait_until(lambda: busy.seen)
    began = time.monotonic()

    assert queue.stop_consume()
    assert time.monotonic() - began < 10


def test_second_stop_can_shorten_the_grace_period(open_queue, busy):
    queue = open_queue(callback=busy)
    queue.send_delay_msg("endless")
    consuming = queue.start_consume()
    wait_until(lambda: busy.seen)

    consuming.stop(1000)
    assert queue.stop_consume(grace=0)


def test_stopping_consumer_claims_no_new_messages(open_queue, busy, gate):
    queue = open_queue(callback=busy)
    queue.send_delay_msg("first")
    consuming = queue.start_consume()
    wait_until(lambda: busy.seen)
    consuming.stop()
    queue.send_delay_msg("second")
    gate.set()
    consuming.wait()

    assert busy.seen == ["first"]
    assert queue.counts().living == 1


def test_stop_inside_a_callback_does_not_wait_for_that_callback(open_queue):
    replies = []
    queue = open_queue(callback=lambda message: replies.append(queue.stop_consume()))
    queue.send_delay_msg("hello")

    queue.run()

    assert replies == [False]
    assert queue.counts().living == 0


def test_wait_inside_a_callback_returns_at_once(open_queue):
    replies = []
    queue = open_queue(callback=lambda message: replies.append(consuming.wait()))
    consuming = queue.start_consume()
    queue.send_delay_msg("hello")

    wait_until(lambda: replies == [False])


def test_stop_without_a_running_consumer_does_nothing(open_queue):
    queue = open_queue(callback=lambda message: None)

    assert queue.stop_consume()
    queue.start_consume()
    assert queue.stop_consume()
    assert queue.stop_consume()


def test_a_queue_can_be_consumed_again_after_a_stop(open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.payload))
    for number in range(3):
        queue.start_consume()
        queue.send_delay_msg(number)
        wait_until(lambda number=number: seen == [*range(number + 1)])
        assert queue.stop_consume()


def test_second_start_does_not_start_a_second_consumer(open_queue, busy, gate):
    queue = open_queue(callback=busy, concurrency=1, prefetch=0)
    queue.send_many(range(5))

    first, second = queue.start_consume(), queue.start_consume()

    wait_until(lambda: busy.seen)
    assert queue.counts().active == len(busy.seen) == 1
    first.stop()
    gate.set()
    assert second.wait()
    assert not first.running


def test_concurrent_starts_start_one_consumer(open_queue, busy):
    queue = open_queue(callback=busy, concurrency=1, prefetch=0)
    queue.send_many(range(20))
    starting = [threading.Thread(target=queue.start_consume) for _ in range(10)]
    for thread in starting:
        thread.start()
    for thread in starting:
        thread.join()

    wait_until(lambda: busy.seen)
    assert queue.stop_consume(grace=0)
    assert queue.counts().active == 0
    assert len(busy.seen) == 1


def test_a_consumer_can_be_waited_for(open_queue):
    queue = open_queue(callback=lambda message: None)
    consuming = queue.start_consume()

    assert consuming.running
    assert not consuming.wait(0.05)
    consuming.stop()
    assert consuming.wait()
    assert not consuming.running


def test_leaving_the_with_block_stops_and_closes_the_queue(open_queue):
    seen = []
    with open_queue(callback=lambda message: seen.append(message.payload)) as queue:
        consuming = queue.start_consume()
        queue.send_delay_msg("hello")
        wait_until(lambda: seen == ["hello"])

    assert not consuming.running


def test_a_closed_queue_opens_again_when_it_is_used(open_queue):
    queue = open_queue()
    queue.send_delay_msg("hello", id="m")
    queue.close()

    assert queue.get("m").payload == "hello"


@pytest.mark.parametrize("function", [lambda: None, lambda message, extra: None, lambda *, message: None])
def test_callback_with_other_arguments_than_one_is_refused(open_queue, function):
    for register in ("callback", "batch_callback"):
        with pytest.raises(ConfigurationError, match=r"must take one argument, not \(.*test_consuming.py"):
            getattr(open_queue(), register)(function)


@pytest.mark.parametrize("function", [print, lambda message, extra=None: None, lambda *messages: None, [].append])
def test_callback_that_can_be_called_with_a_message_is_accepted(queue, function):
    assert queue.callback(function) is function


@pytest.mark.parametrize("declare", ["every", "cron"])
def test_schedule_without_interval_or_expression_is_refused(queue, declare):
    with pytest.raises(ConfigurationError, match="give the interval or expression of a schedule"):
        getattr(queue, declare)(lambda message: None)


def test_burst_beside_a_running_consumer_is_refused(open_queue):
    queue = open_queue(callback=lambda message: None)
    queue.start_consume()

    with pytest.raises(ConfigurationError, match="running already: stop it before a burst"):
        queue.run(burst=True)

    queue.stop_consume()
    queue.run(burst=True)
