"""How the result or exception of a callback settles its message."""

import asyncio
import logging
from datetime import timedelta
from functools import partial

import pytest

from delayq import Backoff, Discard, Reject, Retry, Snooze, StopWorker
from delayq.broker.message.attributes import NONE, Attributes
from delayq.broker.replies import ClaimedMessage
from delayq.values.backoff import FailurePolicy
from delayq.worker.delivery import disposition as judging
from delayq.worker.delivery.attempt_log import log_completions
from delayq.worker.delivery.disposition import Completion, Disposition, describe
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery

POLICY = FailurePolicy.of(Backoff.linear(60), None, 10)
disposition_of = partial(judging.disposition_of, policy=POLICY)
dispositions_of = partial(judging.dispositions_of, policy=POLICY)


def delivery(*, settled=False, timed_out=False, by_hand="", attributes=b""):
    claimed = ClaimedMessage("m1", 7, b"1", 3, 0, 2, b"", attributes)
    held = InFlightDelivery(claimed, 0.0, 0, 30.0, Attributes.of(attributes))
    held.settled, held.timed_out, held.by_hand = settled, timed_out, by_hand
    return [held]


@pytest.mark.parametrize("result", [None, True, 0, "", [], {}, 0.0, "no", NotImplemented], ids=repr)
def test_any_result_but_false_acknowledges(result):
    assert disposition_of(delivery(), result, None) == (Disposition.ACK, "", None)


async def coroutine():
    pass


def generator():
    yield


async def async_generator():
    yield


@pytest.mark.parametrize("function", [coroutine, generator, async_generator])
def test_returned_coroutine_or_generator_is_a_failure(function):
    disposition, text, _ = disposition_of(delivery(), function(), None)
    assert disposition is Disposition.NACK
    assert "which is never run" in text


def test_false_retries_without_an_error(caplog):
    assert disposition_of(delivery(), False, None) == (Disposition.NACK, "the callback returned False", None)
    assert not caplog.records


@pytest.mark.parametrize(
    "error",
    [
        ValueError("boom"),
        SystemExit(1),
        KeyboardInterrupt("boom"),
        MemoryError("boom"),
        RecursionError("boom"),
        asyncio.CancelledError("boom"),
        GeneratorExit("boom"),
        StopIteration("boom"),
        BaseExceptionGroup("boom", [KeyboardInterrupt()]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_exception_retries_and_is_logged_once_with_its_traceback(error, caplog):
    judged = Completion(delivery(), *disposition_of(delivery(), None, error))
    assert judged.disposition is Disposition.NACK
    assert judged.text.startswith(f"{type(error).__name__}: ")
    assert [one.delay for one in log_completions([judged], error, POLICY, "jobs")] == [120_000]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.exc_info[1] is error
    assert (record.id, record.attempt) == ("m1", 2)


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError("no")


def test_exception_without_a_text_is_named_by_its_class():
    assert describe(MuteError()) == "MuteError"
    assert disposition_of(delivery(), None, MuteError())[0] is Disposition.NACK


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Retry(), (Disposition.NACK, "retry", None)),
        (Retry("rate limited", delay="5m"), (Disposition.NACK, "rate limited", 300_000)),
        (Retry(delay=0), (Disposition.NACK, "retry", 0)),
        (Retry(delay=timedelta(seconds=2)), (Disposition.NACK, "retry", 2000)),
        (Snooze("5m"), (Disposition.SNOOZE, "", 300_000)),
        (Snooze(0, "full"), (Disposition.SNOOZE, "", 0)),
        (StopWorker("no password"), (Disposition.STOP, "", None)),
        (Reject("no such user"), (Disposition.REJECT, "no such user", None)),
        (Reject(), (Disposition.REJECT, "rejected", None)),
        (Discard("over"), (Disposition.DISCARD, "over", None)),
        (Discard(), (Disposition.DISCARD, "", None)),
    ],
    ids=repr,
)
def test_outcome_can_be_raised_or_returned(outcome, expected):
    assert disposition_of(delivery(), None, outcome) == expected
    assert disposition_of(delivery(), outcome, None) == expected


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), True, "soon", 10**18, 10**5000, object()], ids=type)
@pytest.mark.parametrize("kind", [Retry, Snooze])
def test_a_delay_that_was_made_invalid_uses_the_default(kind, delay):
    outcome = kind(reason="later", delay=1)
    outcome.delay = delay  # as a subclass may
    disposition, text, wait = disposition_of(delivery(), None, outcome)
    assert (disposition, wait) == (Disposition.NACK, None)
    assert "delay" in text


class Broken:
    def __repr__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize("reason", [5, {"a": 1}, b"bytes", ValueError("x"), Broken(), 10**5000, ["x" * 100]], ids=type)
@pytest.mark.parametrize("kind", [Retry, Reject, Discard])
def test_non_text_reason_is_converted(kind, reason):
    outcome = kind(reason)
    _, text, _ = disposition_of(delivery(), None, outcome)
    assert isinstance(text, str)
    assert 0 < len(text) <= 60


@pytest.mark.parametrize("reason", ["", None, 0], ids=repr)
def test_missing_reason_has_a_default(reason):
    assert disposition_of(delivery(), None, Reject(reason))[0] is Disposition.REJECT


class NoSuchUser(Reject):
    """An outcome that does not call the constructor of its base class."""

    def __init__(self, user):
        self.user = user


class Later(Retry):
    def __init__(self):
        pass


def test_outcome_without_base_constructor_works():
    assert disposition_of(delivery(), None, NoSuchUser(5)) == (Disposition.REJECT, "rejected", None)
    assert disposition_of(delivery(), None, Later()) == (Disposition.NACK, "retry", None)


@pytest.mark.parametrize(
    ("result", "error"),
    [(None, None), (False, None), (None, Retry()), (None, Reject("x")), (Discard(), None)],
    ids=repr,
)
def test_message_settled_by_hand_stays_settled(result, error, caplog):
    assert disposition_of(delivery(settled=True), result, error) == (Disposition.NOTHING, "", None)
    assert not caplog.records


def test_an_exception_after_settling_by_hand_changes_nothing_but_is_logged(caplog):
    error = ValueError("boom")
    assert disposition_of(delivery(settled=True), None, error) == (Disposition.NOTHING, "", None)
    (record,) = caplog.records
    assert record.exc_info[1] is error


def no_coroutine():
    yield


NACK_SENT = pytest.mark.parametrize("nack_sent", [True, False], ids=["nack is sent", "nack is answered"])


@NACK_SENT
@pytest.mark.parametrize("result", [None, "done", Discard("gone")], ids=["nothing", "a result", "discard"])
def test_success_after_the_timeout_counts(result, nack_sent):
    """Whether the reply to the nack is there or not."""
    ended = delivery(settled=nack_sent, timed_out=True)
    expected = Disposition.DISCARD if isinstance(result, Discard) else Disposition.ACK
    assert disposition_of(ended, result, None)[0] is expected


@NACK_SENT
@pytest.mark.parametrize(
    ("result", "error"),
    [(outcome, None) for outcome in (False, Retry(), Reject("x"), Snooze("1m"), StopWorker())]
    + [(None, error) for error in (Retry(), Reject("x"), Snooze("1m"), StopWorker(), asyncio.CancelledError())],
    ids=repr,
)
def test_whatever_is_no_success_decides_nothing_after_the_timeout(result, error, nack_sent, caplog):
    ended = delivery(settled=nack_sent, timed_out=True)
    assert disposition_of(ended, result, error) == (Disposition.NOTHING, "", None)
    assert not caplog.records


@NACK_SENT
@pytest.mark.parametrize(
    ("result", "error"), [(None, ValueError("boom")), (no_coroutine(), None)], ids=["raised", "not run"]
)
def test_error_after_the_timeout_decides_nothing_but_is_logged_as_such(result, error, nack_sent, caplog):
    ended = delivery(settled=nack_sent, timed_out=True)
    assert disposition_of(ended, result, error) == (Disposition.NOTHING, "", None)
    assert "message m1 failed at attempt 2 after its timeout" in caplog.text


def test_success_after_the_timeout_that_was_acked_by_hand_is_not_acked_again():
    ended = delivery(settled=True, timed_out=True, by_hand="ack")
    assert disposition_of(ended, "done", None) == (Disposition.NOTHING, "", None)


def test_cancelled_callback_is_not_logged(caplog):
    assert disposition_of(delivery(settled=True), None, asyncio.CancelledError())[0] is Disposition.NOTHING
    assert not caplog.records


# Batches


def batch(n=3, *, settled=()):
    claimed = [ClaimedMessage(f"m{at}", 7, b"1", 3, 0, 2, b"") for at in range(n)]
    deliveries = [InFlightDelivery(one, 0.0, 0, 30.0, NONE) for one in claimed]
    for at in settled:
        deliveries[at].settled = True
    return deliveries


def test_a_callback_that_returns_nothing_acknowledges_all():
    held = batch()
    assert dispositions_of(held, None, None, 0.5) == [Completion(held, Disposition.ACK, "", None, 0.5)]


@pytest.mark.parametrize("result", [True, "text", (), {}, (False, False, False)], ids=repr)
def test_non_list_result_applies_to_the_whole_batch(result):
    held = batch()
    assert dispositions_of(held, result, None, 0.5) == [Completion(held, Disposition.ACK, "", None, 0.5)]


def test_an_exception_of_a_batch_is_logged_for_each_message_with_one_traceback_a_level(caplog):
    held, error = batch(), ValueError("boom")
    held[2].claimed.retries_left = 0
    judged = dispositions_of(held, None, error, 0.5)
    assert judged == [Completion(held, Disposition.NACK, "ValueError: boom", None, 0.5)]
    told = log_completions(judged, error, POLICY, "jobs")
    assert [(one.deliveries, one.delay, one.took) for one in told] == [
        *(([held[0]], 120_000, 0.5), ([held[1]], 120_000, None), ([held[2]], None, None))
    ]
    levels = [logging.WARNING, logging.WARNING, logging.ERROR]
    assert [(record.id, record.levelno) for record in caplog.records] == [*zip(("m0", "m1", "m2"), levels, strict=True)]
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, True]


def test_list_has_an_entry_for_each_and_one_time(caplog):
    held = batch(5)
    results = [None, False, Retry("busy", delay=1), Reject("no"), KeyError("k")]
    judged = dispositions_of(held, results, None, 0.5)
    assert judged == [
        Completion([held[0]], Disposition.ACK, "", None, 0.5),
        Completion([held[1]], Disposition.NACK, "the callback returned False"),
        Completion([held[2]], Disposition.NACK, "busy", 1000),
        Completion([held[3]], Disposition.REJECT, "no"),
        Completion([held[4]], Disposition.NACK, "KeyError: 'k'"),
    ]
    log_completions(judged, results, POLICY, "jobs")
    assert [(record.id, record.levelno) for record in caplog.records] == [
        *(("m1", logging.WARNING), ("m2", logging.WARNING), ("m3", logging.ERROR), ("m4", logging.WARNING))
    ]
    assert [bool(record.exc_info) for record in caplog.records] == [False, False, False, True]


@pytest.mark.parametrize("result", [[], [None] * 2, [None] * 4], ids=len)
def test_list_of_wrong_length_fails_the_whole_batch(result):
    held = batch()
    ((deliveries, disposition, text, delay, took),) = dispositions_of(held, result, None, 0.5)
    assert (deliveries, disposition, delay, took) == (held, Disposition.NACK, None, 0.5)
    assert text.startswith(f"TypeError: the batch callback returned a list of {len(result)} results for 3 messages")


@pytest.mark.parametrize("function", [coroutine, generator, async_generator])
def test_coroutine_returned_by_a_batch_callback_is_a_failure(function):
    ((_, disposition, text, _, _),) = dispositions_of(batch(), function(), None, 0.5)
    assert disposition is Disposition.NACK
    assert "which is never run" in text


def test_partly_settled_batch_applies_to_the_rest():
    held = batch(settled=[1])
    assert dispositions_of(held, False, None, 0.5)[0].disposition is Disposition.NACK
    assert [one.disposition for one in dispositions_of(held, [False] * 3, None, 0.5)] == [
        *(Disposition.NACK, Disposition.NOTHING, Disposition.NACK)
    ]


def test_settled_batch_stays_settled_and_its_failure_is_logged(caplog):
    held = batch(settled=range(3))
    assert dispositions_of(held, None, ValueError("boom"), 0.5) == [
        Completion(held, Disposition.NOTHING, "", None, 0.5)
    ]
    assert caplog.records[0].getMessage() == "batch of 3 messages failed after it was settled"


def test_a_snooze_too_many_is_a_failure():
    last, over = delivery(attributes=b"snoozes=9"), delivery(attributes=b"name=n snoozes=10")
    text = "snoozed 10 times, as often as max_snoozes allows"
    assert disposition_of(last, None, Snooze(5)) == (Disposition.SNOOZE, "", 5000)
    assert disposition_of(over, None, Snooze(5)) == (Disposition.NACK, text, None)
    unlimited = FailurePolicy.of(60, None, 0)
    assert judging.disposition_of(over, None, Snooze(5), unlimited) == (Disposition.SNOOZE, "", 5000)
    assert disposition_of(over, None, StopWorker("no")) == (Disposition.STOP, "", None)


def test_what_is_no_failure_is_snoozed_by_the_backoff(caplog):
    policy = FailurePolicy.of(Backoff.linear(60), lambda error: not isinstance(error, TimeoutError), 10)
    for attributes, minutes in ((b"", 1), (b"snoozes=4", 5)):
        late = TimeoutError("later")
        judged = judging.disposition_of(delivery(attributes=attributes), None, late, policy)
        assert judged == (Disposition.SNOOZE, "", 60_000 * minutes)
        log_completions([Completion(delivery(), *judged)], late, policy, "jobs")
    assert "jobs: message m1 met what is no failure at attempt 2, and is tried again in 1m" in caplog.text
    assert "TimeoutError: later" in caplog.text
    assert judging.disposition_of(delivery(), None, KeyError("k"), policy)[:2] == (Disposition.NACK, "KeyError: 'k'")
    assert judging.disposition_of(delivery(), False, None, policy)[0] is Disposition.NACK
    over = delivery(attributes=b"snoozes=10")
    assert judging.disposition_of(over, None, TimeoutError("x"), policy)[:2] == (Disposition.NACK, "TimeoutError: x")
    assert judging.disposition_of(delivery(), None, SystemExit(3), policy)[0] is Disposition.NACK


def test_a_function_that_fails_to_tell_makes_it_a_failure(caplog):
    def broken(error):
        raise ValueError("it is broken")

    policy = FailurePolicy.of(60, broken, 10)
    assert judging.disposition_of(delivery(), None, KeyError("k"), policy)[:2] == (Disposition.NACK, "KeyError: 'k'")
    assert "is_failure failed, so the exception counts as a failure" in caplog.text
    assert "it is broken" in caplog.text


def test_of_a_batch_only_those_that_were_snoozed_too_often_fail():
    (fresh,), (over,) = delivery(), delivery(attributes=b"snoozes=10")
    text = "snoozed 10 times, as often as max_snoozes allows"
    assert dispositions_of([over, fresh], None, Snooze(5), 0.5) == [
        Completion([fresh], Disposition.SNOOZE, "", 5000, 0.5),
        Completion([over], Disposition.NACK, text, None, 0.5),
    ]
    assert dispositions_of([over, fresh], None, None, 0.5)[0].disposition is Disposition.ACK
