"""`delayq forecast`: bars and tables, JSON, spikes, and what is refused."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from delayq import DelayQueue, NewMessage

MINUTE = timedelta(minutes=1)


def next_minute(minutes: int = 2) -> datetime:
    """Return the middle of a minute to come."""
    return datetime.now(UTC).replace(second=30, microsecond=0) + minutes * MINUTE


@pytest.fixture
def filled(queue):
    """Eight messages in a minute, two in the next, two that are overdue, one retry, one in a month."""
    at = next_minute()
    queue.send_many(NewMessage(n, at=at, name="mail") for n in range(8))
    queue.send_many(NewMessage(n, at=at + MINUTE) for n in range(2))
    queue.send_many([NewMessage(n) for n in range(3)])
    (failed,) = queue.lease(n=1)
    failed.nack(delay="5m")
    queue.send_delay_msg("later", "30d")
    return at


def rows_of(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()]


def test_prints_bars(cli, filled):
    ended = cli("forecast", "reminders", "--until", "1h")
    assert (ended.code, ended.err) == (0, "")
    rows = rows_of(ended.out)
    assert rows[:2] == [["overdue", "2"], ["retrying", "1"]]
    assert rows[2][:4] == ["later", "1", "due", "after"]
    assert rows[4] == ["minute", "pending", "retries", "scheduled", "total"]
    first, second, third = rows[5:8]
    assert first == [f"{filled:%Y-%m-%d}", f"{filled:%H:%M}", "UTC", "8", "0", "0", "8", "█" * 40]
    assert second[3:] == ["2", "0", "0", "2", "█" * 10]
    assert third[3:] == ["0", "1", "0", "1", "█" * 5]
    assert rows[9:] == [["name", "messages", "without", "retries"], ["mail", "8"], ["(without", "a", "name)", "2"]]


def test_shows_few_buckets_all_and_of_many_the_others(cli, filled):
    days = rows_of(cli("forecast", "reminders").out)
    assert sum(re.fullmatch(r"\d{4}-\d\d-\d\d", row[0]) is not None for row in days if row) == 8
    hours = rows_of(cli("forecast", "reminders", "--buckets", "hour").out)
    assert 1 <= sum(row[2:3] == ["UTC"] for row in hours) <= 2


def test_days_are_those_of_the_time_zone(cli, queue):
    queue.send_schedule_msg(1, datetime(2099, 1, 1, 23, 30, tzinfo=UTC))
    until = ("--until", "2099-01-03T00:00Z", "--json")
    found = cli("--tz", "Asia/Kolkata", "forecast", "reminders", *until, "--buckets", "day")
    assert found.code == 2  # 73 years of days
    soon = datetime.now(UTC) + timedelta(days=2)
    queue.send_schedule_msg(1, soon.replace(hour=23, minute=30))
    buckets = cli("--tz", "Asia/Kolkata", "forecast", "reminders", "--json").json["buckets"]
    (full,) = [bucket for bucket in buckets if bucket["total"]]
    assert full["start"] == f"{soon:%Y-%m-%d}T18:30:00.000Z"


def test_json_has_all_buckets(cli, filled):
    found = cli("forecast", "reminders", "--until", "30m", "--json").json
    assert set(found) == {
        "queue", "at", "until", "unit", "buckets", "overdue", "throttled", "retrying", "later", "cold", "names",
        "sampled", "sampled_of", "scheduled_until", "rate_limit", "clear_at", "left", "peak", "peak_at",
        "peak_until", "paused", "left_out",
    }  # fmt: skip
    assert (found["queue"], found["unit"], len(found["buckets"])) == ("reminders", "minute", 31)
    start = filled.replace(second=0)
    (full,) = [bucket for bucket in found["buckets"] if bucket["pending"] == 8]
    assert full == {
        "start": f"{start:%Y-%m-%dT%H:%M}:00.000Z",
        "end": f"{start + MINUTE:%Y-%m-%dT%H:%M}:00.000Z",
        "pending": 8,
        "retries": 0,
        "scheduled": 0,
        "total": 8,
    }
    assert (found["overdue"], found["retrying"], found["later"], found["names"]) == (2, 1, 1, {"mail": 8, "": 2})


def test_above_lists_spikes_and_exits_with_4(cli, filled):
    ended = cli("forecast", "reminders", "--above", "5/m")
    assert ended.code == 4
    head, spike = rows_of(ended.out)
    assert (head[0], spike[1], spike[6]) == ("minute", f"{filled:%H:%M}", "8")
    ended = cli("forecast", "reminders", "--above", "9/m", "--until", "2h")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.startswith("no minute above 9/m until ")
    found = cli("forecast", "reminders", "--above", "5/m", "--json")
    assert found.code == 4
    assert (found.json["above"], [spike["total"] for spike in found.json["spikes"]]) == ("5/m", [8])
    assert len(found.json["buckets"]) == 6 * 1440 + 1
    assert cli("forecast", "reminders", "--above", "9/m", "--json").json["spikes"] == []


@pytest.mark.parametrize(
    ("rate", "unit", "code"),
    [("1/s", "minute", 0), ("100/10m", "minute", 0), ("20/h", "hour", 0), ("9/h", "hour", 4), ("10/d", "day", 4)],
)
def test_above_counts_by_the_time_of_its_rate(cli, queue, rate, unit, code):
    middle = datetime.now(UTC).replace(minute=30) + timedelta(hours=3)
    queue.send_many(NewMessage(n, at=middle + n * timedelta(minutes=2)) for n in range(-6, 6))
    found = cli("forecast", "reminders", "--above", rate, "--json")
    assert (found.json["unit"], found.code) == (unit, code)
    assert cli("forecast", "reminders", "--above", rate, "--buckets", "day", "--json").json["unit"] == "day"


def test_says_when_the_backlog_is_gone(cli, queue):
    queue.limits.set(rate_limit="10/s")
    queue.send_many(range(36_000))
    out = cli("forecast", "reminders").out
    assert re.search(r"^rate limit +10/s: nothing waits any more in (59m|1h)", out, re.MULTILINE)
    out = cli("forecast", "reminders", "--until", "10m").out
    assert re.search(r"^rate limit +10/s: (29|30),\d{3} messages will wait at the end, ", out, re.MULTILINE)
    queue.purge()
    assert "10/s: nothing waits\n" in cli("forecast", "reminders").out


def test_says_that_the_queue_is_paused(cli, queue):
    queue.pause(reason="deploy")
    queue.send_delay_msg(1, "1h")
    assert re.search(r"^queue +paused until it is resumed: deploy$", cli("forecast", "reminders").out, re.MULTILINE)
    assert cli("forecast", "reminders", "--json").json["paused"] == {"until": None, "reason": "deploy"}
    queue.resume()
    assert "paused" not in cli("forecast", "reminders").out


def test_says_how_many_will_wait_for_a_rate_limit(cli, queue):
    queue.limits.set(rate_limit="10/s")
    queue.send_many(NewMessage(n, delay="2h") for n in range(3_600))
    (line,) = [line for line in cli("forecast", "reminders").out.splitlines() if line.startswith("rate limit")]
    assert re.fullmatch(
        r"rate limit +10/s: nothing waits now; 2,998 messages will wait in 2h( 1m)?  \(.* UTC\), "
        r"none in 2h \dm  \(.* UTC\)",
        line,
    )


def test_empty_queue_has_no_bars(cli, queue):
    queue.open()
    ended = cli("forecast", "reminders")
    assert (ended.code, ended.out) == (0, "overdue  0\n")
    assert ended.err.startswith("nothing fires until ")


def test_says_how_large_the_sample_was(cli, queue):
    queue.send_many(NewMessage(n, name=f"n{n % 25}", delay="1h") for n in range(2500))
    ended = cli("forecast", "reminders")
    assert ended.err == "names: from a sample of 500 of 2,500 pending messages\n"
    rows = rows_of(ended.out)
    names = rows[rows.index(["name", "messages", "without", "retries,", "about"]) + 1 :]
    assert len(names) == 21
    assert names[-1][0] == "(others)"
    assert sum(int(row[1]) for row in names) == 2500


def test_says_if_schedules_occur_too_often(cli, queue, monkeypatch):
    monkeypatch.setattr("delayq.schedules.occurrence_counts.MAX_TIMES", 30)
    queue.schedules.add("ticks", every="1s")
    ended = cli("forecast", "reminders", "--until", "1h")
    assert re.fullmatch(r"schedules occur too often: what they send after \S+ is not counted\n", ended.err), ended.err
    assert cli("forecast", "reminders", "--until", "1h", "--json").json["scheduled_until"] is not None


@pytest.mark.parametrize(("columns", "longest"), [("80", 14), ("100", 34), ("200", 40), ("66", 0)])
def test_bars_fit_into_the_terminal(cli, filled, columns, longest):
    lines = cli("forecast", "reminders", "--until", "1h", env={"COLUMNS": columns}).out.splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert max(line.count("█") for line in lines) == longest


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--until", "2020-01-31T09:00Z"], "until must be in the future, not 2020-01-31T09:00:00.000Z"),
        (["--until", "0s"], "until must be between"),
        (["--until", "-1d"], "--until must look like 2h or 2027-01-31T09:00, not '-1d'"),
        (["--until", "soon"], "--until must look like 2h or 2027-01-31T09:00, not 'soon'"),
        (["--until", "10001m", "--buckets", "minute"], "a forecast has at most 10,000 buckets, not 10,001"),
        (["--buckets", "week"], "Invalid value for '--buckets': 'week' is not one of 'minute', 'hour', 'day'."),
        (["--above", "5000"], "--above must look like '200/s', '5/m' or '3/10s', not '5000'"),
        (["--above", "5000/q"], "--above must be per s, m, h or d"),
        (["--above", "0/m"], "--above must be from 1 to 100000 a second"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_input_is_one_line(cli, queue, redis_client, arguments, text):
    queue.open()
    before = set(redis_client.keys())
    ended = cli("forecast", "reminders", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.line.startswith(text)
    assert set(redis_client.keys()) == before


def test_unknown_queue_and_unreachable_redis(cli, redis_url, redis_client):
    with DelayQueue("reminder", url=redis_url) as other:
        other.send_delay_msg(1)
    ended = cli("forecast", "reminders")
    assert (ended.code, ended.out) == (3, "")
    assert ended.line == "no queue named 'reminders', did you mean 'reminder'?"
    ended = cli("--url", "redis://127.0.0.1:1", "--timeout", "100ms", "forecast", "reminder")
    assert (ended.code, ended.out) == (69, "")
    assert len(ended.err.splitlines()) == 1


def test_inspector_reads_it_and_a_producer_does_not(cli, redis_url, redis_client, filled, queue):
    queue.schedules.add("daily", cron="0 9 * * *")
    queue.limits.set(rate_limit="5/s")
    cli("preload")
    found = {}
    for role in ("inspector", "producer"):
        redis_client.execute_command(*cli("acl", role).out.split())
        redis_client.execute_command("ACL", "SETUSER", f"delayq-{role}", ">secret-word")
        url = redis_url.replace("unix://", f"unix://delayq-{role}:secret-word@")
        found[role] = cli("--url", url, "forecast", "reminders", "--json")
        redis_client.execute_command("ACL", "DELUSER", f"delayq-{role}")
    assert found["inspector"].code == 0
    assert found["inspector"].json["rate_limit"] == "5/s"
    assert (found["producer"].code, found["producer"].out) == (1, "")
    assert "permission" in found["producer"].line
