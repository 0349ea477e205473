"""`delayq migrate`: output and exit codes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from delayq.migrate.migration import WhyLeft
from tests.migrate.conftest import arrived, dump_all
from tests.support.processes import Process


def test_prints_what_was_moved_and_left(cli, go, queue):
    left = go.fill()
    ended = cli("migrate", "example")
    assert (ended.code, ended.err) == (0, "")
    table, rest = ended.out.splitlines()[:6], ended.out.splitlines()[6:]
    assert [line.split() for line in table] == [
        ["structure", "found", "moved", "left"],
        ["pending", "3", "2", "1"],
        ["ready", "3", "2", "1"],
        ["retry", "2", "2", "0"],
        ["unack", "2", "2", "0"],
        ["garbage", "1", "0", "1"],
    ]
    assert rest == [
        f"pending  {left['pending'][0]}  no payload",
        f"ready  {left['ready'][0]}  no payload",
        f"garbage  {left['garbage'][0]}  failed for good",
        "moved 8 messages of example to example; left 3: 2 no payload, 1 failed for good",
    ]
    assert arrived(queue, go) == go.expected


def test_in_json(cli, go, queue):
    left = go.fill()
    ended = cli("migrate", "example", "--to", "other", "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.json == {
        "name": "example",
        "queue": "other",
        "dry_run": False,
        "complete": True,
        "came": 0,
        "places": {
            "pending": {"found": 3, "moved": 2, "left": 1},
            "ready": {"found": 3, "moved": 2, "left": 1},
            "retry": {"found": 2, "moved": 2, "left": 0},
            "unack": {"found": 2, "moved": 2, "left": 0},
            "garbage": {"found": 1, "moved": 0, "left": 1},
        },
        "left": {"no payload": 2, "failed for good": 1},
        "listed": [
            {"place": "pending", "id": left["pending"][0], "reason": "no payload"},
            {"place": "ready", "id": left["ready"][0], "reason": "no payload"},
            {"place": "garbage", "id": left["garbage"][0], "reason": "failed for good"},
        ],
    }


def test_a_dry_run_changes_nothing(cli, go, redis_client):
    go.fill()
    before = dump_all(redis_client)
    ended = cli("migrate", "example", "--dry-run")
    assert ended.code == 0
    assert ended.out.splitlines()[-1].startswith("would move 8 messages of example to example; left 3")
    assert dump_all(redis_client) == before
    assert cli("migrate", "example", "--dry-run", "--json").json["dry_run"] is True


def test_from_prefix_and_from_url(cli, go, queue, start_redis):
    go.base = "mine:example"
    go.__post_init__()
    go.pending(b"m")
    assert cli("migrate", "example").code == 3
    there = start_redis()
    url = queue._options["url"]
    ended = cli("--url", there.url, "migrate", "example", "--from-url", url, "--from-prefix", "mine")
    assert (ended.code, go.ids()) == (0, {})
    with there.client() as client:
        assert client.hlen("delayq:{example}:messages") == 1


def test_exit_code_1_if_go_would_still_deliver_a_message(cli, go, redis_client):
    go.pending(b"m")
    redis_client.zadd(go.key("pending"), {"bad \x1b[31mid": go.now})
    ended = cli("migrate", "example")
    assert (ended.code, ended.err) == (1, "")
    assert ended.out.splitlines()[-2:] == [
        f"pending  bad id  {WhyLeft.BAD_ID}",
        "moved 1 message of example to example; left 1: 1 no valid id",
    ]


def test_leases(cli, go, queue):
    go.leased(b"in work", ago=0)
    ended = cli("migrate", "example")
    assert (ended.code, ended.out) == (1, "")
    assert ended.line.startswith("Go workers have leased 1 of the messages of example")
    assert cli("migrate", "example", "--dry-run").code == 1
    assert cli("migrate", "example", "--take-leased").code == 0
    assert arrived(queue, go) == go.expected


def test_garbage(cli, go):
    go.failed(b"m", retries=0)
    assert cli("migrate", "example", "--with-garbage").code == 0
    assert go.ids() == {}


def test_unknown_go_queue_is_not_found(cli, redis_client):
    ended = cli("migrate", "example")
    assert (ended.code, ended.out) == (3, "")
    assert ended.line == "no queue of the Go library named 'example'"
    assert redis_client.keys() == []


@pytest.mark.parametrize(
    "arguments", [[], ["white space"], [""], ["example", "--to", "white space"], ["example", "--from-prefix", ""]]
)
def test_wrong_usage(cli, redis_client, arguments):
    ended = cli("migrate", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.line
    assert redis_client.keys() == []


def test_name_invalid_in_delayq_needs_to(cli, go, queue):
    go.base = "dp:延迟 queue"
    go.__post_init__()
    go.pending(b"m")
    assert "give a valid name with --to" in cli("migrate", "延迟 queue").line
    assert cli("migrate", "延迟 queue", "--to", "example").code == 0
    assert arrived(queue, go) == go.expected


@pytest.mark.parametrize("which", ["--url", "--from-url"])
def test_unreachable_redis(cli, go, tmp_path, which):
    go.pending(b"m")
    nowhere = f"unix://{tmp_path}/none"
    before = [which, nowhere] if which == "--url" else []
    after = [which, nowhere] if which == "--from-url" else []
    ended = cli("--timeout", "0.2", *before, "migrate", "example", *after)
    assert (ended.code, ended.out) == (69, "")
    assert ended.line
    assert len(go.ids()["pending"]) == 1


@pytest.mark.long
def test_shows_a_progress_bar_on_a_terminal(go, redis_url, tmp_path):
    for n in range(3):
        go.pending(b"m%d" % n)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "delayq", "--url", redis_url, "migrate", "example"]
    process = Process(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # the terminal's other end is closed
        pass
    finally:
        os.close(ours)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert b"3/3" in shown
    assert b"moved 3 messages" in out
