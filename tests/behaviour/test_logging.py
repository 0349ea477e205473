"""What is logged: each failure once, with its traceback; what an operator must know; never a payload."""

from __future__ import annotations

import logging
import os
import sys
import time

import pytest

from delayq import Backoff, Discard, NewMessage, Reject, Retry, Snooze
from delayq.values.text import format_duration
from tests.support.processes import run
from tests.support.waiting import wait_until


@pytest.fixture
def logged(caplog):
    """Return the records of delayq so far, but for the start-up check."""
    caplog.set_level(logging.DEBUG, "delayq")

    def logged(level=logging.DEBUG):
        return [
            record
            for record in caplog.records
            if record.name.startswith("delayq.") and record.name != "delayq.doctor" and record.levelno >= level
        ]

    return logged


def raising(error):
    def callback(message):
        raise error

    return callback


def test_a_failed_callback_is_logged_once_with_its_traceback(open_queue, logged):
    error = ValueError("no such user")
    queue = open_queue(callback=raising(error), nack_delay=60)
    queue.send_delay_msg("hello", id="m")

    queue.run(burst=True)

    (record,) = logged(logging.WARNING)
    assert record.levelno == logging.WARNING
    assert record.exc_info[1] is error
    assert (record.queue, record.id, record.delay) == (queue.name, "m", 60)
    assert record.getMessage() == f"{queue.name}: message m failed at attempt 1 and is tried again in 1m"


def test_delay_in_the_log_is_the_one_that_the_message_waits(open_queue, logged):
    queue = open_queue(callback=raising(ValueError("busy")), nack_delay=Backoff.constant("1000s", jitter=0.5))
    queue.send_delay_msg("hello", id="m")

    queue.run(burst=True)

    (record,) = logged(logging.WARNING)
    waits = (queue.get("m").deadline - queue.stats().at).total_seconds()
    shown = record.getMessage().rpartition(" is tried again in ")[2]
    assert shown in {format_duration(waits + passed) for passed in range(-1, 60)}


def test_each_failed_attempt_is_logged(open_queue, logged):
    queue = open_queue(callback=raising(ValueError("no such user")), nack_delay=0)
    queue.send_delay_msg("hello", retries=2)

    queue.run(burst=True)

    assert [record.attempt for record in logged(logging.WARNING)] == [1, 2, 3]
    assert [record.attempt for record in logged(logging.ERROR)] == [3]


def test_a_callback_that_fails_after_it_has_settled_is_logged(open_queue, logged):
    queue = open_queue()

    @queue.callback
    def settle(message):
        message.ack()
        raise ValueError("too late")

    queue.send_delay_msg("hello", id="m")
    queue.run(burst=True)

    (record,) = logged(logging.ERROR)
    assert record.id == "m"
    assert str(record.exc_info[1]) == "too late"


def test_rejection_is_logged_with_its_reason(open_queue, logged):
    queue = open_queue(callback=raising(Reject("no such user")))
    queue.send_delay_msg("hello", id="m")

    queue.run(burst=True)

    (record,) = logged(logging.WARNING)
    assert record.levelno == logging.ERROR
    assert (record.queue, record.id, record.attempt) == (queue.name, "m", 1)
    text = "message m was rejected at attempt 1 and goes to the dead letter: no such user"
    assert record.getMessage() == f"{queue.name}: {text}"


def test_rejection_in_a_lease_block_is_logged(open_queue, logged):
    queue = open_queue()
    queue.send_delay_msg("hello", id="m")

    with queue.lease():
        raise Reject("no such user")

    (record,) = logged(logging.WARNING)
    assert (record.levelno, record.id, record.error) == (logging.ERROR, "m", "no such user")


@pytest.mark.parametrize("outcome", [Snooze("1h"), Discard("too late")])
def test_what_is_no_failure_is_not_logged_as_one(open_queue, logged, outcome):
    queue = open_queue(callback=raising(outcome))
    queue.send_delay_msg("hello")

    queue.run(burst=True)

    assert logged(logging.WARNING) == []


def test_success_is_not_logged(open_queue, logged):
    queue = open_queue(callback=lambda message: None)
    queue.send_many(range(100))

    queue.run(burst=True)

    assert logged(logging.INFO) == []


def test_exception_in_a_lease_block_is_logged_without_its_traceback_which_the_caller_has(open_queue, logged):
    queue = open_queue(nack_delay=60)
    queue.send_many(range(3))

    with pytest.raises(ValueError, match="no such user"), queue.lease(n=3):
        raise ValueError("no such user")

    assert [(record.levelno, record.delay, record.exc_info) for record in logged(logging.WARNING)] == [
        (logging.WARNING, 60, None)
    ] * 3


def by_hand(settle):
    def callback(message):
        settle(message)

    return callback


FAILURES = {
    "returns False": (lambda message: False, "the callback returned False"),
    "raises": (raising(ValueError("boom")), "ValueError: boom"),
    "raises what is no Exception": (raising(SystemExit(3)), "SystemExit: 3"),
    "raises Retry": (raising(Retry("not paid yet")), "not paid yet"),
    "returns Retry": (lambda message: Retry("not paid yet"), "not paid yet"),
    "returns a coroutine": (lambda message: (one for one in ()), "TypeError: the callback returned a generator"),
    "nacks by hand": (by_hand(lambda message: message.nack(error="by hand")), "by hand"),
    "takes too long": (lambda message: time.sleep(0.1) or 1 / 0, "TimeoutError: the callback took longer than 50ms"),
    "rejects": (raising(Reject("no such user")), "no such user"),
    "rejects by hand": (by_hand(lambda message: message.reject("no such user")), "no such user"),
    "cannot be decoded": (None, "undecodable"),
}


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("how", FAILURES)
def test_every_failed_attempt_and_every_death_has_one_line(open_queue, logged, how, batch):
    function, error = FAILURES[how]
    options = {"nack_delay": 0, "codec": "json", "max_consume_duration": "50ms" if "long" in how else "10m"}
    queue = open_queue(**options)
    run_of = function or (lambda message: None)
    if batch:
        queue.batch_callback(lambda messages: run_of(messages[0]), most=1)
    else:
        queue.callback(run_of)
    sender = open_queue(codec="bytes")
    sender.send_many([NewMessage(b"1" if function else b"{", id="m", name="remind", retries=1)])

    queue.run(burst=True)

    late = " after its timeout"  # tells of an error of an attempt that has failed already
    lines = [record for record in logged(logging.WARNING) if late not in record.getMessage()]
    attempts = [1] if "rejects" in how else [1, 2]
    assert queue.get("m").state == "dead"
    assert [record.attempt for record in lines] == attempts
    assert [record.levelno for record in lines] == [logging.WARNING, logging.ERROR][-len(attempts) :]
    for record in lines:
        assert (record.queue, record.id, record.message_name) == (queue.name, "m", "remind")
        assert record.retries_left == (0 if record.attempt == 2 else 1)
        assert (record.delay is None) == (record.levelno == logging.ERROR)
        assert record.error.startswith(error)
        assert f"{queue.name}: remind m " in record.getMessage()


def test_expired_lease_is_logged_with_the_worker_that_was_lost(open_queue, logged):
    queue = open_queue(lease="100ms", nack_delay=0)
    queue.send_many([NewMessage("x", id="m", name="remind", retries=1)])
    consumers = []
    for _ in range(2):
        lease = queue.lease()
        consumers.append(queue.get("m").consumer)
        assert len(lease) == 1
        wait_until(lambda: queue.get("m").deadline < queue.stats().at)
    assert len(queue.lease()) == 0

    first, second = [record for record in logged(logging.WARNING) if "lease expired" in record.getMessage()]
    assert [(one.levelno, one.attempt, one.retries_left) for one in (first, second)] == [
        (logging.WARNING, 1, 1),
        (logging.ERROR, 2, 0),
    ]
    for record, consumer in zip((first, second), consumers, strict=True):
        assert (record.id, record.message_name, record.consumer) == ("m", "remind", consumer)
        assert f"worker {consumer} was lost" in record.getMessage()


def test_message_that_is_killed_by_hand_is_logged_with_its_name(open_queue, logged):
    queue = open_queue()
    queue.send_many([NewMessage("x", id=id, name="remind", delay="1h") for id in "abc"])

    assert queue.kill("a") == "killed"
    assert queue.kill("a") == "dead"
    assert queue.select(id_prefix="b").kill() == {"killed": 1}

    lines = [record for record in logged() if "dead letter" in record.getMessage()]
    assert [(one.levelno, one.queue, one.id, one.message_name) for one in lines] == [
        (logging.INFO, queue.name, id, "remind") for id in "ab"
    ]
    assert lines[0].getMessage() == f"{queue.name}: remind a was killed by hand and goes to the dead letter"


def test_killing_asks_for_no_name_that_nobody_reads(open_queue, redis_client, caplog):
    caplog.set_level(logging.WARNING, "delayq")
    queue = open_queue()
    queue.send_many([NewMessage("x", delay="1h", id=id) for id in "ab"])
    queue.kill("b")  # from then on the server knows the script
    redis_client.config_resetstat()
    queue.kill("a")
    assert redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] == 1


def test_success_is_told_at_debug(open_queue, logged, caplog):
    caplog.set_level(logging.DEBUG, "delayq")
    queue = open_queue(callback=lambda message: None if message.id == "a" else "result")
    queue.send_many([NewMessage("x", id=id, name="remind") for id in "ab"])

    queue.run(burst=True)

    lines = [record for record in logged() if "succeeded at attempt 1" in record.getMessage()]
    assert [(record.levelno, record.id, record.message_name) for record in lines] == [
        (logging.DEBUG, id, "remind") for id in "ab"
    ]


def test_lost_lease_is_logged_as_a_warning(open_queue, logged):
    queue = open_queue(lease="300ms")

    @queue.callback
    def lose(message):
        queue.purge()
        wait_until(lambda: message.lease_lost)

    queue.send_delay_msg("hello", id="m")
    queue.run(burst=True)

    assert any("lease lost: m" in record.getMessage() for record in logged(logging.WARNING))


def test_callback_that_takes_too_long_is_logged_as_a_warning(open_queue, logged, gate):
    queue = open_queue(callback=lambda message: gate.wait(30), lease="300ms", max_consume_duration="100ms")
    queue.send_delay_msg("hello", id="m")
    queue.start_consume()

    wait_until(lambda: any("the callback took longer than 100ms" in record.getMessage() for record in logged()))


def test_payloads_are_never_logged(open_queue, logged, caplog):
    queue = open_queue(callback=raising(ValueError("no such user")), payload_type=dict[str, str])
    open_queue(codec="text").send_delay_msg('{"user": 12345, "word": "canary"}')
    queue.send_delay_msg({"word": "canary"}, retries=1, headers={"bird": "canary"})
    queue.run(burst=True)
    with queue.lease():
        pass

    assert logged(logging.WARNING)
    assert "canary" not in caplog.text


@pytest.mark.parametrize("error", [RuntimeError("broken filter"), SystemExit("broken filter")])
def test_worker_goes_on_although_logging_fails(open_queue, capfd, error):
    class Broken(logging.Filter):
        def filter(self, record):
            raise error

    queue = open_queue(callback=lambda message: message.attempt > 1 or 1 / 0, nack_delay=0)
    queue.send_many(["first", "second"], retries=1)
    broken = Broken()
    logging.getLogger("delayq.consumer").addFilter(broken)
    try:
        queue.run(burst=True)
    finally:
        logging.getLogger("delayq.consumer").removeFilter(broken)

    totals = queue.stats().totals
    assert (totals["nacked"], totals["acked"]) == (2, 2)
    assert "ZeroDivisionError" in capfd.readouterr().err


class Unreadable:
    """What a callback may return: every way to look at it raises."""

    @property
    def __class__(self):
        raise SystemExit("no class")

    def __repr__(self):
        raise SystemExit("no repr")

    __str__ = __repr__


class UnreadableError(Exception):
    @property
    def __class__(self):
        raise SystemExit("no class")

    def __str__(self):
        raise SystemExit("no text")


@pytest.mark.parametrize("batch", [False, True])
def test_worker_goes_on_whatever_a_callback_returns_or_raises(open_queue, batch):
    def fail(messages):
        attempt = messages[0].attempt if batch else messages.attempt
        if attempt == 1:
            return Unreadable()
        if attempt == 2:
            raise UnreadableError
        return [None] if batch else None

    queue = open_queue(nack_delay=0, keep_errors="class")
    queue.batch_callback(fail) if batch else queue.callback(fail)
    queue.send_delay_msg("first", retries=2, retention="1h")
    queue.run(burst=True)

    assert (queue.stats().totals["nacked"], queue.stats().totals["acked"]) == (2, 1)


def test_result_that_cannot_be_kept_ends_no_worker(open_queue, logged):
    class Codec:
        def encode(self, value):
            if value == "result":
                raise SystemExit("no bytes")
            return b"payload"

        def decode(self, data):
            return data

    queue = open_queue(codec=Codec(), callback=lambda message: "result")
    queue.send_delay_msg("first", retention="1h")
    queue.run(burst=True)

    assert queue.stats().totals["acked"] == 1
    assert "its result is not kept: result cannot be encoded: SystemExit" in logged(logging.WARNING)[0].getMessage()


# Programs that do not set logging up

FAILING = """
import sys
from delayq import DelayQueue
queue = DelayQueue("jobs", url=sys.argv[1])

@queue.callback
def fail(message):
    1 / 0

queue.send_delay_msg({"user": 42}, id="m", retries=0)
queue.run(burst=True)
"""
WITHOUT_REDIS = """
from delayq import DelayQueue
DelayQueue("jobs", callback=print).run(connect_timeout=1.5)
"""


@pytest.mark.long
def test_failed_callback_is_printed_by_a_program_without_logging(redis_url):
    ended = run([sys.executable, "-c", FAILING, redis_url], capture_output=True, check=True)

    assert ended.stdout == b""
    assert b"message m failed at attempt 1 and has no retries left: it goes to the dead letter\n" in ended.stderr
    assert b"ZeroDivisionError: division by zero" in ended.stderr


@pytest.mark.long
def test_missing_redis_is_printed_at_once_with_its_address_and_where_that_is_from():
    env = os.environ | {"DELAYQ_URL": "redis://:secret@localhost:1/0"}
    ended = run([sys.executable, "-c", WITHOUT_REDIS], capture_output=True, env=env)

    first, *_, last = ended.stderr.decode().splitlines()
    assert first.startswith("Redis does not answer at localhost:1 (from DELAYQ_URL), retrying for up to ")
    assert "Redis cannot be reached at localhost:1 (from DELAYQ_URL): " in last
    assert "secret" not in ended.stderr.decode()
