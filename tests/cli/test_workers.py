"""`delayq workers`: who consumes a queue, who is behind, and who holds what."""

from __future__ import annotations

import json
import re

import pytest

PREFIX = "delayq:{reminders}:"


@pytest.fixture
def tell(redis_client, queue):
    """`tell("w", ago=5, **fields)` stores what a consumer has told `ago` seconds ago."""
    queue.send_delay_msg(1, "1h")
    now = queue.stats().at.timestamp() * 1000

    def tell(id, *, ago=5.0, **fields):
        entry = {"host": id, "pid": 7, "version": "1.0", "queues": ["reminders"], "served": 1, "concurrency": 10}
        entry |= {"every": 10_000, "up": 3_600_000, "held": 0, "running": []} | fields
        redis_client.hset(f"{PREFIX}workers", id, json.dumps(entry))
        redis_client.zadd(f"{PREFIX}beats", {id: now - 1000 * ago + 30_000})

    return tell


def test_lists_who_works_and_what_they_hold(cli, tell):
    tell("mail-1", held=2, running=[["m-7", 90_000], ["m-8", 10_000]])
    out = cli("workers", "reminders").out
    titles, row, version = out.splitlines()
    assert titles.split(maxsplit=4) == ["worker", "state", "up", "holds", "runs for longest"]
    assert re.fullmatch(r"mail-1:7 +working +1h( 1m)? +2 +1m 3[56]s  m-7", row), row
    assert version == "version 1.0"
    (found,) = cli("workers", "reminders", "--json").json["workers"]
    assert {name: found[name] for name in ("id", "host", "pid", "version", "state", "served", "held")} == {
        "id": "mail-1", "host": "mail-1", "pid": 7, "version": "1.0", "state": "working", "served": 1, "held": 2,
    }  # fmt: skip
    assert (found["queues"], found["concurrency"]) == (["reminders"], 10)
    assert [message["id"] for message in found["running"]] == ["m-7", "m-8"]
    assert found["running"][0]["since"] < found["running"][1]["since"] < found["reported"]
    assert found["started"] < found["reported"]
    assert 5 <= found["age"] < 10


def test_says_who_is_behind_and_that_versions_differ(cli, tell):
    tell("a")
    tell("b", ago=25, version="1.1", held=3)
    tell("c", ago=95, version="0.9", held=1)
    tell("d", ago=99, version="0.9", held=4)
    lines = cli("workers", "reminders").out.splitlines()
    assert lines[0].split()[:3] == ["worker", "version", "state"]
    states = [re.search(r"(silent|late) \S+( \S+s)?|working", line)[0] for line in lines[1:5]]
    assert [state.split()[0] for state in states] == ["silent", "silent", "late", "working"]
    assert all(re.fullmatch(r"silent 1m 3\d+s|silent 1m 4\ds|late 2\ds|working", state) for state in states), states
    assert lines[5:] == [
        "late: 1 worker, which held 3 messages when last heard of",
        "silent: 2 workers, which held 5 messages when last heard of",
        "mixed versions: 1.0 (1), 1.1 (1)",
    ]


def test_a_silent_worker_of_another_version_does_not_mix_them(cli, tell):
    tell("a")
    tell("b", ago=95, version="0.9")
    lines = cli("workers", "reminders").out.splitlines()
    assert lines[0].split()[1] == "version"
    assert lines[3:] == ["silent: 1 worker, which held 0 messages when last heard of"]


def test_a_row_of_usual_names_fits_80_columns(cli, tell):
    message = "06DNmG4qR1Zb7cWkXv2p0A"
    tell("mailer-7f9c5d8b6-x2k4p", held=12, running=[[message, 90_000]])
    lines = cli("workers", "reminders", env={"COLUMNS": "80"}).out.splitlines()
    assert lines[0].startswith("worker ")
    assert max(map(len, lines)) <= 80
    assert message in "".join(lines)


def test_stats_count_them(cli, tell):
    tell("a")
    tell("b", ago=40)
    assert re.search(r"^workers +1$", cli("stats", "reminders").out, re.MULTILINE)
    assert cli("stats", "reminders", "--json").json["workers"] == 1


def test_nobody_has_told_of_itself(cli, queue):
    queue.send_delay_msg(1, "1h")
    found = cli("workers", "reminders")
    assert (found.code, found.out, found.err) == (0, "", "no worker of reminders has reported\n")
    assert cli("workers", "reminders", "--json").json == {"workers": []}


def test_bad_input_is_one_line(cli, queue):
    queue.send_delay_msg(1, "1h")
    wrong = cli("workers", "remindres")
    assert (wrong.code, wrong.out, wrong.err.count("\n")) == (3, "", 1)
    assert "reminders" in wrong.err
    refused = cli("workers", "tasks", "--engine", "streams")
    assert (refused.code, refused.err) == (2, "delayq: the streams engine has no list of workers\n")
    away = cli("--url", "redis://127.0.0.1:1", "--timeout", "100ms", "workers", "reminders")
    assert (away.code, away.out, away.err.count("\n")) == (69, "", 1)


def test_what_a_host_is_called_does_not_reach_the_terminal(cli, tell):
    tell("a", host="\x1b[31mred\x1b[0m\nline", version="\x1b]0;x\x07")
    tell("b", version="2")
    out = cli("workers", "reminders").out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 4
