"""A wrong value is an error of its own class, for handlers that answer 400; a wrong option is a fault of the code."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delayq import ConfigurationError, DelayQueue, InvalidValueError, Schedule

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VALUES: list[dict[str, Any]] = [
    {"delay": "soon"},
    {"delay": -1},
    {"delay": "200000d"},
    {"delay": float("nan")},
    {"at": datetime(2030, 1, 1)},  # noqa: DTZ001 - a naive time is what is refused
    {"at": "tomorrow"},
    {"at": datetime(2500, 1, 1, tzinfo=UTC)},
    {"retries": -1},
    {"retries": "many"},
    {"id": ""},
    {"id": "with space"},
    {"id": 7},
    {"headers": {"a": 1}},
    {"headers": {"a": "x" * 20_000}},
    {"name": "with space"},
    {"priority": 101},
    {"at": NOW, "expires": NOW - timedelta(days=1)},
    {"timeout": "0s"},
    {"jitter": "x"},
    {"retention": "x"},
]
OPTIONS: list[dict[str, Any]] = [
    {"countdown": 5},
    {"delay": 1, "at": NOW},
    {"at_most": "1h"},
    {"missed": "drop"},
    {"unique": "payload", "id": "a"},
]


@pytest.fixture
def plain(url):
    with DelayQueue("plain", url=url) as queue:
        yield queue


@pytest.mark.parametrize("options", VALUES)
def test_wrong_value_is_an_invalid_value(plain, options):
    with pytest.raises(InvalidValueError):
        plain.send("x", **options)
    assert plain.counts().living == 0


@pytest.mark.parametrize("options", OPTIONS)
def test_wrong_option_is_no_invalid_value(plain, options):
    with pytest.raises(ConfigurationError) as raised:
        plain.send("x", **options)
    assert not isinstance(raised.value, InvalidValueError)
    assert plain.counts().living == 0


@pytest.mark.parametrize(
    "options",
    [{"cron": "61 * * * *"}, {"cron": "0 9 * * *", "tz": "Mars/Base"}, {"every": "0s"}, {"rrule": "FREQ=SOMETIMES"}],
)
def test_wrong_value_of_a_schedule_is_an_invalid_value(plain, options):
    with pytest.raises(InvalidValueError):
        plain.schedules.add(Schedule("daily", payload="x", **options))
    assert plain.schedules.list() == []
