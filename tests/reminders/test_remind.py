"""`delayq remind`: output, effects and exit codes."""

from __future__ import annotations

import io
import json
import shutil
from datetime import UTC, datetime, timedelta

import pytest

from delayq import DelayQueue, Encrypted, State
from delayq.cli.support.progress import progress_bars
from delayq.reminders import Calendar, read_calendar
from tests.cli.conftest import cli, empty_folder, queue, start  # noqa: F401 - fixtures
from tests.reminders.conftest import FILES, ics

LATE = datetime(2060, 1, 1, tzinfo=UTC)
HOUR = ("--before", "1h", "--until", "50y")
TEAM = ics("UID:a\nDTSTART:20500115T090000Z\nSUMMARY:Kick-off\nLOCATION:Zürich", "UID:b\nDTSTART:20500116T090000Z")


@pytest.fixture
def team(tmp_path):
    """`team.ics`, in the folder of the test."""
    path = tmp_path / "team.ics"
    path.write_bytes(TEAM)
    return path


def pending(queue):  # noqa: F811
    return sorted(message.id for message in queue.list(State.PENDING).messages)


def test_imports_a_file_and_later_its_changes(cli, queue, team):  # noqa: F811
    ended = cli("remind", "import", "team.ics", *HOUR)
    assert (ended.code, ended.out, ended.err) == (0, "team: 2 events; reminders: 2 sent\n", "")
    assert pending(queue) == ["team/a//1h", "team/b//1h"]
    assert queue.get("team/a//1h").payload["location"] == "Zürich"
    team.write_bytes(TEAM.replace(b"20500115", b"20500117").replace(b"UID:b", b"UID:c"))
    ended = cli("remind", "import", "team.ics", *HOUR)
    assert ended.out == "team: 2 events; reminders: 1 sent, 1 moved, 1 cancelled\n"
    assert cli("remind", "import", "team.ics", *HOUR).out == "team: 2 events; reminders: 2 unchanged\n"


def test_json_output(cli, team):  # noqa: F811
    ended = cli("remind", "import", "team.ics", *HOUR, "--queue", "q", "--json")
    assert ended.json == {
        "queue": "q",
        "calendar": "team",
        "events": 2,
        "new": 2,
        "moved": 0,
        "changed": 0,
        "cancelled": 0,
        "refused": 0,
        "late": 0,
        "unchanged": 0,
        "past": 0,
        "spared": 0,
        "account": {"planned": 2, "past": 0, "without_alarm": 0, "refused": 0, "later": 0, "cancelled": 0},
        "problems": [],
    }


def test_preview_prints_changes_and_writes_nothing(cli, queue, team, redis_client):  # noqa: F811
    ended = cli("remind", "plan", "team.ics", *HOUR)
    head, titles, first, _ = ended.out.splitlines()
    assert (ended.code, head) == (0, "team: 2 events; reminders: 2 to be sent")
    assert titles.split() == ["change", "due", "start", "offset", "summary"]
    assert first.split() == ["send", "2050-01-15T08:00:00.000Z", "2050-01-15T09:00:00+00:00", "1h", "Kick-off"]
    assert redis_client.keys() == []
    cli("remind", "import", "team.ics", *HOUR)
    team.write_bytes(ics("UID:a\nDTSTART:20500116T090000Z"))
    ended = cli("remind", "plan", "team.ics", *HOUR)
    assert [line.split()[0] for line in ended.out.splitlines()[2:]] == ["move", "cancel"]
    assert "team/b//1h" in ended.out
    result = cli("remind", "plan", "team.ics", *HOUR, "--json").json
    assert [(row["change"], row["id"]) for row in result["changes"]] == [
        ("move", "team/a//1h"),
        ("cancel", "team/b//1h"),
    ]
    assert pending(queue) == ["team/a//1h", "team/b//1h"]


def test_long_preview_is_cut_without_all(cli, team):  # noqa: F811
    team.write_bytes(ics(*(f"UID:{n}\nDTSTART:20500116T090000Z" for n in range(60))))
    ended = cli("remind", "plan", "team.ics", *HOUR)
    assert (len(ended.out.splitlines()), ended.err) == (52, "and 10 more (--all shows them)\n")
    assert len(cli("remind", "plan", "team.ics", *HOUR, "--all").out.splitlines()) == 62


@pytest.mark.parametrize("command", ["import", "plan"])
def test_unreadable_events_are_a_line_each_and_exit_code_1(cli, queue, tmp_path, command):  # noqa: F811
    shutil.copy(FILES / "broken.ics", tmp_path)
    ended = cli("remind", command, "broken.ics", *HOUR, "--tz", "Europe/Berlin")
    assert ended.code == 1
    assert ended.out.startswith("broken: 8 events: 2 planned, 6 refused; reminders: ")
    lines = ended.err.splitlines()
    assert len(lines) == 6
    assert lines[0] == "broken.ics, line 11: event 'No start': it has no start (DTSTART)"
    result = cli("remind", command, "broken.ics", *HOUR, "--json")
    assert result.code == 1
    assert result.json["problems"][0] == {
        "file": "broken.ics",
        "line": 11,
        "event": "No start",
        "uid": "no-start",
        "problem": "it has no start (DTSTART)",
    }


def test_strict_imports_nothing(cli, queue, team, tmp_path, redis_client):  # noqa: F811
    shutil.copy(FILES / "broken.ics", tmp_path)
    ended = cli("remind", "import", "team.ics", "broken.ics", *HOUR, "--strict")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.splitlines()[-1] == "delayq: 6 problems; nothing was imported (--strict)"
    assert redis_client.keys() == []
    assert cli("remind", "import", "team.ics", *HOUR, "--strict").code == 0


def test_unreadable_event_keeps_its_reminders(cli, queue, team):  # noqa: F811
    cli("remind", "import", "team.ics", *HOUR)
    team.write_bytes(TEAM[: len(TEAM) // 2])
    ended = cli("remind", "import", "team.ics", *HOUR)
    assert ended.code == 1
    assert "left unchanged: their events could not be read" in ended.err
    assert pending(queue) == ["team/a//1h", "team/b//1h"]


def test_each_file_is_a_calendar_unless_named(cli, team, tmp_path):  # noqa: F811
    (tmp_path / "home.ics").write_bytes(ics("UID:h\nDTSTART:20500115T090000Z"))
    ended = cli("remind", "import", "team.ics", "home.ics", *HOUR)
    assert [line.split(":")[0] for line in ended.out.splitlines()] == ["team", "home"]
    ended = cli("remind", "import", "team.ics", "home.ics", *HOUR, "--calendar", "both")
    assert ended.out == "both: 3 events; reminders: 3 sent\n"


def test_reads_stdin_under_a_name(cli, queue):  # noqa: F811
    assert cli("remind", "import", "-", *HOUR, "--calendar", "piped", stdin=TEAM).code == 0
    assert pending(queue) == ["piped/a//1h", "piped/b//1h"]
    ended = cli("remind", "import", "-", *HOUR, stdin=TEAM)
    assert (ended.code, "give --calendar" in ended.line) == (2, True)


def test_every_option_has_its_effect(cli, queue, tmp_path):  # noqa: F811
    shutil.copy(FILES / "outlook.ics", tmp_path / "o.ics")
    options = ("--alarms", "--until", "50y", "--quiet", "22:00-07:00", "--retries", "9", "--grace", "1h")
    assert cli("remind", "import", "o.ics", *options).code == 0
    assert all(id.endswith("/15m") for id in pending(queue))
    assert all(message.retries_left == 9 for message in queue.list(State.PENDING).messages)
    assert cli("remind", "import", "o.ics", *options, "--again", "--json").json["unchanged"] == 0


def test_horizon_can_be_a_time(cli, queue, team):  # noqa: F811
    ended = cli("remind", "import", "team.ics", "--before", "1h", "--until", "2050-01-16T00:00Z")
    assert ended.out == "team: 2 events: 1 planned, 1 later; reminders: 1 sent\n"
    assert pending(queue) == ["team/a//1h"]


def test_refused_reminders_are_reported_with_exit_code_1(cli, queue, team):  # noqa: F811
    cli("remind", "import", "team.ics", *HOUR)
    queue.reschedule("team/a//1h", 0)
    queue.executor.call(queue.context.calls.configure(events=None, dedupe_window=3_600_000, dedupe_max=100))
    with queue.lease():
        pass
    team.write_bytes(TEAM.replace(b"20500115", b"20500120"))
    ended = cli("remind", "import", "team.ics", *HOUR)
    assert ended.code == 1
    assert ended.err == "1 reminder not updated: they are being processed, or were just settled; import again\n"
    queue.executor.call(queue.context.calls.configure(events=None, dedupe_window=0, dedupe_max=100))
    assert cli("remind", "import", "team.ics", *HOUR).out == "team: 2 events; reminders: 1 sent, 1 unchanged\n"


def test_lists_calendars_and_their_reminders(cli, team):  # noqa: F811
    cli("remind", "import", "team.ics", *HOUR, "--tz", "Europe/Berlin")
    head, row = cli("remind", "list").out.splitlines()
    assert head.split() == ["calendar", "reminders", "next", "changed", "before", "quiet", "tz"]
    assert (row.split()[:2], row.split()[-2:]) == (["team", "2"], ["1h", "Europe/Berlin"])
    assert "Kick-off" in cli("remind", "list", "team").out
    listed = cli("remind", "list", "--json").json["calendars"]
    assert [(one["calendar"], one["reminders"], one["finished"]) for one in listed] == [("team", 2, True)]
    (first, _) = cli("remind", "list", "team", "--json").json["reminders"]
    assert (first["id"], first["due"]) == ("team/a//1h", "2050-01-15T08:00:00.000Z")


@pytest.mark.usefixtures("team")
def test_lists_the_others_beside_an_encrypted_calendar(cli, redis_url):  # noqa: F811
    cli("remind", "import", "team.ics", *HOUR)
    with DelayQueue("reminders", url=redis_url, codec=Encrypted({"k": bytes(16)}, allow_plain=True)) as sealed:
        Calendar(sealed, "medical", "1h").update(read_calendar([("x.ics", TEAM)], now=datetime.now(UTC), until=LATE))
    _, *rows = cli("remind", "list").out.splitlines()
    assert [row.split()[:2] for row in rows] == [["medical", "encrypted"], ["team", "2"]]
    first, second = cli("remind", "list", "--json").json["calendars"]
    assert (first["calendar"], first["encrypted"], first["reminders"], first.keys()) == (
        *("medical", True, None),
        second.keys(),
    )
    assert (second["calendar"], second["encrypted"], second["reminders"]) == ("team", False, 2)
    assert "Kick-off" in cli("remind", "list", "team").out
    assert cli("remind", "replan", "team").code == 0
    for words in (["list", "medical"], ["replan"], ["forget", "medical", "--yes"]):
        assert cli("remind", *words).line == (
            "the plan of calendar medical is encrypted: use a program that has its keys"
        )
    assert cli("remind", "forget", "team", "--yes").out == "team: cancelled 2 reminders\n"


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("summary", {"summary"}),
        ("*", {"summary", "location", "uid", "recurrence", "start", "offset"}),
        ("**", {"summary", "location", "uid", "recurrence", "start", "offset"}),
        ("**.location", {"location"}),
        ("card.number", set()),
    ],
)
@pytest.mark.usefixtures("team")
def test_list_hides_what_the_queue_redacts(cli, redis_url, path, hidden):  # noqa: F811
    with DelayQueue("reminders", url=redis_url, redact=[path]) as hiding:
        hiding.open()
    cli("remind", "import", "team.ics", *HOUR)
    (first, _) = cli("remind", "list", "team", "--json").json["reminders"]
    assert {name for name, value in first.items() if value == "[redacted]"} == hidden
    assert ("Kick-off" in cli("remind", "list", "team").out) == ("summary" not in hidden)
    (first, _) = cli("remind", "list", "team", "--json", "--reveal").json["reminders"]
    assert (first["summary"], first["location"]) == ("Kick-off", "Zürich")
    assert "Kick-off" in cli("remind", "list", "team", "--reveal").out


def test_list_without_calendars(cli, queue):  # noqa: F811
    assert cli("remind", "list").line == "no queue named 'reminders'"
    queue.open()
    assert cli("remind", "list").err == "no calendars in reminders: add one with delayq remind import\n"
    ended = cli("remind", "list", "team")
    assert (ended.code, ended.line) == (3, "no calendar named 'team'")


def test_replan(cli, team):  # noqa: F811
    cli("remind", "import", "team.ics", *HOUR)
    assert cli("remind", "replan").out == "team: reminders: 2 unchanged\n"
    result = cli("remind", "replan", "team", "--json").json
    assert (result["calendar"], result["unchanged"]) == ("team", 2)
    assert cli("remind", "replan", "teem").line == "no calendar named 'teem', did you mean 'team'?"


def test_forget(cli, queue, team):  # noqa: F811
    cli("remind", "import", "team.ics", *HOUR)
    ended = cli("remind", "forget", "team")
    assert (ended.code, "give --yes" in ended.line) == (2, True)
    assert cli("remind", "forget", "team", "--yes").out == "team: cancelled 2 reminders\n"
    assert pending(queue) == []
    assert cli("remind", "forget", "team", "--yes").code == 3


def test_shows_progress_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bars() as add_bar:
        advance = add_bar("reading \x1b[31mteam.ics")
        advance(500, 1234)
    assert "reading team.ics" in terminal.getvalue()
    assert "500/1,234" in terminal.getvalue()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "when should it remind? give --before 1d"),
        (["--before", "soon"], "an offset must look like"),
        (["--before", "1h", "--tz", "Europe/Berln"], "did you mean 'Europe/Berlin'"),
        (["--before", "1h", "--quiet", "night"], "quiet hours must look like"),
        (["--before", "1h", "--until", "never"], "must look like"),
        (["--before", "1h", "--until", "2020-01-01T00:00Z"], "until must be after now"),
        (["--before", "1h", "--calendar", "a b"], "calendar must be"),
        (["--before", "1h", "--grace", "-1h"], "must look like"),
        (["nothing.ics", "--before", "1h"], "'nothing.ics' does not exist"),
        (["sub/team.ics", "--before", "1h"], "2 files are called 'team'"),
    ],
)
def test_usage_errors_are_one_line(cli, team, tmp_path, options, message):  # noqa: F811
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "team.ics").write_bytes(TEAM)
    ended = cli("remind", "import", "team.ics", *options)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.line


def test_unreachable_redis_is_one_line(cli, team):  # noqa: F811
    for command in ("import", "plan"):
        ended = cli("--url", "redis://127.0.0.1:1", "--timeout", "100ms", "remind", command, "team.ics", *HOUR)
        assert ended.code == 69
        assert ended.line


def test_missing_extra_is_named(cli, team, monkeypatch):  # noqa: F811
    monkeypatch.setitem(__import__("sys").modules, "icalendar", None)
    ended = cli("remind", "import", "team.ics", *HOUR)
    assert (ended.code, ended.line) == (2, "iCalendar files need the extra: pip install 'delayq[reminders]'")


def test_control_characters_of_events_are_escaped(cli, team):  # noqa: F811
    team.write_bytes(ics("UID:a\nSUMMARY:\x1b[31mred\x07\nDTSTART;TZID=No:20500115T090000"))
    ended = cli("remind", "import", "team.ics", *HOUR)
    assert ended.code == 1
    assert "\x1b" not in ended.err
    assert json.loads(cli("remind", "import", "team.ics", *HOUR, "--json").out)["problems"]


def test_late_reminders_are_told(cli, tmp_path):  # noqa: F811
    begin = datetime.now(UTC) + timedelta(hours=2)
    (tmp_path / "team.ics").write_bytes(ics(f"UID:a\nDTSTART:{begin:%Y%m%dT%H%M%SZ}\nSUMMARY:Kick-off"))
    command = ["remind", "import", "team.ics", "--before", "1d"]
    ended = cli(*command, "--late", "note")
    assert ended.out == "team: 1 event: 1 past; reminders: 1 past\n"
    assert ended.err == f"late, not sent: 1d before 'Kick-off', {begin:%Y-%m-%dT%H:%M:%S}+00:00\n"
    assert cli("remind", "plan", *command[2:]).out.startswith(
        "team: 1 event; reminders: 1 to be sent, 1 late, to be sent"
    )
    assert cli(*command).out == "team: 1 event; reminders: 1 sent, 1 late, sent now\n"
    assert cli(*command).out == "team: 1 event; reminders: 1 unchanged\n"


def test_account_of_an_import_adds_up(cli, tmp_path):  # noqa: F811
    alarm = "BEGIN:VALARM\nTRIGGER:-PT1H\nEND:VALARM"
    events = [
        f"UID:planned\nDTSTART:20500115T090000Z\nRRULE:FREQ=DAILY;COUNT=3\n{alarm}",
        f"UID:planned\nRECURRENCE-ID:20500116T090000Z\nDTSTART:20500116T100000Z\n{alarm}",
        f"UID:past\nDTSTART:20200115T090000Z\n{alarm}",
        "UID:without\nDTSTART:20500115T090000Z",
        "UID:broken\nDTSTART:never",
        "UID:later\nDTSTART:29990115T090000Z",
        "UID:cancelled\nDTSTART:20500115T090000Z\nSTATUS:CANCELLED",
    ]
    (tmp_path / "team.ics").write_bytes(ics(*events))
    command = ["team.ics", "--alarms", "--until", "50y"]
    counts = "2 planned, 1 past, 1 without alarm, 1 refused, 1 later, 1 cancelled"
    for _ in range(2):
        assert cli("remind", "import", *command).out.startswith(f"team: 7 events: {counts}; reminders: 3 ")
    rows = cli("remind", "plan", *command, "--json").json["left_out"]
    assert {row["uid"]: row["why"] for row in rows} == {
        "past": "past",
        "without": "without alarm",
        "broken": "refused",
        "later": "later",
        "cancelled": "cancelled",
    }
    assert "without alarm: event 'without'\n" in cli("remind", "plan", *command, "--all").err
