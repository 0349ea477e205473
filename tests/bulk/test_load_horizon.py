"""The horizon of a load, by the clock of the server."""

from datetime import UTC, datetime, timedelta

import pytest

from delayq.bulk.connection import TargetQueue
from delayq.bulk.load_run import horizon as horizon_of
from delayq.errors import ConfigurationError

NOON = datetime(2100, 1, 31, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def ms(at):
    return round(at.timestamp() * 1000)


@pytest.fixture
def horizon(redis_url):
    return lambda start=None, until=None: horizon_of(TargetQueue("q", redis_url), start, until)


def test_start_and_end_are_optional(horizon):
    assert horizon() == (None, None)
    assert horizon(NOON) == (ms(NOON), None)
    assert horizon(until=NOON) == (None, ms(NOON))


def test_now_is_the_time_of_the_server_clock(horizon, redis_client):
    def time():
        seconds, micros = redis_client.time()
        return seconds * 1000 + micros // 1000

    before = time()
    first, last = horizon("now", "+1d")
    assert before <= first <= time()
    assert last == first + 86_400_000
    assert horizon("-90m")[0] <= time() - 5_400_000


@pytest.mark.parametrize("start", [NOON, "2100-01-31T12:00:00Z", "2100-01-31T13:00:00+01:00"])
def test_relative_end_counts_from_the_start(horizon, start):
    assert horizon(start, "+1h") == (ms(NOON), ms(NOON + HOUR))
    assert horizon(start, NOON + HOUR) == (ms(NOON), ms(NOON + HOUR))


@pytest.mark.parametrize(
    ("start", "until", "message"),
    [
        ("tomorrow", None, "start must be 'now', '+1d', '-2h' or a time such as 2026-01-31T09:00:00+00:00"),
        (None, "2100-01-31T12:00:00", "until must carry a time zone"),
        (NOON.replace(tzinfo=None), None, "start must carry a time zone"),
        (None, "+1 day", "until must look like '1h30m'"),
        (None, 5, "until must be a datetime"),
        (NOON, NOON, "must be after start"),
        (NOON, "-1s", "until '-1s' must be after start"),
    ],
)
def test_invalid_time_is_refused(horizon, start, until, message):
    with pytest.raises(ConfigurationError) as refused:
        horizon(start, until)
    assert message in str(refused.value)
