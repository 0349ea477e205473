"""The forecast: what fires in each minute, hour or day, before it is a message or while it waits."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from delayq import ConfigurationError, NewMessage
from delayq.values.states import State
from tests.behaviour.places import everywhere
from tests.support.schedules import DAY, HOUR, START

MINUTE = timedelta(minutes=1)
BEFORE = datetime(2026, 10, 23, 9, 47, 12, 345_000, tzinfo=UTC)
"""Two days before the clocks change in Berlin, and nine before they do in New York."""
BERLIN, NEW_YORK, KOLKATA = (ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Asia/Kolkata"))


def totals(forecast) -> list[int]:
    return [bucket.total for bucket in forecast.buckets]


# Plain counts


def start_of(at: datetime, unit: str, zone: ZoneInfo) -> datetime:
    """Return the start of the minute, hour or day of a time, by the clock of a zone."""
    wall = at.astimezone(zone)
    if unit == "day":
        return datetime(wall.year, wall.month, wall.day, tzinfo=zone).astimezone(UTC)
    past = timedelta(minutes=wall.minute if unit == "hour" else 0, seconds=wall.second, microseconds=wall.microsecond)
    return at.astimezone(UTC) - past


@pytest.mark.long
@pytest.mark.parametrize(
    ("until", "unit", "zone"),
    [("14d", "day", BERLIN), ("14d", "hour", KOLKATA), ("14d", "day", NEW_YORK), ("3d", "minute", BERLIN)],
    ids=str,
)
def test_forecast_equals_a_plain_count(timed, clock, until, unit, zone):
    clock.now = BEFORE
    pick = random.Random(7)
    dues = [BEFORE + timedelta(milliseconds=pick.randrange(-86_400_000, 20 * 86_400_000)) for _ in range(20_000)]
    timed.send_many(NewMessage(None, at=due) for due in dues)
    add = timed.schedules.add
    add("morning", cron="0 9 * * *", tz="Europe/Berlin")
    add("repeated", cron="30 2 * * *", tz="Europe/Berlin")
    add("often", cron="*/30 * * * *", tz="America/New_York")
    add("weekdays", cron="15 8,17 * * MON-FRI", tz="America/New_York")
    add("days", every="2d", tz="Asia/Kolkata")
    add("elapsed", every="7h")
    add("monthly", rrule="FREQ=MONTHLY;BYDAY=-1FR", tz="Asia/Kolkata", start=BEFORE - 90 * DAY)
    add("thrice", cron="0 0 * * *", tz="America/New_York", count=3)
    add("ending", every="1h", end=BEFORE + 2 * DAY)
    add("excepted", cron="0 12 * * *", tz="Europe/Berlin", except_=["2026-10-25", "2026-11-02"])
    add("moved", cron="0 12 * * *", tz="Asia/Kolkata")
    timed.schedules.skip("moved", datetime(2026, 10, 26, 12, tzinfo=KOLKATA))
    timed.schedules.move("moved", datetime(2026, 10, 27, 12, tzinfo=KOLKATA), BEFORE + DAY)
    add("paused", every="1m")
    timed.schedules.pause("paused")
    add("ended", every="1h", end=BEFORE + MINUTE)

    forecast = timed.forecast(until, unit, tz=zone.key)

    assert (forecast.at, forecast.unit) == (BEFORE, unit)
    assert forecast.buckets[0].start == start_of(BEFORE, unit, zone)
    assert forecast.buckets[-1].start < BEFORE + timedelta(days=int(until[:-1])) <= forecast.until
    assert all(one.end == two.start for one, two in zip(forecast.buckets, forecast.buckets[1:], strict=False))
    coming = [due for due in dues if BEFORE < due < forecast.until]
    expected = Counter(start_of(due, unit, zone) for due in coming)
    assert {one.start: one.pending for one in forecast.buckets if one.pending} == expected
    assert forecast.overdue == sum(due <= BEFORE for due in dues)
    assert forecast.later == sum(due >= forecast.until for due in dues)
    names = [info.name for info in timed.schedules.list()]
    times = [time for name in names for time in timed.schedules.next(name, 1000) if time < forecast.until]
    assert len(times) > (800 if until == "14d" else 180)
    assert {one.start: one.scheduled for one in forecast.buckets if one.scheduled} == Counter(
        start_of(time, unit, zone) for time in times
    )
    assert forecast.scheduled_until is None
    assert sum(forecast.names.values()) == len(coming) + forecast.overdue + len(times)


# What is counted


@everywhere
def test_forecast_counts_due_messages_retries_and_occurrences_apart(timed, clock):
    timed.send_many(NewMessage(n) for n in range(4))
    for delay, message in zip((90, 600, 3600), timed.lease("40s", n=3), strict=True):
        message.nack(delay=delay)
    (running,) = timed.lease("5m")
    timed.send_delay_msg("soon", "10m")
    timed.send_delay_msg("later", "30d")
    timed.send_delay_msg("now")
    timed.schedules.add("sweep", cron="*/20 * * * *")
    forecast = timed.forecast("59m")
    found = {one.start: (one.pending, one.retries, one.scheduled) for one in forecast.buckets if one.total}
    assert found == {
        START + MINUTE: (0, 1, 0),
        START + 10 * MINUTE: (1, 1, 1),
        START + 30 * MINUTE: (0, 0, 1),
        START + 50 * MINUTE: (0, 0, 1),
    }
    assert (forecast.unit, forecast.overdue, forecast.retrying, forecast.later) == ("minute", 1, 3, 1)
    running.nack(delay=30)
    assert timed.forecast("59m").buckets[0].retries == 1
    clock.advance(2 * MINUTE)
    assert timed.forecast("59m").overdue == 3  # two redeliveries as well
    assert sum(one.retries for one in timed.forecast("59m").buckets) == 2


@everywhere
def test_forecast_of_an_empty_queue(timed):
    forecast = timed.forecast()
    assert totals(forecast) == [0] * 8
    assert forecast.buckets[0].start == START - 7.5 * HOUR
    assert (forecast.overdue, forecast.throttled, forecast.retrying, forecast.later) == (0, 0, 0, 0)
    assert (forecast.names, forecast.sampled, forecast.sampled_of) == ({}, 0, 0)
    assert (forecast.rate_limit, forecast.clear_at, forecast.left, forecast.scheduled_until) == (None, None, None, None)
    assert (forecast.peak, forecast.peak_at, forecast.peak_until) == (None, None, None)


@pytest.mark.parametrize(
    ("until", "unit", "number"),
    [
        ("10s", "minute", 1),
        ("3h", "minute", 180),
        (START + 90 * MINUTE, "minute", 90),
        ("3h1s", "hour", 4),
        (3 * DAY, "hour", 73),
        (START + 3 * DAY + MINUTE, "day", 4),
        ("300d", "day", 301),
    ],
)
def test_unit_fits_the_time(timed, until, unit, number):
    forecast = timed.forecast(until)
    assert (forecast.unit, len(forecast.buckets)) == (unit, number)


def test_end_that_is_the_end_of_a_bucket_adds_none(timed):
    forecast = timed.forecast(START + 30 * MINUTE, "hour")
    assert [(one.start, one.end) for one in forecast.buckets] == [(START - 30 * MINUTE, START + 30 * MINUTE)]
    timed.send_schedule_msg("in", START + 30 * MINUTE - timedelta(milliseconds=1))
    timed.send_schedule_msg("out", START + 30 * MINUTE)
    assert totals(timed.forecast(START + 30 * MINUTE, "hour")) == [1]
    assert totals(timed.forecast(START + 31 * MINUTE, "hour")) == [1, 1]


def test_days_have_as_many_hours_as_the_clocks_of_the_zone_show(timed, clock):
    clock.now = BEFORE
    forecast = timed.forecast("4d", tz="Europe/Berlin")
    assert [(one.end - one.start) // HOUR for one in forecast.buckets] == [24, 24, 25, 24, 24]
    assert [one.start.isoformat() for one in forecast.buckets][2:4] == [
        "2026-10-25T00:00:00+02:00",
        "2026-10-26T00:00:00+01:00",
    ]
    assert [one.start.minute for one in timed.forecast("2h", "hour", tz="Asia/Kolkata").buckets] == [0, 0, 0]
    assert timed.forecast("2h", "hour", tz=KOLKATA).buckets[0].start == datetime(2026, 10, 23, 15, tzinfo=KOLKATA)
    assert timed.forecast("2d", tz=None).buckets[0].start.utcoffset() is not None


def test_reading_a_forecast_stores_nothing(timed, redis_client):
    timed.forecast("1d")
    assert redis_client.keys() == []


# Schedules


def test_jitter_counts_at_the_due_time_of_each_message(timed, clock):
    for n in range(40):
        timed.schedules.add(f"s{n}", cron="0 8 * * *", jitter="1h")
    found = [one.scheduled for one in timed.forecast("3h", "minute").buckets]
    timed.callback(lambda message: None)
    clock.advance(30 * MINUTE)
    timed.run(burst=True)  # which fires them
    assert timed.counts().pending > 30
    fired = [one.pending for one in timed.forecast("2h30m", "minute").buckets]
    assert found[31:91] == fired[1:61]
    assert sum(found) == 40


def test_late_occurrences_count_as_far_as_they_will_fire(timed, clock):
    timed.schedules.add("once", every="1m", end=START + HOUR)
    timed.schedules.add("five", every="1m", misfire=5, end=START + HOUR)
    timed.schedules.add("skip", every="1m", misfire="skip", end=START + HOUR)
    clock.advance(HOUR - MINUTE / 2)  # no consumer was running
    found = timed.forecast("1h", "minute").buckets
    assert [one.scheduled for one in found[:3]] == [2 + 6 + 1, 3, 0]  # what was due half a minute ago is not late
    timed.callback(lambda message: None)
    timed.run(burst=True)
    assert timed.stats().totals["acked"] == 9


def test_a_schedule_that_cannot_be_read_is_named_and_the_others_are_counted(timed, redis_client):
    timed.schedules.add("odd", every="1h")
    timed.schedules.add("fine", every="1h")
    redis_client.hset("delayq:{reminders}:schedule_specs", "odd", '{"retries":1,"cron":"x"}\n')
    forecast = timed.forecast("2h", "hour")
    assert sum(bucket.scheduled for bucket in forecast.buckets) == 2
    ((name, error),) = forecast.left_out.items()
    assert (name, error[:23]) == ("odd", "cron 'x' is not valid: ")


def test_too_many_occurrences_are_counted_up_to_a_time(timed, monkeypatch):
    monkeypatch.setattr("delayq.schedules.occurrence_counts.MAX_TIMES", 1200)
    for n in range(3):
        timed.schedules.add(f"s{n}", every="1s", count=10_000 + n)  # not alike
    forecast = timed.forecast("1h", "minute")
    assert forecast.scheduled_until == START + timedelta(seconds=401)
    assert [one.scheduled for one in forecast.buckets[:8]] == [177, *[180] * 5, 123, 0]


# Names


@everywhere
def test_names_of_few_messages_and_of_schedules_are_exact(timed):
    mail = timed.task(name="mail")(lambda user: None)
    timed.send_many([NewMessage(n, name="sms", delay="1h") for n in range(3)])
    timed.send_many([NewMessage("overdue", name="mail"), NewMessage("unnamed", delay="1h")])
    timed.send_many([NewMessage("later", name="later", delay="9d")])
    timed.schedules.add("daily", cron="0 9 * * *", payload=mail.message(42))
    forecast = timed.forecast()
    assert forecast.names == {"mail": 9, "sms": 3, "": 1}
    assert list(forecast.names) == ["mail", "sms", ""]
    assert (forecast.sampled, forecast.sampled_of) == (5, 5)


@pytest.mark.long
def test_names_of_many_messages_are_estimated_from_a_sample(timed):
    names = ["mail"] * 70 + ["sms"] * 25 + [None] * 5
    timed.send_many(NewMessage(n, name=names[n * 37 % 100], delay=60 + n) for n in range(20_000))
    forecast = timed.forecast("1d")
    assert (forecast.sampled, forecast.sampled_of) == (500, 20_000)
    assert sum(forecast.names.values()) == 20_000
    shares = {name: count / 20_000 for name, count in forecast.names.items()}
    assert shares == pytest.approx({"mail": 0.7, "sms": 0.25, "": 0.05}, abs=0.06)


# Rates


def test_above_lists_the_buckets_above_a_rate(timed):
    timed.send_many(NewMessage(n, delay=150) for n in range(11))
    timed.send_many(NewMessage(n, delay=250) for n in range(10))
    minutes = timed.forecast("1h", "minute")
    assert [one.start for one in minutes.above("10/m")] == [START + 2 * MINUTE]
    assert [one.total for one in minutes.above("9/m")] == [11, 10]
    assert minutes.above("600/h") == minutes.above("10/m")
    hours = timed.forecast("1h", "hour")
    assert (hours.above("21/h"), len(hours.above("20/h")), hours.above("10/m")) == ([], 1, [])
    for rate in ("10", "0/m", "5/q", 5):
        with pytest.raises(ConfigurationError, match="rate must"):
            minutes.above(rate)


@everywhere
def test_rate_limit_says_when_the_backlog_is_gone(timed):
    timed.send_many(range(100))
    assert timed.forecast("2h").clear_at is None
    timed.limits.set("mail", rate_limit="1/s")
    assert timed.forecast("2h").rate_limit is None
    timed.limits.set(rate_limit="2/m")
    forecast = timed.forecast("2h")
    assert (forecast.rate_limit, forecast.clear_at, forecast.left) == ("2/m", START + 50 * MINUTE, 0)
    timed.schedules.add("often", every="1m")
    assert timed.forecast("2h").clear_at == START + 99 * MINUTE
    timed.send_many(NewMessage(n, delay="110m") for n in range(30))
    forecast = timed.forecast("2h")
    assert (forecast.clear_at, forecast.left) == (START + 99 * MINUTE, 20)
    timed.limits.set(rate_limit="1/m")
    forecast = timed.forecast("2h")
    assert (forecast.clear_at, forecast.left) == (None, 129)


@pytest.mark.parametrize("unit", ["minute", "hour", "day"])
def test_a_spike_that_a_rate_limit_will_hold_back_is_found_in_buckets_of_any_length(timed, unit):
    timed.limits.set(rate_limit="1/m")
    timed.send_many(NewMessage(n, delay="150m") for n in range(90))
    forecast = timed.forecast("1d", unit)
    assert (forecast.clear_at, forecast.left) == (START, 0)
    assert (forecast.peak, forecast.peak_at) == (88, START + 151 * MINUTE)
    assert forecast.peak_until == START + 240 * MINUTE
    assert [bucket.total for bucket in forecast.buckets if bucket.total] == [90]
    timed.purge()
    timed.send_delay_msg(1, "10m")
    assert timed.forecast("1d", unit).peak == 0
    timed.send_many(range(100))
    forecast = timed.forecast("2h", unit)
    assert (forecast.peak, forecast.peak_at, forecast.peak_until) == (100, START, forecast.clear_at)


def test_nothing_starts_in_a_pause(timed):
    timed.send_many(range(10))
    timed.limits.set(rate_limit="1/m")
    timed.pause("30m")
    assert timed.forecast("1h").clear_at == START + 40 * MINUTE
    timed.pause()
    forecast = timed.forecast("1h")
    assert (forecast.clear_at, forecast.left) == (None, 10)


def test_without_a_backlog_it_is_gone_already(timed):
    timed.limits.set(rate_limit="1/m")
    timed.send_many(NewMessage(n, delay="30m") for n in range(90))
    forecast = timed.forecast("1h")
    assert (forecast.clear_at, forecast.left) == (START, 60)


def test_what_a_limit_holds_back_is_throttled_and_part_of_the_backlog(timed):
    timed.limits.set("mail", rate_limit="1/h", burst=1)
    timed.limits.set(rate_limit="5/m", burst=10)
    timed.send_many([NewMessage(n, name="mail") for n in range(6)])
    timed.lease(n=6)
    forecast = timed.forecast("1h")
    assert (forecast.overdue, forecast.throttled) == (0, 5)
    assert timed.counts().throttled == 5
    assert forecast.clear_at == START + MINUTE


# Bad input


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"until": START}, "until must be in the future, not 2026-11-20T07:30:00.000Z"),
        ({"until": START - DAY}, "until must be in the future"),
        ({"until": START.replace(tzinfo=None)}, "until must carry a time zone"),
        ({"until": 0}, "until must be between"),
        ({"until": "-1d"}, "until must look like"),
        ({"until": "week"}, "until must look like"),
        ({"until": None}, "until must be a timedelta"),
        ({"until": "10001m", "buckets": "minute"}, "at most 10,000 buckets, not 10,001"),
        (
            {"until": "7d", "buckets": "minute"},
            "at most 10,000 buckets, not 10,080: take a nearer until, or buckets longer than a minute",
        ),
        ({"until": "600d", "buckets": "hour"}, "or buckets longer than an hour"),
        ({"until": "10001d"}, "at most 10,000 buckets, not 10,001: take a nearer until$"),
        ({"buckets": "week"}, "buckets must be 'minute', 'hour' or 'day', not 'week'"),
        ({"buckets": 7}, "buckets must be"),
        ({"buckets": []}, "buckets must be"),
        ({"tz": "Europe/Berlim"}, "unknown time zone 'Europe/Berlim', did you mean 'Europe/Berlin'"),
    ],
    ids=str,
)
def test_bad_input_is_refused(timed, options, text):
    with pytest.raises(ConfigurationError, match=text):
        timed.forecast(**options)


def test_ten_thousand_buckets_are_counted(timed):
    timed.send_many(NewMessage(n, delay=timedelta(minutes=n, seconds=30)) for n in range(10_000))
    assert totals(timed.forecast(START + 10_000 * MINUTE, "minute")) == [1] * 10_000


def test_states_of_the_forecast_add_up_to_all_messages(open_queue):
    queue = open_queue()
    queue.send_many(NewMessage(n, delay=n % 5 * 10_000) for n in range(50))
    for message in queue.lease(n=6):
        message.nack(delay=5000)
    forecast = queue.forecast("1d")
    assert forecast.overdue + sum(totals(forecast)) + forecast.later == queue.counts().living
    assert queue.counts().backoff == sum(one.retries for one in forecast.buckets) == 6
    assert len(queue.list(State.PENDING).messages) == forecast.sampled_of
