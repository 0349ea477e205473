"""Outcomes refuse a reason that was meant as a delay."""

from datetime import timedelta
from functools import partial

import pytest

from delayq import ConfigurationError, Discard, RateLimited, Reject, Retry, Snooze, StopWorker
from delayq.errors import short_repr


@pytest.mark.parametrize("reason", ["5m", "1h30m", "5 M", timedelta(minutes=5)], ids=repr)
@pytest.mark.parametrize(
    ("make", "instead"),
    [
        (Retry, "write Retry('why', delay={0})"),
        (partial(Snooze, "1h"), "write Snooze(delay, 'why')"),
        (partial(RateLimited, "1h"), "write RateLimited(delay, 'why')"),
        (Reject, "Reject has no delay: write Reject('why'), or Snooze({0}) to"),
        (Discard, "Discard has no delay: write Discard('why'), or Snooze({0}) to"),
        (StopWorker, "StopWorker has no delay: write StopWorker('why'), or Snooze({0}) to"),
    ],
)
def test_a_reason_that_is_a_duration_is_refused_where_the_outcome_is_made(make, instead, reason):
    with pytest.raises(ConfigurationError, match="must be a text that says why") as refused:
        make(reason)
    assert instead.format(short_repr(reason)) in str(refused.value)


@pytest.mark.parametrize("reason", ["", "5 of 7 recipients", "404", "5m late", "no"])
@pytest.mark.parametrize(
    "make", [Retry, partial(Snooze, "1h"), partial(RateLimited, "1h"), Reject, Discard, StopWorker]
)
def test_a_reason_may_contain_numbers(make, reason):
    assert make(reason).reason == reason
