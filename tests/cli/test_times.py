"""Times without an offset: all commands read them in the zone of `--tz`, and refuse those that a clock leaves out."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from delayq.cli.zones import read_time
from delayq.errors import ConfigurationError

BERLIN = ("--tz", "Europe/Berlin")
COMMANDS = [
    ("send", "reminders", "1", "--at"),
    ("reschedule", "reminders", "a", "--at"),
    ("cancel", "reminders", "--from"),
    ("list", "reminders", "--to"),
    ("pause", "reminders", "--until"),
    ("forecast", "reminders", "--until"),
    ("schedules", "add", "reminders", "digest", "--every", "1h", "--start"),
    ("schedules", "set", "reminders", "digest", "--end"),
    ("schedules", "backfill", "reminders", "digest", "--from"),
    ("load", "messages.csv", "reminders", "--from"),
    ("load", "messages.csv", "reminders", "--until"),
    ("spark", "load", "messages", "reminders", "--until"),
    ("spark", "audit", "plan", "archive", "reminders", "--from"),
    ("spark", "audit", "plan", "archive", "reminders", "--until"),
    ("spark", "report", "archive", "folder", "--from"),
    ("spark", "report", "archive", "folder", "--until"),
]


@pytest.mark.table("command", COMMANDS)
def test_a_time_that_the_clock_leaves_out_or_repeats_is_refused_in_one_line(cli, command):
    option = command[-1]
    ended = cli(*BERLIN, *command, "2027-03-28T02:30")
    assert (ended.code, ended.out) == (2, "")
    assert f"{option} 2027-03-28T02:30:00 does not exist in Europe/Berlin, where clocks go forward then" in ended.line
    assert "give 2027-03-28T01:30:00+01:00 or 2027-03-28T03:30:00+02:00" in ended.line
    ended = cli(*BERLIN, *command, "2027-10-31T02:30")
    assert (ended.code, ended.out) == (2, "")
    assert f"{option} 2027-10-31T02:30:00 occurs twice in Europe/Berlin, where clocks go back then" in ended.line
    assert "give 2027-10-31T02:30:00+02:00 or 2027-10-31T02:30:00+01:00" in ended.line


def test_with_an_offset_a_repeated_time_is_exact(cli, queue):
    assert cli(*BERLIN, "send", "reminders", "1", "--id=a", "--at", "2088-10-31T02:30+01:00").code == 0
    assert queue.get("a").due == datetime(2088, 10, 31, 1, 30, tzinfo=UTC)


def test_local_times_are_those_of_the_machine_without_tz(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert read_time("2090-01-31T09:00", "--at") == datetime(2090, 1, 31, 14, tzinfo=UTC)
        with pytest.raises(ConfigurationError, match=r"02:30:00 does not exist in your time zone"):
            read_time("2027-03-14T02:30", "--at")
        with pytest.raises(ConfigurationError, match=r"01:30:00 occurs twice in your time zone"):
            read_time("2027-11-07T01:30", "--at")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_schedule_starts_and_ends_by_its_own_zone_or_that_of_the_command(cli, queue):
    period = ("--start", "2090-01-31T09:00", "--end", "2090-02-28T09:00")
    assert cli(*BERLIN, "schedules", "add", "reminders", "a", "--every", "1h", *period).code == 0
    assert cli("schedules", "add", "reminders", "b", "--cron", "0 9 * * *", *period, "--tz", "Asia/Tokyo").code == 0
    first, second = queue.schedules.get("a"), queue.schedules.get("b")
    assert (first.start, first.end) == (datetime(2090, 1, 31, 8, tzinfo=UTC), datetime(2090, 2, 28, 8, tzinfo=UTC))
    assert (second.start, second.end) == (datetime(2090, 1, 31, tzinfo=UTC), datetime(2090, 2, 28, tzinfo=UTC))


def test_the_answer_has_the_time_with_its_offset(cli, queue):
    sent = cli(*BERLIN, "send", "reminders", "1", "--id=a", "--at", "2036-07-31T09:00")
    moved = cli(*BERLIN, "reschedule", "reminders", "a", "--at", "2036-01-31T09:00")
    assert sent.err.endswith("  (2036-07-31 09:00:00+02:00)\n")
    assert (moved.out, moved.err.endswith("  (2036-01-31 09:00:00+01:00)\n")) == ("a  rescheduled\n", True)
    assert cli("reschedule", "reminders", "a", "--delay", "1h").err == "due in 1h\n"
    assert cli("reschedule", "reminders", "a", "--delay", "1h", "--json").err == ""


def test_a_bulk_load_takes_local_times(cli, tmp_path, queue):
    table = tmp_path / "messages.csv"
    table.write_text("id,due,payload\na,2090-01-31T08:30:00Z,x\nb,2090-01-31T09:30:00Z,y\n")
    period = ("--from", "2090-01-31T09:00", "--until", "2090-01-31T10:00")
    assert cli(*BERLIN, "load", str(table), "reminders", *period).code == 0
    assert (queue.counts().pending, queue.get("a") is None) == (1, False)
