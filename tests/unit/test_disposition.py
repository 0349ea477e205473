"""What a callback's result or exception says is to become of its message."""

import asyncio
import logging
from datetime import timedelta

import pytest

from delayq import Discard, Reject, Retry
from delayq.answers import Delivery
from delayq.message import Holding
from delayq.verdict import Completion, Verdict, acknowledged, describe, judge, judge_batch


def holding(*, settled=False):
    held = Holding(Delivery("m1", 7, b"1", 3, 0, 2, b""), claimed=0.0, server_now=0, deadline=30.0)
    held.settled = settled
    return [held]


@pytest.mark.parametrize("result", [None, True, 0, "", [], {}, 0.0, "no", NotImplemented], ids=repr)
def test_any_result_but_false_acknowledges(result):
    assert judge(holding(), result, None) == (Verdict.ACK, "", None)


async def coroutine():
    pass


def generator():
    yield


async def async_generator():
    yield


@pytest.mark.parametrize("function", [coroutine, generator, async_generator])
def test_what_was_returned_without_having_been_run_is_no_success(function, caplog):
    verdict, text, _ = judge(holding(), function(), None)
    assert verdict is Verdict.NACK
    assert "which nothing runs" in text
    assert len(caplog.records) == 1


def test_false_takes_a_retry_and_is_no_error(caplog):
    assert judge(holding(), False, None) == (Verdict.NACK, "the callback returned False", None)
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
def test_any_exception_takes_a_retry_and_is_logged_once_with_its_traceback(error, caplog):
    verdict, text, delay = judge(holding(), None, error)
    assert verdict is Verdict.NACK
    assert text.startswith(f"{type(error).__name__}: ")
    assert delay is None
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info[1] is error
    assert (record.id, record.attempt) == ("m1", 2)


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError("no")


def test_an_exception_without_a_text_is_called_by_its_class():
    assert describe(MuteError()) == "MuteError"
    assert judge(holding(), None, MuteError())[0] is Verdict.NACK


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Retry(), (Verdict.NACK, "retry", None)),
        (Retry("rate limited", delay="5m"), (Verdict.NACK, "rate limited", 300_000)),
        (Retry(delay=0), (Verdict.NACK, "retry", 0)),
        (Retry(delay=timedelta(seconds=2)), (Verdict.NACK, "retry", 2000)),
        (Reject("no such user"), (Verdict.REJECT, "no such user", None)),
        (Reject(), (Verdict.REJECT, "rejected", None)),
        (Discard("over"), (Verdict.DISCARD, "over", None)),
        (Discard(), (Verdict.DISCARD, "", None)),
    ],
    ids=repr,
)
def test_an_outcome_says_it_whether_raised_or_returned(outcome, expected, caplog):
    assert judge(holding(), None, outcome) == expected
    assert judge(holding(), outcome, None) == expected
    assert not caplog.records


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), True, "soon", 10**18, 10**5000, object()], ids=type)
def test_a_retry_with_a_wrong_delay_is_retried_as_usual_and_says_so(delay, caplog):
    verdict, text, wait = judge(holding(), None, Retry("later", delay=delay))
    assert (verdict, wait) == (Verdict.NACK, None)
    assert "delay" in text
    assert caplog.records[0].levelno == logging.ERROR


class Broken:
    def __repr__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize("reason", [5, {"a": 1}, b"bytes", ValueError("x"), Broken(), 10**5000, ["x" * 100]], ids=type)
@pytest.mark.parametrize("kind", [Retry, Reject, Discard])
def test_a_reason_that_is_no_text_is_shown_as_one(kind, reason):
    outcome = kind(reason)
    _, text, _ = judge(holding(), None, outcome)
    assert isinstance(text, str)
    assert 0 < len(text) <= 60


@pytest.mark.parametrize("reason", ["", None, 0], ids=repr)
def test_a_reason_that_is_missing_is_supplied(reason):
    assert judge(holding(), None, Reject(reason))[0] is Verdict.REJECT


class NoSuchUser(Reject):
    """An outcome whose author did not think of the base's constructor."""

    def __init__(self, user):
        self.user = user


class Later(Retry):
    def __init__(self):
        pass


def test_an_outcome_that_skips_the_constructor_of_its_base_is_one_nevertheless():
    assert judge(holding(), None, NoSuchUser(5)) == (Verdict.REJECT, "rejected", None)
    assert judge(holding(), None, Later()) == (Verdict.NACK, "retry", None)


@pytest.mark.parametrize(
    ("result", "error"),
    [(None, None), (False, None), (None, Retry()), (None, Reject("x")), (Discard(), None)],
    ids=repr,
)
def test_what_was_settled_by_hand_stays_as_it_was_settled(result, error, caplog):
    assert judge(holding(settled=True), result, error) == (Verdict.NOTHING, "", None)
    assert not caplog.records


def test_an_exception_after_settling_by_hand_changes_nothing_but_is_logged(caplog):
    error = ValueError("boom")
    assert judge(holding(settled=True), None, error) == (Verdict.NOTHING, "", None)
    (record,) = caplog.records
    assert record.exc_info[1] is error


def test_the_end_of_a_callback_that_was_cut_off_is_not_logged(caplog):
    assert judge(holding(settled=True), None, asyncio.CancelledError())[0] is Verdict.NOTHING
    assert not caplog.records


# Batches


def batch(n=3, *, settled=()):
    holdings = [Holding(Delivery(f"m{at}", 7, b"1", 3, 0, 2, b""), 0.0, 0, 30.0) for at in range(n)]
    for at in settled:
        holdings[at].settled = True
    return holdings


def test_a_callback_that_returns_nothing_acknowledges_all():
    held = batch()
    assert acknowledged(held, 0.5) == Completion(held, Verdict.ACK, "", None, 0.5)
    assert judge_batch(held, None, None, 0.5) == [acknowledged(held, 0.5)]


@pytest.mark.parametrize("result", [True, "text", (), {}, (False, False, False)], ids=repr)
def test_anything_that_is_no_list_is_about_all(result):
    held = batch()
    assert judge_batch(held, result, None, 0.5) == [acknowledged(held, 0.5)]


def test_an_exception_of_a_batch_is_logged_once_with_the_ids(caplog):
    held, error = batch(), ValueError("boom")
    assert judge_batch(held, None, error, 0.5) == [Completion(held, Verdict.NACK, "ValueError: boom", None, 0.5)]
    (record,) = caplog.records
    assert record.getMessage() == "batch of 3 messages failed"
    assert record.ids == ["m0", "m1", "m2"]
    assert record.exc_info[1] is error


def test_a_list_has_an_entry_for_each_and_the_time_is_told_once(caplog):
    held = batch(5)
    judged = judge_batch(held, [None, False, Retry("busy", delay=1), Reject("no"), KeyError("k")], None, 0.5)
    assert judged == [
        Completion([held[0]], Verdict.ACK, "", None, 0.5),
        Completion([held[1]], Verdict.NACK, "the callback returned False"),
        Completion([held[2]], Verdict.NACK, "busy", 1000),
        Completion([held[3]], Verdict.REJECT, "no"),
        Completion([held[4]], Verdict.NACK, "KeyError: 'k'"),
    ]
    (record,) = caplog.records
    assert (record.id, record.attempt) == ("m4", 2)


@pytest.mark.parametrize("result", [[], [None] * 2, [None] * 4], ids=len)
def test_a_list_that_is_too_short_or_too_long_is_a_failure_of_all(result, caplog):
    held = batch()
    ((holdings, verdict, text, delay, took),) = judge_batch(held, result, None, 0.5)
    assert (holdings, verdict, delay, took) == (held, Verdict.NACK, None, 0.5)
    assert text.startswith(f"TypeError: the batch callback returned a list of {len(result)} for 3 messages")
    assert len(caplog.records) == 1


@pytest.mark.parametrize("function", [coroutine, generator, async_generator])
def test_what_a_batch_callback_returned_without_having_been_run_is_no_success(function):
    ((_, verdict, text, _, _),) = judge_batch(batch(), function(), None, 0.5)
    assert verdict is Verdict.NACK
    assert "which nothing runs" in text


def test_a_batch_that_was_settled_by_hand_in_part_is_judged_for_the_rest():
    held = batch(settled=[1])
    assert judge_batch(held, False, None, 0.5)[0].verdict is Verdict.NACK
    assert [one.verdict for one in judge_batch(held, [False] * 3, None, 0.5)] == [
        *(Verdict.NACK, Verdict.NOTHING, Verdict.NACK)
    ]


def test_a_batch_that_was_settled_by_hand_as_a_whole_stays_so_and_its_failure_is_logged(caplog):
    held = batch(settled=range(3))
    assert judge_batch(held, None, ValueError("boom"), 0.5) == [Completion(held, Verdict.NOTHING, "", None, 0.5)]
    assert caplog.records[0].getMessage() == "batch of 3 messages failed after it was settled"
