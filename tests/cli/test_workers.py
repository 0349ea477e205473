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
    assert re.search(
        r"^worker +version +state +beat +up +queues +callbacks +holds +runs for longest$", out, re.MULTILINE
    )
    row = r"^mail-1:7 +1\.0 +working +[56]s ago +1h( 1m)? +1 +10 +2 +m-7  1m 3[56]s$"
    assert re.search(row, out, re.MULTILINE), out
    assert len(out.splitlines()) == 2
    (found,) = cli("workers", "reminders", "--json").json["workers"]
    assert {name: found[name] for name in ("id", "host", "pid", "version", "state", "served", "held")} == {
        "id": "mail-1", "host": "mail-1", "pid": 7, "version": "1.0", "state": "working", "served": 1, "held": 2,
    }  # fmt: skip
    assert (found["queues"], found["concurrency"]) == (["reminders"], 10)
    assert [message["id"] for message in found["running"]] == ["m-7", "m-8"]
    assert found["running"][0]["since"] < found["running"][1]["since"] < found["beat"]
    assert found["started"] < found["beat"]
    assert 5 <= found["age"] < 10


def test_says_who_is_behind_and_that_versions_differ(cli, tell):
    tell("a")
    tell("b", ago=25, version="1.1", held=3)
    tell("c", ago=95, version="0.9", held=1)
    tell("d", ago=99, version="0.9", held=4)
    lines = cli("workers", "reminders").out.splitlines()
    assert [re.split(r" +", line)[2] for line in lines[1:5]] == ["silent", "silent", "late", "working"]
    assert lines[5:] == [
        "late: 1 worker, which held 3 messages when last heard of",
        "silent: 2 workers, which held 5 messages when last heard of",
        "mixed versions: 1.0 (1), 1.1 (1)",
    ]


def test_stats_count_them(cli, tell):
    tell("a")
    tell("b", ago=40)
    assert re.search(r"^workers +1$", cli("stats", "reminders").out, re.MULTILINE)
    assert cli("stats", "reminders", "--json").json["workers"] == 1


def test_nobody_has_told_of_itself(cli, queue):
    queue.send_delay_msg(1, "1h")
    found = cli("workers", "reminders")
    assert (found.code, found.out, found.err) == (0, "", "no worker of reminders has told of itself\n")
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
