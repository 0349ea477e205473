"""Backoff: how long a failed message waits before it is retried."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq import Backoff, ConfigurationError
from delayq.values.backoff import FailurePolicy
from delayq.values.checks import MAX_RETRIES
from delayq.values.times import HORIZON

HOUR = 3_600_000


def delays(backoff, attempts=range(1, 6)):
    return [backoff.delay(attempt) for attempt in attempts]


def test_constant_is_the_same_every_time():
    assert delays(Backoff.constant("2s")) == [2000] * 5


def test_linear_grows_by_its_step_up_to_its_max():
    assert delays(Backoff.linear(2, max=7)) == [2000, 4000, 6000, 7000, 7000]


def test_exponential_doubles_up_to_an_hour():
    assert delays(Backoff.exponential()) == [1000, 2000, 4000, 8000, 16_000]
    assert Backoff.exponential().delay(100) == HOUR


def test_exponential_uses_its_first_delay_factor_and_max():
    assert delays(Backoff.exponential("100ms", factor=10, max="5m")) == [100, 1000, 10_000, 100_000, 300_000]
    assert delays(Backoff.exponential(2, factor=1)) == [2000] * 5


@pytest.mark.parametrize("factor", [1, 1.0, 2, 2.0, 100, 1.0000001])
@pytest.mark.parametrize("first", [0, 0.001, 1, 3600])
def test_delay_stays_in_range_for_any_attempt(first, factor):
    for attempt in (1, 2, 1025, 10_000, MAX_RETRIES + 1):
        delay = Backoff.exponential(first, factor=factor).delay(attempt)
        assert 0 <= delay <= HOUR
        assert (delay == 0) is (first == 0)


def test_linear_without_a_max_ends_at_the_horizon():
    assert Backoff.linear("365d").delay(MAX_RETRIES) == HORIZON


@pytest.mark.parametrize("jitter", [0.0, 0.25, 1.0, 1])
def test_jitter_shortens_a_delay_by_up_to_its_share(jitter):
    backoff = Backoff.constant(10, jitter=jitter)
    drawn = [backoff.delay(1) for _ in range(2000)]
    assert min(drawn) >= 10_000 * (1 - jitter)
    assert max(drawn) <= 10_000
    if jitter:
        assert len(set(drawn)) > 500
        assert min(drawn) < 10_000 * (1 - 0.9 * jitter)
        assert max(drawn) > 10_000 * (1 - 0.1 * jitter)


@given(st.sampled_from([Backoff.constant, Backoff.linear, Backoff.exponential]), st.integers(1, MAX_RETRIES + 1))
def test_a_delay_is_a_whole_number_of_milliseconds_within_the_horizon(kind, attempt):
    delay = kind(random.random() * 1000, jitter=random.random()).delay(attempt)
    assert type(delay) is int
    assert 0 <= delay <= HORIZON


@given(st.floats(0, 1000), st.floats(1, 100), st.integers(1, 2000))
def test_without_jitter_a_later_attempt_never_waits_less(first, factor, attempt):
    backoff = Backoff.exponential(first, factor=factor)
    assert backoff.delay(attempt) <= backoff.delay(attempt + 1)


WRONG_NUMBERS = [math.nan, math.inf, -math.inf, -0.1, True, "1", None, 10**400, 1j]


@pytest.mark.table("jitter", [*WRONG_NUMBERS, 1.01], ids=lambda value: type(value).__name__)
def test_jitter_out_of_range_is_refused(jitter):
    for make in (Backoff.constant, Backoff.linear, Backoff.exponential):
        with pytest.raises(ConfigurationError, match="jitter must be between 0 and 1"):
            make(1, jitter=jitter)


@pytest.mark.table("factor", [*WRONG_NUMBERS, 0, 0.99, 100.01], ids=lambda value: type(value).__name__)
def test_factor_out_of_range_is_refused(factor):
    with pytest.raises(ConfigurationError, match="factor must be between 1 and 100"):
        Backoff.exponential(1, factor=factor)


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, True, None, "soon", 10**18])
def test_invalid_delay_is_refused(delay):
    for make in (
        lambda: Backoff.constant(delay),
        lambda: Backoff.linear(delay),
        lambda: Backoff.linear(1, max=delay),
        lambda: Backoff.exponential(delay),
        lambda: Backoff.exponential(1, max=delay),
    ):
        with pytest.raises(ConfigurationError):
            make()


def test_backoffs_are_immutable_values():
    assert Backoff.exponential(1, max=60) == Backoff.exponential("1s", max="1m")
    with pytest.raises(AttributeError):
        Backoff.constant(1).base = 5


@pytest.mark.parametrize(("delay", "wait"), [(0, 50), (50, 50), (51, 51), (None, 2000), (1000, 1000)])
def test_a_message_waits_as_its_callback_says_or_as_the_backoff_and_at_least_50_ms(delay, wait):
    policy = FailurePolicy.of(Backoff.linear(1), None, 0)
    assert policy.wait(2, delay) == wait
    assert FailurePolicy.of(0, None, 0).wait(1) == 50
