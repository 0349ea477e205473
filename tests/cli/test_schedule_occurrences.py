"""`delayq schedules skip|move|restore|backfill|history`: single occurrences of a schedule."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import pytest

from delayq import DelayQueue
from tests.cli.conftest import OWN_ZONE

FROM = ("--from", "2026-01-31T00:00", "--until", "2026-02-03T00:00")


@pytest.fixture
def open_logged(digest, redis_url):
    """The same queue with its event log on."""
    with DelayQueue("reminders", url=redis_url, events=True) as queue:
        queue.open()
        yield queue


@pytest.fixture
def digest(queue):
    queue.schedules.add("digest", cron="0 9 * * *", tz="Europe/Berlin")
    return queue


def test_backfill_sends_past_occurrences(cli, digest):
    ended = cli("schedules", "backfill", "reminders", "digest", *FROM, "--dry-run", env=OWN_ZONE)
    assert ended.out.splitlines() == [
        "2026-01-31T09:00:00+01:00",
        "2026-02-01T09:00:00+01:00",
        "2026-02-02T09:00:00+01:00",
        "3 occurrences, nothing was sent",
    ]
    assert digest.counts().pending == 0
    backfill = ("schedules", "backfill", "reminders", "digest")
    assert cli(*backfill, *FROM).out == "digest  3 messages sent, 0 existed\n"
    assert digest.get("digest@2026-02-01T08:00:00Z").state == "ready"
    assert cli(*backfill, "--from", "2026-02-01T00:00", "--until", "2026-02-02T00:00", "--json").json == {
        "name": "digest",
        "times": ["2026-02-01T08:00:00.000Z"],
        "sent": 0,
        "existed": 1,
    }


def test_backfill_refuses_too_many_and_unknown_schedules(cli, digest):
    ended = cli("schedules", "backfill", "reminders", "digest", *FROM, "--limit", "2")
    assert (ended.code, ended.line) == (2, "more than 2 occurrences: shorten the time, or raise the limit")
    ended = cli("schedules", "backfill", "reminders", "digets", *FROM)
    assert (ended.code, ended.line) == (3, "no schedule named 'digets', did you mean 'digest'?")


def test_skips_moves_and_restores_occurrences(cli, digest):
    run = partial(cli, "schedules")
    assert run("skip", "reminders", "digest", "2190-12-24", env=OWN_ZONE).out == "2190-12-24T09:00:00+01:00  skipped\n"
    moved = run("move", "reminders", "digest", "2190-12-25T09:00", "--to", "2190-12-25T10:30", env=OWN_ZONE)
    assert moved.out == "2190-12-25T09:00:00+01:00  moved, due 2190-12-25T10:30:00+01:00\n"
    shown = run("show", "reminders", "digest").out
    assert "occurrence 2190-12-24T08:00:00.000Z  skipped" in shown
    assert "2190-12-25 09:30:00 UTC" in shown
    assert run("show", "reminders", "digest", "--json").json["changes"] == [
        {"occurrence": "2190-12-24T08:00:00.000Z", "due": None},
        {"occurrence": "2190-12-25T08:00:00.000Z", "due": "2190-12-25T09:30:00.000Z"},
    ]
    restored = run("restore", "reminders", "digest", "2190-12-25T09:30:00Z", "--json").json
    assert restored == {
        "occurrences": [
            {"occurrence": "2190-12-25T08:00:00.000Z", "due": "2190-12-25T08:00:00.000Z", "outcome": "restored"}
        ]
    }
    assert run("restore", "reminders", "digest", "2190-12-24").code == 0
    assert digest.schedules.get("digest").changes == {}


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("skip", "reminders", "digets", "2190-12-24"), 3, "no schedule named 'digets', did you mean 'digest'?"),
        (
            ("skip", "reminders", "digest", "2190-12-24T10:00"),
            3,
            "digest has no occurrence at 2190-12-24T10:00",
        ),
        (("skip", "reminders", "digest", "tomorrow"), 2, "TIME must look like 2026-12-24T09:00 or 2026-12-24"),
        (("move", "reminders", "digest", "2190-12-24", "--to", "2190-12-24T11:00"), 2, "move takes times such as"),
        (("move", "reminders", "digest", "2190-12-24T09:00", "--to", "2020-01-01T11:00"), 2, "to must be a time that"),
    ],
)
def test_refused_change_of_an_occurrence_is_one_line(cli, digest, arguments, code, error):
    ended = cli("schedules", *arguments)
    assert ended.code == code
    assert ended.line.startswith(error)


def test_history_prints_what_became_of_occurrences(cli, open_logged):
    queue = open_logged
    queue.schedules.backfill("digest", datetime(2026, 1, 31, tzinfo=UTC), datetime(2026, 2, 2, tzinfo=UTC))
    queue.cancel("digest@2026-01-31T08:00:00Z")
    ended = cli("schedules", "history", "reminders", "digest")
    assert [line.split() for line in ended.out.splitlines()] == [
        ["occurrence", "result", "late", "attempts", "error"],
        ["2026-02-01T08:00:00.000Z", "waiting", "0"],
        ["2026-01-31T08:00:00.000Z", "cancelled", "0"],
    ]
    assert ended.err.startswith("the log begins at ")
    found = cli("schedules", "history", "reminders", "digest", "-n", "1", "--json").json
    assert ([one["id"] for one in found["occurrences"]], found["more"]) == (["digest@2026-02-01T08:00:00Z"], False)
    assert cli("schedules", "history", "reminders", "digets").code == 3


def test_history_without_an_event_log_says_how_to_turn_it_on(cli, digest):
    assert "turn it on: delayq events reminders --on" in cli("schedules", "history", "reminders", "digest").err
