"""Times without an offset: all commands read them in the zone of `--tz`, and refuse those that a clock leaves out."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

import pytest

from delayq import DelayQueue, NewMessage
from delayq.cli.support.zones import read_time
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
    ("audit", "plan", "archive", "reminders", "--from"),
    ("audit", "plan", "archive", "reminders", "--until"),
    ("report", "archive", "folder", "--from"),
    ("report", "archive", "folder", "--until"),
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


EVENT = """\
BEGIN:VCALENDAR
BEGIN:VEVENT
UID:kick-off
SUMMARY:Kick-off
DTSTART:{:%Y%m%dT%H%M%S}Z
END:VEVENT
END:VCALENDAR
"""
START = "2088-01-31T09:00Z"
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?: ?[A-Z]+|[+-]\d\d:\d\d)?")
OCCURRENCE = "2088-02-01T09:00Z"
PRINTING = {
    "send": ["send", "q", "1", "--at", START],
    "send again": ["send", "q", "1", "--id", "held"],
    "reschedule": ["reschedule", "q", "later", "--at", START],
    "stats": ["stats", "q"],
    "show": ["show", "q", "later"],
    "show dead": ["show", "q", "dead"],
    "show result": ["show", "q", "kept"],
    "events": ["events", "q"],
    "list, a wrong period": ["list", "q", "--from", START, "--to", "now"],
    "history": ["history", "q", "--days", "1"],
    "forecast": ["forecast", "q", "--until", "2h"],
    "pause": ["pause", "q", "--until", START],
    "doctor": ["doctor", "paused"],
    "paused": ["stats", "paused"],
    "schedules show": ["schedules", "show", "q", "daily"],
    "schedules next": ["schedules", "next", "q", "daily"],
    "schedules next by prefix": ["schedules", "next", "q", "--prefix", "d"],
    "schedules skip": ["schedules", "skip", "q", "daily", OCCURRENCE],
    "schedules move": ["schedules", "move", "q", "daily", OCCURRENCE, "--to", "2088-02-01T12:00Z"],
    "schedules restore": ["schedules", "restore", "q", "daily", "2088-02-03T09:00Z"],
    "schedules backfill": ["schedules", "backfill", "q", "past", "--from", "2020-01-01T00:00Z", "--dry-run"],
    "schedules history": ["schedules", "history", "q", "past"],
    "pause of a name": ["pause", "q", "--name", "mail", "--until", START],
    "limits": ["limits", "list", "paused"],
    "queues": ["queues"],
    "remind list": ["remind", "list", "team", "--queue", "q"],
    "remind plan": ["remind", "plan", "team.ics", "--queue", "q", "--before", "2h"],
}


@pytest.fixture
def dated(cli, redis_url, tmp_path):
    """Queues with times of every kind; all are printed in the zone of the command, whatever zone the machine is in."""
    (tmp_path / "team.ics").write_text(EVENT.format(datetime.now(UTC) + timedelta(days=30)))
    with DelayQueue("q", url=redis_url, events=True, dedupe_window="1h") as queue:
        queue.callback(lambda message: 1 / 0 if message.id == "dead" else None)
        queue.send_many([NewMessage(1, id="dead", retries=0), NewMessage(1, id="kept", retention="1h")])
        queue.send_delay_msg(1, id="held")
        queue.run(burst=True)
        queue.send_many([NewMessage(1, delay="1h", id="later", expires="2h")])
        start = datetime.fromisoformat(START)
        queue.schedules.add("daily", every="24h", start=start, end=start + timedelta(days=99), tz="UTC")
        queue.schedules.skip("daily", start + timedelta(days=3))
        queue.schedules.add("past", every="30m", start=datetime.now(UTC) - timedelta(hours=2))
        queue.schedules.run_now("past")
    with DelayQueue("paused", url=redis_url) as queue:
        queue.pause(until=start)
        queue.pause(until=start, name="mail")
    assert cli("remind", "import", "team.ics", "--queue", "q", "--before", "1h").code == 0
    return cli


@pytest.mark.parametrize("arguments", PRINTING.values(), ids=PRINTING)
def test_printed_times_are_in_the_zone_of_tz(dated, arguments):
    ended = dated("--tz", "Asia/Tokyo", *arguments)
    found = TIME.findall(ended.out + ended.err)
    assert found, ended
    assert all(time.endswith(("+09:00", "JST")) for time in found), found
