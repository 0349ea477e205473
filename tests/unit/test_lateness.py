"""Objectives for lateness: what can be one, and how it was kept."""

from __future__ import annotations

import pytest

from delayq import ConfigurationError, LatenessCounts
from delayq.options import read_settings
from delayq.queue.inspecting.lateness_report import slo_report, slo_text
from delayq.values.lateness import LATENESS_BOUNDS, check_slo, read_slo


@pytest.mark.parametrize(
    ("text", "share", "within"),
    [
        ("99% within 1s", 0.99, 1000),
        ("99.9 % within 500ms", 0.999, 500),
        ("50% within 1h", 0.5, 3_600_000),
        ("99.9999% within 60s", 0.999999, 60_000),
    ],
)
def test_an_objective_is_a_share_and_a_time(text, share, within):
    found = read_slo(text)
    assert found.share == pytest.approx(share)
    assert found.within == within
    assert read_settings({"lateness_slo": text}).lateness_slo == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("120% within 1s", "above 0% and below 100%"),
        ("100% within 1s", "above 0% and below 100%"),
        ("0% within 1s", "above 0% and below 100%"),
        ("-1% within 1s", "must look like '99% within 1s'"),
        ("99 within 1s", "must look like '99% within 1s'"),
        ("99%", "must look like '99% within 1s'"),
        ("", "must look like '99% within 1s'"),
        (99, "must look like '99% within 1s'"),
        (b"99% within 1s", "must look like '99% within 1s'"),
        ("99% within soon", "must be|lateness_slo"),
        ("99% within 7s", "within 1ms, 5ms, 10ms, 50ms, 100ms, 500ms, 1s, 5s, 10s, 30s, 1m, 5m or 1h, as lateness is"),
        ("99% within 0s", "within 1ms, 5ms"),
    ],
)
def test_what_is_no_objective_is_an_error(text, problem):
    with pytest.raises(ConfigurationError, match=problem):
        read_settings({"lateness_slo": text})


def test_it_can_be_off_or_left_as_it_is():
    assert check_slo("off") == "off"
    assert check_slo(None) is None
    assert read_settings({}).lateness_slo is None


def counts(**late):
    numbers = [0] * (len(LATENESS_BOUNDS) + 1)
    for place, number in late.items():
        numbers[int(place[1:])] = number
    return LatenessCounts(tuple(numbers))


@pytest.mark.parametrize(
    ("lateness", "late", "kept", "left", "text"),
    [
        (counts(), 0, None, 1.0, "99% within 1s: workers have counted no start in 30 days"),
        (
            counts(_0=9000, _6=1000),
            0,
            1.0,
            1.0,
            "99% within 1s: 100% of 10,000 messages in 30 days; 100% of the error budget left",
        ),
        (
            counts(_6=9975, _7=24, _13=1),
            25,
            0.9975,
            0.75,
            "99% within 1s: 99.75% of 10,000 messages in 30 days; 75% of the error budget left",
        ),
        (
            counts(_6=99, _7=1),
            1,
            0.99,
            0.0,
            "99% within 1s: 99% of 100 messages in 30 days; 0% of the error budget left",
        ),
        (
            counts(_6=95, _7=5),
            5,
            0.95,
            -4.0,
            "99% within 1s: missed, 95% of 100 messages in 30 days; 5 times the error budget is spent",
        ),
    ],
)
def test_the_error_budget_is_what_may_be_late(lateness, late, kept, left, text):
    found = slo_report("99% within 1s", lateness)
    assert (found.counted, found.late, found.missed) == (lateness.total, late, left < 0)
    assert found.kept == (None if kept is None else pytest.approx(kept))
    assert found.budget_left == pytest.approx(left)
    assert slo_text(found) == text


def test_nearly_all_is_not_all():
    report = slo_report("99% within 1s", counts(_0=10_000_000, _13=1))
    assert "99.9999% of" in slo_text(report)


@pytest.mark.parametrize("stored", ["", "much", "120% within 1s", "99% within 7s"])
def test_an_objective_that_another_program_has_stored_is_none(stored):
    assert slo_report(stored, counts()) is None
