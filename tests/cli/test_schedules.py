"""`delayq schedules`: list, show, add, pause, resume, remove, run and next."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest


@pytest.fixture
def scheduled(queue):
    """Three schedules: one by cron, one by an interval, one paused."""
    queue.schedules.add("digest", cron="0 9 * * MON-FRI", tz="Europe/Berlin", payload={"to": "all"}, retries=5)
    queue.schedules.add("sweep", every="15m", headers={"who": "me"}, count=3, misfire=7)
    queue.schedules.add("asleep", every="1h", end=datetime(2190, 1, 1, tzinfo=UTC))
    queue.schedules.pause("asleep")
    return queue


def test_lists_schedules(cli, scheduled):
    head, *rows = cli("schedules", "list", "reminders").out.splitlines()
    assert head.split() == ["name", "occurs", "next", "last", "fired", "state"]
    assert [(row.split()[0], row.split()[-1]) for row in rows] == [
        ("asleep", "paused"),
        ("digest", "active"),
        ("sweep", "active"),
    ]
    assert "0 9 * * MON-FRI Europe/Berlin" in rows[1]
    assert "every 15m" in rows[2]


def test_lists_schedules_as_json(cli, scheduled):
    found = {one["name"]: one for one in cli("schedules", "list", "reminders", "--json").json["schedules"]}
    assert list(found) == ["asleep", "digest", "sweep"]
    digest, sweep = found["digest"], found["sweep"]
    assert (digest["payload"], digest["encoding"], digest["retries"]) == ({"to": "all"}, "json", 5)
    assert (digest["cron"], digest["tz"], digest["every"]) == ("0 9 * * MON-FRI", "Europe/Berlin", None)
    assert (sweep["every"], sweep["late_after"], sweep["misfire"], sweep["count"]) == (900, 60, 7, 3)
    assert (sweep["headers"], sweep["declared"], sweep["fired"], sweep["last"]) == ({"who": "me"}, False, 0, None)
    assert (found["asleep"]["state"], found["asleep"]["next"]) == ("paused", None)
    assert found["asleep"]["end"] == "2190-01-01T00:00:00.000Z"


def test_notes_that_there_are_no_schedules(cli, queue):
    queue.send_delay_msg(1)
    ended = cli("schedules", "list", "reminders")
    assert (ended.code, ended.out, ended.err) == (0, "", "no schedules in reminders\n")


def test_shows_a_schedule(cli, scheduled):
    out = cli("schedules", "show", "reminders", "sweep").out
    for text in ("every 15m", "0 messages of 3", "header who", "me", "7, after 1m", "active"):
        assert text in out
    assert cli("schedules", "show", "reminders", "sweep", "--json").json["name"] == "sweep"


def test_add_prints_new_changed_or_unchanged(cli, queue):
    ended = cli("schedules", "add", "reminders", "digest", '{"a": 1}', "--cron", "@daily", "--tz", "Asia/Kathmandu")
    assert (ended.code, ended.out) == (0, "digest  new\n")
    assert ended.err.startswith("next in ")
    again = ("schedules", "add", "reminders", "digest", '{"a": 1}', "--cron", "@daily")
    assert cli(*again, "--tz", "Asia/Kathmandu").out == "digest  unchanged\n"
    assert cli(*again).out == "digest  changed\n"
    info = queue.schedules.get("digest")
    assert (info.cron, info.tz, info.payload) == ("@daily", "UTC", {"a": 1})


def test_adds_a_schedule_with_every_option(cli, queue):
    ended = cli(
        *("schedules", "add", "reminders", "s", "hello", "--codec", "text", "--every", "90s", "--retries", "0"),
        *("--header", "a=b", "--start", "2190-01-01T00:00Z", "--end", "2191-01-01T00:00Z", "--count", "2"),
        *("--misfire", "skip", "--late-after", "5s"),
    )
    assert ended.code == 0, ended.err
    found = cli("schedules", "show", "reminders", "s", "--json").json
    assert (found["payload"], found["every"], found["retries"], found["headers"]) == ("hello", 90, 0, {"a": "b"})
    assert (found["start"], found["end"]) == ("2190-01-01T00:00:00.000Z", "2191-01-01T00:00:00.000Z")
    assert (found["count"], found["misfire"], found["late_after"]) == (2, "skip", 5)
    assert found["next"] == "2190-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--cron", "0 0 30 2 *"], "bad day-of-month"),
        (["--cron", "0 9 * * *", "--tz", "Europe/Berln"], "did you mean 'Europe/Berlin'?"),
        (["--cron", "0 9 * * *", "--every", "1h"], "give cron or every, but not both"),
        ([], "give cron or every, but not both"),
        (["--every", "1h", "--tz", "UTC"], "tz works with cron only"),
        (["--every", "10ms"], "every must be between 1 s and"),
        (["--every", "soon"], "must look like"),
        (["--every", "1h", "--misfire", "never"], "misfire must be"),
        (["--every", "1h", "--misfire", "1001"], "misfire must be"),
        (["--every", "1h", "--start", "2027-01-01T00:00"], "needs a time zone"),
        (["--every", "1h", "--start", "2027-01-02T00:00Z", "--end", "2027-01-01T00:00Z"], "end is before start"),
        (["--every", "1h", "--header", "schedule=x"], "remove the header"),
        (["not json", "--every", "1h"], "is not JSON"),
    ],
)
def test_invalid_schedule_is_a_usage_error_in_one_line(cli, queue, options, error):
    ended = cli("schedules", "add", "reminders", "digest", *options)
    assert ended.code == 2
    assert error in ended.line
    assert queue.schedules.list() == []


def test_invalid_name_is_a_usage_error(cli, queue):
    ended = cli("schedules", "add", "reminders", "a b", "--every", "1h")
    assert (ended.code, "schedule name must be" in ended.line) == (2, True)


def test_pauses_resumes_and_removes_schedules(cli, scheduled):
    ended = cli("schedules", "pause", "reminders", "digest", "sweep")
    assert (ended.code, ended.out) == (0, "digest  paused\nsweep  paused\n")
    assert {info.state for info in scheduled.schedules.list()} == {"paused"}
    assert cli("schedules", "resume", "reminders", "digest").out == "digest  resumed\n"
    assert scheduled.schedules.get("digest").state == "active"
    assert cli("schedules", "remove", "reminders", "digest", "sweep").out == "digest  removed\nsweep  removed\n"
    assert [info.name for info in scheduled.schedules.list()] == ["asleep"]


def test_run_sends_a_message_at_once(cli, scheduled):
    ended = cli("schedules", "run", "reminders", "asleep")
    (message,) = scheduled.list("pending").messages
    assert ended.out == f"{message.id}\n"
    assert message.id.startswith("asleep@now:")
    assert message.headers == {"schedule": "asleep"}


def test_next_prints_the_next_occurrences(cli, scheduled):
    lines = cli("schedules", "next", "reminders", "digest", "-n", "3").out.splitlines()
    assert len(lines) == 3
    for line in lines:
        at = datetime.fromisoformat(line.split()[0])
        assert (at.hour, at.minute, at.isoweekday() < 6) == (9, 0, True)
    assert len(cli("schedules", "next", "reminders", "sweep", "--json").json["next"]) == 3  # its count
    ended = cli("schedules", "next", "reminders", "asleep")
    assert (ended.code, ended.out) == (0, "")
    assert "paused" in ended.err


@pytest.mark.parametrize("command", ["show", "pause", "resume", "remove", "run", "next"])
def test_unknown_schedule_is_not_found(cli, scheduled, command):
    ended = cli("schedules", command, "reminders", "swep")
    assert (ended.code, ended.line) == (3, "no schedule named 'swep', did you mean 'sweep'?")
    assert cli("schedules", command, "remindres", "sweep").code == 3


def test_known_schedules_are_changed_despite_an_unknown_one(cli, scheduled):
    ended = cli("schedules", "pause", "reminders", "digest", "none", "sweep")
    assert (ended.code, ended.out) == (3, "digest  paused\nsweep  paused\n")


def test_terminal_escapes_in_payloads_are_removed(cli, queue):
    queue.schedules.add("s", every="1h", payload="\x1b[31mred\x07")
    for arguments in (("show", "reminders", "s"), ("list", "reminders"), ("list", "reminders", "--json")):
        assert "\x1b" not in cli("schedules", *arguments).out
    assert (
        json.loads(cli("schedules", "list", "reminders", "--json").out)["schedules"][0]["payload"] == "\x1b[31mred\x07"
    )
