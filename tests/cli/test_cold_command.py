"""`delayq cold`: moves messages to files and back, tells what is cold; and who else tells of it."""

from __future__ import annotations

import json
import shutil

import pytest

from delayq import NewMessage
from delayq.bulk.cold.cold_calls import set_calls
from delayq.queue.inspecting.cold_tier import DAY
from tests.support.cold import day_later, days
from tests.support.waiting import wait_until

MOVED = "spilled 3, brought back 0; 3 cold"


@pytest.fixture
def filled(queue):
    """Two messages due in 20 days, one in 40, one in 3."""
    due = {"a": 20, "b": 20, "c": 40, "d": 3}
    queue.send_many(NewMessage("m", id=id, delay=day_later(day)) for id, day in due.items())
    return queue


@pytest.fixture
def late(filled, cli, tmp_path):
    """A queue of which two messages should be back."""
    cli("cold", "reminders", str(tmp_path / "cold"))
    filled.executor.call(set_calls(filled.context.calls, keep=50 * DAY))
    return filled


def test_moves_tells_and_finds(cli, filled, tmp_path):
    assert "queue reminders has no cold tier yet: give a FOLDER" in cli("cold", "reminders").line
    assert "has no cold tier: delayq cold reminders FOLDER" in cli("cold", "reminders", "--status").err
    moved = cli("cold", "reminders", str(tmp_path / "cold"))
    assert (moved.code, moved.out, moved.err) == (0, "", f"{MOVED}\n")

    status = cli("cold", "reminders", "--status", "--json").json
    first, second = days(20, 40)
    assert status | {"where": ""} == {
        "queue": "reminders",
        "where": "",
        "cold": 3,
        "late": 0,
        "days": {first: 2, second: 1},
    }
    shown = cli("cold", "reminders", "--status").out
    assert [line.split() for line in shown.splitlines() if "20" in line][-2:] == [[first, "2"], [second, "1"]]

    found = cli("cold", "reminders", "--find", "a", "--json").json
    assert (found["id"], found["withdrawn"], found["file"][4:14]) == ("a", False, first)
    assert cli("cold", "reminders", "--find", "d").line == "no message 'd' in the cold tier of reminders"
    filled.cancel("a")
    filled.reschedule("b", "50d")
    assert "it does not come back" in cli("cold", "reminders", "--find", "a").out
    assert cli("cold", "reminders", "--find", "b", "--json").json["due"][:10] == days(50)[0]

    back = cli("cold", "reminders", "--keep", "90d", "--json").json  # where it was used last
    assert (back["restored"], back["withdrawn"], back["cold"]) == (2, 1, 0)
    assert filled.counts().pending == 3


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--status", "--follow"), (2, "--follow, --status and --find do not go together")),
        (("folder", "--keep", "1h", "--every", "1h"), (2, "keep must be at least 2 times every")),
        (("folder", "--keep", "soon"), (2, "soon")),
        (("taken",), (1, "taken' of the cold tier cannot be used")),
    ],
)
def test_bad_input_is_one_line_and_moves_nothing(cli, filled, tmp_path, options, told):
    (tmp_path / "taken").write_text("a file")
    ended = cli("cold", "reminders", *options)
    assert (ended.code, ended.out, told[1] in ended.line) == (told[0], "", True)
    assert filled.counts().pending == 4


def test_unknown_queue_is_not_found(cli, filled):
    ended = cli("cold", "remindrs", "folder")
    assert ended.code == 3
    assert "reminders" in ended.line


def test_follows_until_it_is_stopped(start, filled, tmp_path):
    program = start("cold", "reminders", str(tmp_path / "cold"), "--follow", "--json")
    program.until(lambda: program.out.count("\n") == 1, "the first pass")
    assert json.loads(program.out)["spilled"] == 3
    program.signal()
    assert program.ends() == 0


def test_repeats_a_pass_that_has_failed(start, filled, tmp_path):
    folder = tmp_path / "cold"
    program = start("cold", "reminders", str(folder), "--follow", "--every", "100ms", "--json")
    program.until(lambda: program.out.count("\n") > 0, "the first pass")
    shutil.move(folder, tmp_path / "away")
    program.says("the cold tier of reminders failed, again in 100ms")
    wait_until(lambda: not folder.exists() or shutil.rmtree(folder) is None)
    shutil.move(tmp_path / "away", folder)
    done = program.out.count("\n")
    program.until(lambda: program.out.count("\n") > done, "a pass")
    program.signal()
    assert program.ends() == 0
    assert filled.counts().cold == 3


def test_counts_and_forecast_have_both(cli, filled, tmp_path):
    cli("cold", "reminders", str(tmp_path / "cold"))
    assert cli("stats", "reminders", "--json").json["cold"] == 3
    assert "delayq cold reminders" in cli("stats", "reminders").out
    found = cli("forecast", "reminders", "--until", "30d", "--json").json
    assert (found["cold"], found["later"]) == (3, 1)
    assert sum(bucket["pending"] for bucket in found["buckets"]) == 3
    firing = {bucket["start"][:10]: bucket["pending"] for bucket in found["buckets"] if bucket["pending"]}
    assert firing == {days(3)[0]: 1, days(20)[0]: 2}
    assert "3 in files" in cli("forecast", "reminders").out


def test_an_id_that_may_be_cold_is_told(cli, filled, tmp_path):
    cli("cold", "reminders", str(tmp_path / "cold"))
    for command in ("show", "why"):
        ended = cli(command, "reminders", "a")
        assert ended.code == 3
        assert "one of 3 in the cold tier" in ended.line
    assert "3 messages are in the cold tier" in cli("why", "reminders").out


def test_what_is_late_is_told(cli, late):
    ended = cli("cold", "reminders", "--status")
    assert (ended.code, ended.err) == (4, "2 messages should be back: run delayq cold reminders\n")
    ended = cli("doctor", "reminders")
    assert ended.code == 4
    assert f"cold tier is late: 2 of {days(20)[0]} on should be back from" in ended.out
    cli("cold", "reminders", "--keep", "30d")
    assert "cold tier" not in cli("doctor", "reminders").out
