"""`delayq history`: what was done in each hour or day, and how late."""

from __future__ import annotations

import re

import pytest

from delayq.broker.stored_presence import HOUR, HourCounts, write_counts

COUNTS = HourCounts(200, 150, 10, 30, 5, 5, 100, 5_000_000, (0, 0, 190, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 1))


@pytest.fixture
def done(redis_client, queue):
    """`done({0: counts})` stores what consumers have counted so many hours ago."""
    queue.send_delay_msg(1, "1h")
    hour = int(queue.stats().at.timestamp() * 1000) // HOUR

    def done(hours):
        records = {hour - ago: write_counts(counts) for ago, counts in hours.items()}
        redis_client.hset("delayq:{reminders}:history", mapping=records)

    return done


def test_a_row_for_each_day_with_a_bar(cli, done):
    done({0: COUNTS, 24 * 3: COUNTS._replace(delivered=100, busy=0, callbacks=0)})
    lines = cli("history", "reminders", "--days", "7").out.splitlines()
    titles = ["day", "delivered", "done", "failed", "released", "time", "p50 late", "p99 late"]
    assert re.split(r"  +", lines[0].strip()) == titles
    assert len(lines) == 8
    today = r"\d{4}-\d\d-\d\d \w{3} +200 +160 +35 +5 +50ms +≤ 10ms +≤ 10s +█{30}"
    assert re.fullmatch(today, lines[-1]), lines[-1]
    assert re.fullmatch(r"\S+ \w{3} +100 +160 +35 +5 +≤ 10ms +≤ 10s +█{15}", lines[-4]), lines[-4]
    assert re.fullmatch(r"\S+ \w{3} +0 +0 +0 +0", lines[-2]), lines[-2]


def test_no_column_for_what_was_released_if_nothing_was(cli, done):
    done({0: COUNTS._replace(released=0)})
    assert "released" not in cli("history", "reminders").out


def test_hours_up_to_two_days(cli, done):
    done({0: COUNTS, 1: COUNTS})
    lines = cli("history", "reminders", "--days", "1").out.splitlines()
    assert (lines[0].split()[0], len(lines)) == ("hour", 25)
    assert [line.split()[3] for line in lines[-3:]] == ["0", "200", "200"]
    many = cli("history", "reminders", "--days", "30", "--buckets", "hour").out.splitlines()
    assert len(many) == 3


def test_it_fits_80_columns(cli, done):
    done({0: COUNTS._replace(delivered=123_456_789)})
    lines = cli("history", "reminders", env={"COLUMNS": "80"}).out.splitlines()
    assert lines[0].startswith("day ")
    assert len(lines) == 11
    assert max(map(len, lines)) <= 80


def test_json(cli, done):
    done({0: COUNTS})
    found = cli("history", "reminders", "--days", "3", "--json").json
    assert (found["queue"], found["unit"], len(found["buckets"])) == ("reminders", "day", 3)
    *_, today = found["buckets"]
    assert today["start"] <= found["at"] or today["start"][:10] == found["at"][:10]
    numbers = {"delivered": 200, "acked": 150, "discarded": 10, "nacked": 30, "rejected": 5, "released": 5}
    assert {name: found["total"][name] for name in numbers} == numbers
    assert (found["total"]["callbacks"], found["total"]["busy"]) == (100, 5.0)
    lateness = {"p50": 0.01, "p90": 0.01, "p99": 10.0, "counts": list(COUNTS.lateness)}
    assert today["lateness"] == found["total"]["lateness"] == lateness


def test_nothing_was_counted(cli, queue):
    queue.send_delay_msg(1, "1h")
    found = cli("history", "reminders")
    assert (found.code, found.out) == (0, "")
    assert found.err.startswith("no consumer of reminders has counted anything since ")
    assert cli("history", "reminders", "--json").json["total"]["delivered"] == 0


def test_bad_input_is_one_line(cli, queue):
    queue.send_delay_msg(1, "1h")
    wrong = cli("history", "remindres")
    assert (wrong.code, wrong.out, wrong.err.count("\n")) == (3, "", 1)
    for days in ("0", "91", "x"):
        refused = cli("history", "reminders", "--days", days)
        assert (refused.code, refused.out) == (2, "")
    streams = cli("history", "tasks", "--engine", "streams")
    assert (streams.code, streams.err) == (2, "delayq: the streams engine has no history\n")
    away = cli("--url", "redis://127.0.0.1:1", "--timeout", "100ms", "history", "reminders")
    assert (away.code, away.out, away.err.count("\n")) == (69, "", 1)


def test_stats_and_doctor_report_lateness_and_the_objective(cli, done, redis_client):
    redis_client.hset("delayq:{reminders}:meta", "lateness_slo", "95% within 1s")
    done({0: COUNTS})
    out = cli("stats", "reminders").out
    assert re.search(r"^lateness +p50 ≤ 10ms, p99 ≤ 10s$", out, re.MULTILINE)
    text = "95% within 1s: 95% of 200 messages in 30 days; 0% of the error budget left"
    assert text in out.splitlines()
    found = cli("stats", "reminders", "--json").json
    assert found["lateness"]["p99"] == 10.0
    assert found["slo"] == {
        "objective": "95% within 1s", "counted": 200, "late": 10, "kept": 0.95, "budget_left": 0.0,
    }  # fmt: skip
    assert text in cli("doctor", "reminders").out
    redis_client.hset("delayq:{reminders}:meta", "lateness_slo", "99% within 1s")
    spent = cli("doctor", "reminders")
    assert (spent.code, "missed, 95% of 200 messages in 30 days; 5 times the error budget is spent" in spent.out) == (
        4,
        True,
    )


def test_stats_without_an_objective(cli, queue):
    queue.send_delay_msg(1, "1h")
    assert "lateness" not in cli("stats", "reminders").out
    found = cli("stats", "reminders", "--json").json
    assert (found["slo"], found["lateness"]["p50"]) == (None, None)
