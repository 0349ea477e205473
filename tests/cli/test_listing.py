"""`delayq list` and `dead list`: periods, JSON lines, CSV, and tables in a pipe or a narrow terminal."""

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from delayq import DelayQueue, NewMessage

START = datetime(2033, 5, 18, 12, tzinfo=UTC)


@pytest.fixture
def hourly(queue):
    """Six messages, m0 to m5, each an hour after the one before."""
    queue.send_many([NewMessage({"n": n}, at=START + timedelta(hours=n), id=f"m{n}") for n in range(6)])
    return queue


def ids(ended):
    return [json.loads(line)["id"] for line in ended.out.splitlines()]


# Periods


@pytest.mark.parametrize(
    ("period", "found"),
    [
        (["--from", "2033-05-18T14:00Z"], ["m2", "m3", "m4", "m5"]),
        (["--to", "2033-05-18T14:00Z"], ["m0", "m1"]),
        (["--from", "2033-05-18T13:00Z", "--to", "2033-05-18T15:00+00:00"], ["m1", "m2"]),
        (["--from", "2033-05-18T16:00+02:00", "--to", "2033-05-18T15:00Z"], ["m2"]),
        (["--from", "now", "--to", "+1d"], []),
        (["--from", "-1h"], ["m0", "m1", "m2", "m3", "m4", "m5"]),
        (
            ["--from", "2033-05-18T13:00Z", "--to", "2033-05-18T17:00Z", "--all", "--limit", "1"],
            ["m1", "m2", "m3", "m4"],
        ),
    ],
)
def test_lists_the_messages_due_in_a_period(cli, hourly, period, found):
    assert ids(cli("list", "reminders", "--jsonl", *period)) == found


@pytest.mark.parametrize("state", [[], ["--state", "ready"]])
def test_lists_what_is_due_in_a_period(cli, hourly, state):
    hourly.send_many([NewMessage(n, at=datetime.now(UTC) - timedelta(hours=n), id=f"due{n}") for n in (1, 3, 5)])
    assert ids(cli("list", "reminders", "--jsonl", "--from", "-4h", "--to", "now", *state)) == ["due3", "due1"]
    assert ids(cli("list", "reminders", "--jsonl", "--to", "-4h", *state)) == ["due5"]
    assert cli("list", "reminders", "--to", "-9h").err == "no living messages in reminders in this time\n"


def test_times_without_a_zone_are_in_the_chosen_one(cli, hourly):
    period = ["--from", "2033-05-18T14:00", "--to", "2033-05-18T15:00"]
    assert ids(cli("--tz", "UTC", "list", "reminders", "--jsonl", *period)) == ["m2"]
    assert ids(cli("--tz", "Europe/Berlin", "list", "reminders", "--jsonl", *period)) == ["m0"]  # 14:00 is 12:00 UTC


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--from", "0001-01-01T00:00"], "--from must lie between 1970 and 2199"),
        (["--from", "tomorrow"], "--from must look like 2027-01-31T09:00, now, +2h or -1d, not 'tomorrow'"),
        (["--to", "+soon"], "--to must look like"),
        (
            ["--from", "2033-05-18T14:00Z", "--to", "2033-05-18T13:00Z"],
            "--from 2033-05-18T14:00:00.000Z is after --to 2033-05-18T13:00:00.000Z",
        ),
        (
            ["--from", "now", "--state", "dead"],
            "--from and --to work with pending and ready messages, not with dead ones",
        ),
        (["--json", "--csv"], "choose one of --json, --jsonl and --csv"),
    ],
)
def test_refuses_wrong_periods_and_formats(cli, hourly, options, error):
    ended = cli("list", "reminders", *options)
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.line


# Formats


def test_json_lines_are_the_messages_of_the_json(cli, hourly):
    pages = cli("list", "reminders", "--json").json["messages"]
    ended = cli("list", "reminders", "--jsonl", "--limit", "4")
    assert [json.loads(line) for line in ended.out.splitlines()] == pages[:4]
    assert re.fullmatch(r"more: --cursor \S+, or --all\n", ended.err)
    assert cli("list", "reminders", "--jsonl", "--state", "dead").out == ""


def test_csv_has_the_fields_of_the_json(cli, hourly):
    messages = cli("list", "reminders", "--json").json["messages"]
    rows = list(csv.DictReader(io.StringIO(cli("list", "reminders", "--csv", "--all").out)))
    assert [list(row) for row in rows] == [list(message) for message in messages]
    assert [(row["id"], json.loads(row["payload"]), row["due"]) for row in rows] == [
        (message["id"], message["payload"], message["due"]) for message in messages
    ]
    (head,) = csv.reader(io.StringIO(cli("list", "reminders", "--csv", "--state", "dead").out))
    assert head == list(messages[0])


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "=cmd|' /C calc'!A0", '=HYPERLINK("x")'])
def test_csv_contains_no_formula(cli, redis_url, text):
    with DelayQueue("reminders", url=redis_url, codec="text") as queue:
        queue.send_delay_msg(text, id="=id")
        with queue.lease() as message:
            message.reject(text)
    (row,) = csv.DictReader(io.StringIO(cli("dead", "list", "reminders", "--csv").out))
    assert (row["payload"], row["reason"], row["id"]) == (f"'{text}", f"'{text}", "'=id")
    assert (row["size"], row["attempts"]) == (str(len(text)), "1")  # numbers stay numbers


def test_empty_list_of_items_has_the_columns_of_items_as_csv(cli):
    (head,) = csv.reader(io.StringIO(cli("list", "jobs", "--engine", "workqueue", "--csv").out))
    assert head == ["id", "state", "payload", "encoding", "truncated", "size", "consumer", "deadline"]


# Tables


def test_rows_in_a_pipe_are_aligned_and_complete(cli, queue, monkeypatch):
    monkeypatch.setattr("delayq.cli.messages.list.MAX_ROWS", 2)
    queue.send_many(
        [NewMessage(text, delay=60, id=id) for id, text in zip("abc", ("x" * 150, "日本語", "é"), strict=True)]
    )
    head, *rows = cli("list", "reminders", "--all").out.splitlines()
    assert head.split() == ["id", "state", "due", "payload"]
    assert [row.split()[0] for row in rows] == ["a", "b", "c"]
    assert "x" * 150 in rows[0]
    at = rows[0].index('"')
    assert [row.index('"') for row in rows] == [at] * 3


TABLES = [
    ["queues"],
    ["stats", "reminders"],
    ["list", "reminders"],
    ["list", "reminders", "--state", "active"],
    ["list", "reminders", "--state", "backoff"],
    ["dead", "list", "reminders"],
    ["schedules", "list", "reminders"],
    ["runs", "reminders"],
    ["show", "reminders", "held"],
    ["docs"],
]


@pytest.fixture
def everything(queue):
    """Something in every table, with long words."""
    queue.send_many([{"text": "remember the milk and the bread"}] * 2, "1h", run="nightly-import-of-2033")
    for id in ("held", "failed", "died"):
        queue.send_delay_msg("hello", id=id)
    _, failed, died = queue.lease("60s", n=3).messages
    failed.nack(delay=3600, error="ConnectionError: refused by the mail server of the provider")
    died.reject("no such user in the whole database")
    queue.schedules.add("digest-of-the-day", payload={"to": "all"}, cron="0 9 * * MON-FRI", tz="Europe/Berlin")


@pytest.mark.parametrize("arguments", TABLES, ids=" ".join)
def test_tables_can_be_read_in_a_terminal_of_40_columns(cli, everything, arguments):
    narrow, wide = (cli(*arguments, env={"COLUMNS": str(width)}).out for width in (40, 200))
    assert max(map(len, narrow.splitlines())) <= 40
    squeezed = re.sub(r"\s", "", narrow)
    lost = {word for word in re.findall(r"[A-Za-z]{4,}", wide) if word not in squeezed}
    assert lost <= {"error", "last"}  # titles of columns that are empty here


# Times


def test_times_are_shown_in_the_chosen_zone(cli, hourly, queue):
    queue.send_delay_msg(1, "1h", id="x")
    assert "2033-05-18 14:00:00 CEST" in cli("--tz", "Europe/Berlin", "show", "reminders", "m0").out
    assert "2033-05-18 12:00:00 UTC" in cli("--tz", "UTC", "show", "reminders", "m0").out
    assert "2033-05-18 08:00:00 EDT" in cli("show", "reminders", "m0", env={"DELAYQ_TZ": "America/New_York"}).out
    assert cli("--tz", "Europe/Berlin", "show", "reminders", "m0", "--json").json["due"] == "2033-05-18T12:00:00.000Z"


@pytest.mark.long
def test_times_are_shown_in_the_local_zone_by_default(start, hourly):
    program = start("show", "reminders", "m0", env={"TZ": "Asia/Tokyo"})
    assert program.ends() == 0
    assert "2033-05-18 21:00:00 JST" in program.out


def test_events_are_shown_in_the_chosen_zone(cli, queue):
    cli("events", "reminders", "--on")
    queue.send_schedule_msg(1, at=START)
    assert "due 2033-05-18T14:00:00.000+02:00" in cli("--tz", "Europe/Berlin", "events", "reminders").out
    assert "due 2033-05-18T12:00:00.000Z" in cli("events", "reminders").out


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", "Europe"])
def test_unknown_zone_is_refused(cli, zone):
    ended = cli("--tz", zone, "queues")
    assert (ended.code, ended.out) == (2, "")
    assert ended.line.startswith(f"--tz must be a time zone such as Europe/Berlin, not {zone!r}")
