"""Outcomes: what a callback returns or raises, and how its message is settled."""

from __future__ import annotations

import asyncio
import logging
import threading
from datetime import timedelta

import pytest

from delayq import (
    Backoff,
    ConfigurationError,
    Discard,
    RateLimited,
    Reject,
    Retry,
    Snooze,
    StoppedByCallbackError,
    StopWorker,
)
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until

pytestmark = everywhere


def once(queue, act, **options):
    """Deliver one message to `act`, and return its state afterwards."""
    queue.callback(act)
    queue.send_delay_msg("hello", id="m", **options)
    queue.run(burst=True)
    return queue.get("m")


def raising(error):
    def act(message):
        if message.id != "next":
            raise error

    return act


@pytest.mark.parametrize("result", [None, True, 0, "", [], "a text"])
def test_any_other_return_value_settles_the_message(open_queue, result):
    queue = open_queue()

    assert once(queue, lambda message: result) is None
    assert queue.stats().totals["acked"] == 1


def test_returning_false_uses_one_retry(open_queue):
    message = once(open_queue(nack_delay=60), lambda message: False, retries=3)

    assert (message.state, message.attempts, message.retries_left) == ("backoff", 1, 2)
    assert message.error == "the callback returned False"


class OddError(BaseException):
    """Not even an Exception."""


ERRORS = [
    ValueError("no such user"),
    KeyError("user"),
    SystemExit(1),
    KeyboardInterrupt(),
    MemoryError(),
    RecursionError("maximum recursion depth exceeded"),
    asyncio.CancelledError(),
    OddError("odd"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_any_exception_uses_one_retry_and_does_not_harm_the_worker(open_queue, error):
    queue = open_queue(nack_delay=60)
    message = once(queue, raising(error), retries=3)

    assert (message.state, message.attempts, message.retries_left) == ("backoff", 1, 2)
    assert message.error == f"{type(error).__name__}: {error}"

    queue.send_delay_msg("the next one", id="next")
    queue.run(burst=True)
    assert queue.get("next") is None


def test_endless_recursion_is_one_failure(open_queue):
    def recurse(message):
        recurse(message)

    message = once(open_queue(nack_delay=60), recurse)

    assert message.error.startswith("RecursionError")


def test_error_whose_text_raises_is_stored_as_its_class_name(open_queue):
    class Unprintable(Exception):  # noqa: N818 - not an error of the program
        def __str__(self):
            raise ValueError("no text")

    assert once(open_queue(nack_delay=60), raising(Unprintable())).error == "Unprintable"


@pytest.mark.parametrize("text", ["\ud800", "\0\r\n", "naïve 日本語 🙂"], ids=["surrogate", "control", "unicode"])
def test_any_error_text_can_be_stored(open_queue, text, monkeypatch):
    monkeypatch.setattr(logging.getLogger("delayq.consumer"), "disabled", True)  # pytest-xdist cannot send such text
    message = once(open_queue(nack_delay=60), raising(ValueError(text)))

    assert message.error == f"ValueError: {text}".replace("\ud800", "?")


def test_long_error_is_truncated(open_queue):
    message = once(open_queue(nack_delay=60), raising(ValueError("x" * 10_000)))

    assert len(message.error) == 2048


@pytest.mark.parametrize("how", ["raised", "returned"])
def test_retry_sets_reason_and_delay(open_queue, how):
    outcome = Retry("rate limited", delay="5m")
    queue = open_queue()
    message = once(queue, raising(outcome) if how == "raised" else lambda message: outcome, retries=3)

    assert (message.state, message.retries_left, message.error) == ("backoff", 2, "rate limited")
    assert timedelta(minutes=4) < message.deadline - queue.stats().at <= timedelta(minutes=5, seconds=1)


def test_retry_without_a_delay_uses_the_nack_delay_of_the_queue(open_queue):
    queue = open_queue(nack_delay="2m")
    message = once(queue, raising(Retry()))

    assert message.error == "retry"
    assert timedelta(minutes=1) < message.deadline - queue.stats().at <= timedelta(minutes=2, seconds=1)


@pytest.mark.parametrize("how", ["raised", "returned"])
def test_snooze_takes_no_retry_and_no_attempt(open_queue, how):
    outcome = Snooze("1h", "the shop is closed")
    queue = open_queue(events=True)
    message = once(queue, raising(outcome) if how == "raised" else lambda message: outcome, retries=0)

    assert (message.state, message.attempts, message.retries_left, message.error) == ("backoff", 0, 0, "")
    assert timedelta(minutes=59) < message.deadline - queue.stats().at <= timedelta(hours=1, seconds=1)
    assert [event.kind for event in queue.events()] == ["sent", "promoted", "delivered", "released"]
    assert queue.stats().totals["released"] == 1


def test_snoozed_message_is_delivered_again_by_another_consumer(open_queue):
    attempts = []

    def once_not_yet(message):
        attempts.append(message.attempt)
        if len(attempts) == 1:
            raise Snooze(0.2)

    queue, other = open_queue(), open_queue()
    for one in (queue, other):
        one.callback(once_not_yet)
        one.start_consume()
    queue.send_delay_msg("hello", id="m", retries=0)
    wait_until(lambda: queue.stats().totals.get("acked") == 1)
    for one in (queue, other):
        one.stop_consume()
    assert attempts == [1, 1]


@pytest.mark.parametrize("how", ["raised", "returned"])
def test_stop_returns_the_message_and_ends_the_consumer_with_its_reason(open_queue, how, caplog):
    outcome = StopWorker("no password")
    queue = open_queue(events=True)
    queue.callback(raising(outcome) if how == "raised" else lambda message: outcome)
    queue.send_many(["hello"] * 5, retries=0)
    for attempt in (1, 2):
        with pytest.raises(StoppedByCallbackError, match=r"^no password$"):
            queue.run(concurrency=2)
        counts = queue.counts()
        assert (counts.ready + counts.pending, counts.living, counts.dead) == (5, 5, 0), attempt
    assert {(one.attempts, one.retries_left) for one in queue.list("ready").messages} == {(0, 0)}
    assert {event.kind for event in queue.events()} == {"sent", "promoted", "delivered", "released"}
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.exc_info for record in logged] == [None, None]
    assert "no password" in logged[0].getMessage()


def test_stop_lets_running_callbacks_finish(open_queue):
    queue = open_queue()
    begun, stopped = threading.Event(), threading.Event()

    def work(message):
        if message.payload == "stop":
            begun.wait(30)
            stopped.set()
            raise StopWorker("enough")
        begun.set()
        stopped.wait(30)

    queue.callback(work)
    queue.send_many(["slow", "stop"])
    with pytest.raises(StoppedByCallbackError, match=r"^enough$"):
        queue.run(concurrency=2)
    assert [one.attempts for one in queue.list("ready").messages] == [0]
    assert queue.stats().totals["acked"] == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retry(delay=-5),
        lambda: Snooze("x"),
        lambda: Snooze(None),
        lambda: RateLimited(-1),
        lambda: RateLimited(None),
    ],
)
def test_an_invalid_delay_is_refused_where_the_outcome_is_made(open_queue, make):
    with pytest.raises(ConfigurationError, match=r"^delay must "):
        make()

    def work(message):
        raise make()

    message = once(open_queue(nack_delay=60), work)
    assert (message.state, message.retries_left) == ("backoff", 2)
    assert "InvalidValueError: delay must" in message.error


def test_a_duration_for_a_reason_fails_the_attempt_with_what_to_write(open_queue):
    def work(message):
        raise Retry("5m")

    message = once(open_queue(nack_delay=60), work)
    assert message.state == "backoff"
    assert "'5m' reads as a duration: write Retry('why', delay='5m')" in message.error


@pytest.mark.parametrize("how", ["raised", "returned"])
def test_reject_moves_the_message_to_the_dead_letter_at_once(open_queue, how):
    outcome = Reject("no such user")
    message = once(open_queue(), raising(outcome) if how == "raised" else lambda message: outcome, retries=3)

    assert (message.state, message.reason, message.attempts) == ("dead", "no such user", 1)


def test_reject_without_a_reason_has_a_default_reason(open_queue):
    assert once(open_queue(), raising(Reject())).reason == "rejected"


@pytest.mark.parametrize("how", ["raised", "returned"])
def test_discard_settles_the_message_and_is_counted_separately(open_queue, how):
    outcome = Discard("the meeting is over")
    queue = open_queue()

    assert once(queue, raising(outcome) if how == "raised" else lambda message: outcome) is None
    assert queue.stats().totals["discarded"] == 1
    assert queue.stats().totals.get("acked", 0) == 0


@pytest.mark.parametrize("kind", [Retry, Reject, Discard])
def test_a_reason_of_another_type_is_shown_as_text(open_queue, kind):
    queue = open_queue(nack_delay=60)
    message = once(queue, raising(kind(KeyError("404"))))

    if kind is not Discard:
        assert "404" in message.error + message.reason
    queue.send_delay_msg("the next one", id="next")
    queue.run(burst=True)
    assert queue.get("next") is None


@pytest.mark.parametrize("retries", [0, 1, 4])
def test_message_is_delivered_once_more_than_its_retries(open_queue, retries):
    attempts = []
    queue = open_queue(
        nack_delay=0, callback=lambda message: attempts.append((message.attempt, message.retries_left)) or False
    )
    queue.send_delay_msg("hopeless", retries=retries, id="m")

    queue.run(burst=True)

    assert attempts == [(attempt, retries - attempt + 1) for attempt in range(1, retries + 2)]
    message = queue.get("m")
    assert (message.state, message.reason, message.attempts) == ("dead", "retries spent", retries + 1)
    assert message.error == "the callback returned False"


def test_by_default_a_message_has_three_retries(open_queue):
    attempts = []
    queue = open_queue(callback=lambda message: attempts.append(message.attempt) or False, nack_delay=0)
    queue.send_delay_msg("hopeless")

    queue.run(burst=True)

    assert attempts == [1, 2, 3, 4]


def test_the_last_error_goes_to_the_dead_letter(open_queue):
    queue = open_queue(nack_delay=0)

    @queue.callback
    def fail(message):
        raise ValueError(f"attempt {message.attempt}")

    queue.send_delay_msg("hopeless", retries=2, id="m")
    queue.run(burst=True)

    assert queue.get("m").error == "ValueError: attempt 3"


@pytest.mark.parametrize(
    ("backoff", "seconds"),
    [
        (2, [2, 2, 2]),
        (Backoff.constant("2s"), [2, 2, 2]),
        (Backoff.linear(2, max=5), [2, 4, 5]),
        (Backoff.exponential(2, max=7), [2, 4, 7]),
        (Backoff.exponential(2, factor=3), [2, 6, 18]),
    ],
    ids=["number", "constant", "linear", "exponential", "factor"],
)
def test_backoff_sets_the_delay_of_each_retry(open_queue, backoff, seconds):
    queue = open_queue(nack_delay=backoff, callback=lambda message: False)
    queue.send_delay_msg("hopeless", id="m")

    for expected in seconds:
        (message,) = queue.lease(n=1)
        before = queue.stats().at
        assert message.nack()
        waits = (queue.get("m").deadline - before).total_seconds()
        assert expected <= waits < expected + 0.9
        queue.reschedule("m", 0)  # no need to wait for it


def test_jitter_shortens_a_delay_by_up_to_its_share(open_queue):
    queue = open_queue(nack_delay=Backoff.constant(100, jitter=0.5))
    queue.send_many(range(50))
    messages = list(queue.lease(n=50))
    before = queue.stats().at

    for message in messages:
        message.nack()

    waits = {(queue.get(message.id).deadline - before).total_seconds() for message in messages}
    assert min(waits) >= 50
    assert max(waits) < 102
    assert max(waits) - min(waits) > 10
