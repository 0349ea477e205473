"""`delayq schedules`: list, show, add, pause, resume, remove, run, next and replan."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from delayq.broker.keys import Keys
from delayq.schedules.recurring.local_times import zone_release
from tests.cli.conftest import OWN_ZONE


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


def test_adds_and_changes_a_recurrence_rule(cli, queue):
    options = ("--rrule", "FREQ=MONTHLY;BYDAY=-1FR", "--tz", "Europe/Berlin", "--start", "2190-01-01T09:00+01:00")
    ended = cli("schedules", "add", "reminders", "report", *options)
    assert ended.code == 0, ended.err
    assert "FREQ=MONTHLY;BYDAY=-1FR Europe/Berlin" in cli("schedules", "list", "reminders").out
    assert "2190-01-29T09:00:00+01:00" in cli("schedules", "next", "reminders", "report", env=OWN_ZONE).out
    assert cli("schedules", "set", "reminders", "report", "--rrule", "FREQ=YEARLY;BYDAY=-1FR").code == 0
    found = cli("schedules", "show", "reminders", "report", "--json").json
    assert (found["rrule"], found["cron"], found["every"]) == ("FREQ=YEARLY;BYDAY=-1FR", None, None)
    refused = cli("schedules", "set", "reminders", "report", "--rrule", "FREQ=YEARLY;BYDAY=9XX")
    assert (refused.code, "rrule part 'BYDAY=9XX' is not valid" in refused.line) == (2, True)


def test_adds_days_of_a_wall_clock(cli, queue):
    start = ("--start", "2190-03-01T09:00+01:00")
    ended = cli("schedules", "add", "reminders", "pills", "--every", "2d", "--tz", "Europe/Berlin", *start)
    assert ended.code == 0, ended.err
    assert "every 2d Europe/Berlin" in cli("schedules", "list", "reminders").out
    assert queue.schedules.next("pills", 30)[-1].hour == 9  # in summer


def test_adds_a_schedule_with_every_option(cli, queue):
    ended = cli(
        *("schedules", "add", "reminders", "s", "hello", "--codec", "text", "--every", "90s", "--retries", "0"),
        *("--header", "a=b", "--start", "2190-01-01T00:00Z", "--end", "2191-01-01T00:00Z", "--count", "2"),
        *("--misfire", "skip", "--late-after", "5s", "--message-name", "remind", "--hours", "8:00-21:00"),
    )
    assert ended.code == 0, ended.err
    found = cli("schedules", "show", "reminders", "s", "--json").json
    assert (found["payload"], found["every"], found["retries"], found["headers"]) == ("hello", 90, 0, {"a": "b"})
    assert (found["start"], found["end"]) == ("2190-01-01T00:00:00.000Z", "2191-01-01T00:00:00.000Z")
    assert (found["count"], found["misfire"], found["late_after"]) == (2, "skip", 5)
    assert (found["message_name"], found["hours"]) == ("remind", "08:00-21:00")
    assert "remind" in cli("schedules", "show", "reminders", "s").out
    assert found["next"] == "2190-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--cron", "0 0 30 2 *"], "bad day-of-month"),
        (["--cron", "0 9 * * *", "--tz", "Europe/Berln"], "did you mean 'Europe/Berlin'?"),
        (["--cron", "0 9 * * *", "--every", "1h"], "give cron, every or rrule: one of them"),
        ([], "give cron, every or rrule: one of them"),
        (["--every", "1h", "--tz", "UTC"], "with tz, every must be whole days"),
        (["--every", "10ms"], "every must be between 1s and"),
        (["--every", "soon"], "must look like"),
        (["--every", "1h", "--misfire", "never"], "misfire must be"),
        (["--every", "1h", "--misfire", "1001"], "misfire must be"),
        (["--every", "1h", "--start", "soon"], "--start must look like 2027-01-31T09:00, not 'soon'"),
        (["--every", "1h", "--start", "2027-01-02T00:00Z", "--end", "2027-01-01T00:00Z"], "end is before start"),
        (["--every", "1h", "--hours", "8-21"], "hours must look like '08:00-21:00', "),
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


def test_pauses_schedules_until_a_time(cli, scheduled):
    assert cli("schedules", "pause", "reminders", "digest", "--until", "2d").out == "digest  paused\n"
    assert "paused until" in cli("schedules", "show", "reminders", "digest").out
    shown = cli("schedules", "show", "reminders", "digest", "--json").json
    assert shown["state"] == "paused"
    assert shown["next"] > shown["paused_until"]
    ended = cli("schedules", "pause", "reminders", "digest", "--until", "2001-01-01T00:00")
    assert ended.code == 2
    assert ended.line.startswith("until '2001-01-01")
    assert cli("schedules", "show", "reminders", "digest", "--json").json == shown


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
    (message,) = scheduled.list("ready").messages
    assert ended.out == f"{message.id}\n"
    assert message.id.startswith("asleep@now:")
    assert message.headers == {"schedule": "asleep"}


def test_next_prints_the_next_occurrences(cli, scheduled):
    lines = cli("schedules", "next", "reminders", "digest", "-n", "3", env=OWN_ZONE).out.splitlines()
    assert len(lines) == 3
    for line in lines:
        at = datetime.fromisoformat(line.split()[0])
        assert (at.hour, at.minute, at.isoweekday() < 6) == (9, 0, True)
    assert len(cli("schedules", "next", "reminders", "sweep", "--json").json["next"]) == 3  # its count
    ended = cli("schedules", "next", "reminders", "asleep")
    assert (ended.code, ended.out) == (0, "")
    assert "paused" in ended.err


def test_replan_prints_the_schedules_that_moved(cli, scheduled, redis_client):
    release = zone_release()
    assert cli("schedules", "replan", "reminders").err == (
        f"0 schedules moved; time zone data {release or 'unknown'}, before unknown\n"
    )
    before = cli("schedules", "next", "reminders", "digest", "-n", "1", "--json").json["next"]
    redis_client.zadd(Keys.of("delayq", "reminders").schedules, {"digest": 4_102_444_800_000})
    moved = {"name": "digest", "before": "2100-01-01T00:00:00.000Z", "after": before[0]}
    zones = release or None
    assert cli("schedules", "replan", "reminders", "--json").json == {
        "moved": [moved],
        "zones": zones,
        "zones_before": zones,
    }
    redis_client.zrem(Keys.of("delayq", "reminders").schedules, "digest")
    assert cli("schedules", "replan", "reminders").out == f"digest  none → {before[0]}\n"


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


# Many schedules


@pytest.fixture
def labelled(queue):
    """Two schedules of user 1, one of user 2, and one without a label."""
    for name, user in (("digest-1", 1), ("digest-2", 2)):
        queue.schedules.add(name, cron="0 9 * * *", tz="Europe/Berlin", labels=[f"user:{user}"])
    queue.schedules.add("ping-1", every="1h", labels=["user:1"])
    queue.schedules.add("sweep", every="1h")
    return queue


def listed(cli, *options: str) -> list[str]:
    return [row.split()[0] for row in cli("schedules", "list", "reminders", *options).out.splitlines()[1:]]


def test_lists_schedules_by_label_and_prefix(cli, labelled):
    assert listed(cli, "--label", "user:1") == ["digest-1", "ping-1"]
    assert listed(cli, "--prefix", "digest") == ["digest-1", "digest-2"]
    assert listed(cli, "--label", "user:1", "--prefix", "p") == ["ping-1"]
    ended = cli("schedules", "list", "reminders", "--label", "user:3")
    assert (ended.out, ended.err) == ("", "no schedules in reminders with this label or prefix\n")


def test_lists_schedules_page_by_page(cli, labelled):
    first = cli("schedules", "list", "reminders", "--limit", "3")
    assert first.err == "more: --cursor @ping-1, or --all\n"
    assert listed(cli, "--cursor", "@ping-1") == ["sweep"]
    assert len(listed(cli, "--limit", "1", "--all")) == 4
    page = cli("schedules", "list", "reminders", "--limit", "1", "--json").json
    assert ([one["labels"] for one in page["schedules"]], page["cursor"]) == ([["user:1"]], "@digest-1")
    assert cli("schedules", "list", "reminders", "--json").json["cursor"] is None


def test_adds_and_shows_labels(cli, queue):
    cli("schedules", "add", "reminders", "s", "--every", "1h", "--label", "b:2", "--label", "a")
    assert cli("schedules", "show", "reminders", "s", "--json").json["labels"] == ["a", "b:2"]
    assert "a b:2" in cli("schedules", "show", "reminders", "s").out


def test_changes_the_schedules_of_a_label(cli, labelled):
    selected = ("reminders", "--label", "user:1")
    assert cli("schedules", "pause", *selected).out == "2 schedules paused\n"
    assert cli("schedules", "resume", *selected).out == "2 schedules resumed\n"
    assert cli("schedules", "set", *selected, "--tz", "Europe/Paris", "--misfire", "3").out == "2 schedules changed\n"
    found = {info.name: (info.tz, info.misfire) for info in labelled.schedules.list(label="user:1")}
    assert found == {"digest-1": ("Europe/Paris", 3), "ping-1": ("UTC", 3)}
    assert cli("schedules", "remove", *selected).out == "2 schedules removed\n"
    assert listed(cli) == ["digest-2", "sweep"]


def test_sets_options_by_name(cli, labelled):
    ended = cli("schedules", "set", "reminders", "sweep", "gone", "--every", "2h")
    assert (ended.code, ended.out) == (3, "sweep  changed\n")
    assert "no schedule named 'gone'" in ended.err
    assert labelled.schedules.get("sweep").every.total_seconds() == 7200


@pytest.mark.parametrize("command", ["pause", "resume", "remove", "set", "next"])
@pytest.mark.parametrize("selection", [(), ("sweep", "--label", "user:1"), ("sweep", "--prefix", "s")])
def test_command_needs_names_or_a_label(cli, labelled, command, selection):
    ended = cli("schedules", command, "reminders", *selection)
    assert ended.code == 2
    assert "select schedules: give " in ended.err


def test_shows_the_next_occurrences_of_a_label(cli, labelled):
    lines = cli("schedules", "next", "reminders", "--label", "user:1", "-n", "30").out.splitlines()
    assert len(lines) == 30
    assert {line.split()[-1] for line in lines} == {"digest-1", "ping-1"}
    (one,) = cli("schedules", "next", "reminders", "--prefix", "sw", "-n", "1", "--json").json["next"]
    assert one["name"] == "sweep"
    labelled.schedules.pause(label="user:1")
    ended = cli("schedules", "next", "reminders", "--label", "user:1")
    assert (ended.out, ended.err) == ("", "no next occurrence of schedules with this label or prefix\n")
