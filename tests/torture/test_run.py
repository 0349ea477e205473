"""`delayq torture` from the outside: the figures of every test run, each kind of fault, and what it leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis
from click.testing import CliRunner

from delayq.cli import main
from delayq.torture.plan import KINDS
from delayq.torture.round import Round
from tests.support.processes import processes_of
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until
from tests.torture.running import LONG, run, start, torture

pytestmark = pytest.mark.faults


FIGURES = {"kill": 50, "stop": 10, "term": 10, "server-kill": 10, "replies": 2000, "cut": 500}


@LONG
@pytest.mark.usefixtures("unmeasured")
def test_the_figures_of_every_test_run(folder):
    planned = FIGURES | {"replies": 2200, "cut": 560}
    account = torture(folder, 100_000, planned, "--aof", "always,everysec", "--lease", "3", "--producers", "6")
    assert all(account["faults"][kind] >= number for kind, number in FIGURES.items())
    assert account["rounds"] == 2
    assert account["messages"] > 97_000  # some are sent by every producer
    assert account["deliveries"] > account["messages"]


@LONG
@pytest.mark.parametrize("aof", ["always", "everysec"])
@pytest.mark.usefixtures("unmeasured")
def test_every_kind_of_fault(folder, aof):
    """Those of the figures happen all the time; these are the others."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    others = {kind: 1 for kind, about in KINDS.items() if about.server}
    torture(folder, 4_000, others | {"kill": 2, "replies": 40}, "--aof", aof, "--lease", "3")


@LONG
@pytest.mark.usefixtures("unmeasured")
def test_without_faults_nothing_is_delivered_twice(folder):
    assert torture(folder, 5_000, {}, "--lease", "10")["duplicates"] == 0


@LONG
@pytest.mark.torture
@pytest.mark.usefixtures("unmeasured")
def test_a_million_messages_without_faults(folder):
    account = torture(folder, 1_000_000, {}, "--per-round", "100000", "--aof", "everysec", "--lease", "10")
    assert account["duplicates"] == 0


# On the user's Redis


@pytest.fixture
def theirs():
    with RedisServer(tcp=True) as server, server.client() as client:
        client.set("precious", 1)
        yield server
        assert client.keys() == [b"precious"]


@LONG
def test_on_the_users_redis_only_the_clients_are_troubled(folder, theirs):
    code, account, err = run(folder, "--messages", "2000", "--faults", "all", "--seconds", "10", DELAYQ_URL=theirs.url)
    assert (code, account["right"]) == (0, True)
    assert set(account["faults"]) == {"kill", "stop", "term", "replies", "cut"}
    assert err == "delayq: on a Redis that is not ours, nothing is done to the server\n"
    assert list(folder.iterdir()) == []


def test_what_would_trouble_the_users_redis_is_refused(theirs):
    result = CliRunner().invoke(main, ["--url", theirs.url, "torture", "--faults", "server-kill"])
    assert result.exit_code == 2
    assert "server-kill" in result.stderr


@LONG
def test_a_message_that_is_lost_is_found_and_its_history_kept(folder, theirs):
    with start(folder, "--messages", "1000", "--faults", "none", "--seconds", "5", DELAYQ_URL=theirs.url) as torture:
        with redis.Redis.from_url(theirs.url) as client:

            def lose():
                """Forget a message that waits, as a defect would."""
                for key in client.scan_iter("delayq-torture:*:pending"):
                    for id, _ in client.zrange(key, -1, -1, withscores=True):
                        hash_ = key.decode().removesuffix("pending")
                        return client.hdel(f"{hash_}messages", id) and client.zrem(key, id)
                return False

            wait_until(lose, timeout=60)
        out, _ = torture.communicate()
    assert torture.returncode == 1
    assert "WRONG: the guarantees do not hold." in out
    assert "VIOLATION of rule 1, conservation" in out
    (kept,) = folder.glob("delayq-torture-*/round-1")
    assert f"round 1 failed; its histories: {kept}" in out
    assert "again: delayq torture --seed 0" in out
    again = CliRunner().invoke(main, ["torture", "check", str(kept), "--json"])
    assert again.exit_code == 1
    assert json.loads(again.stdout)["broken"]["conservation"] == 1


# How it ends


def begun(folder):
    """Whether a run has come so far that all of its processes are there."""
    names = b" ".join(processes_of(folder))
    return all(role in names for role in (b"torture.worker", b"torture.producer", b"torture.inspector"))


def server_of(torture):
    """The folder in /proc of the server that a run has started, which hides its environment."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            _, name, _, parent = (process / "stat").read_text().split()[:4]
        except OSError:
            continue
        if "redis" in name and parent == str(torture.pid):
            return process
    raise AssertionError("no server")


@LONG
@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["to it alone", "to all in the terminal"])
def test_ctrl_c_ends_it_with_the_account_so_far(folder, send):
    with start(folder, "--messages", "100000", "--faults", "kill=500,stop=5,replies=50") as torture:
        wait_until(lambda: begun(folder), timeout=60)
        server = server_of(torture)
        send(torture.pid, signal.SIGINT)
        out, err = torture.communicate(timeout=60)
    assert (torture.returncode, err) == (130, "")
    assert "interrupted: this is the account of what was" in out
    assert list(folder.iterdir()) == []
    assert processes_of(folder) == []
    assert not server.exists()


@pytest.mark.timeout(10)
def test_a_fault_that_still_waits_for_a_worker_does_not_hold_up_the_end():
    interrupted = threading.Event()
    interrupted.set()
    ended = object.__new__(Round)
    ended._crew = SimpleNamespace(of=lambda _: iter(()))  # Ctrl-C in a terminal has ended all of them
    ended._todo = [(0.0, 0, None, repeat(0.01))]
    ended._break(interrupted)


@LONG
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.usefixtures("unmeasured")
def test_nothing_runs_on_when_it_is_ended_at_once(folder, number):
    with start(folder, "--messages", "100000", "--faults", "stop=5") as torture:
        wait_until(lambda: begun(folder), timeout=60)
        server = server_of(torture)
        torture.send_signal(number)
        if number == signal.SIGINT:
            wait_until(lambda: torture.poll() is not None or not torture.send_signal(number), every=0.05)
        torture.wait(60)
        wait_until(lambda: processes_of(folder) == [], timeout=60)
        wait_until(lambda: not server.exists())
        torture.communicate()


# What is shown


def test_a_plan_is_shown_and_nothing_done(folder):
    words = ["torture", "--messages", "1000", "--faults", "kill=2,cut=5", "--seed", "7", "--dry-run"]
    shown = CliRunner().invoke(main, words)
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert lines[0] == "round 1: 1,000 messages in 10 s, AOF always"
    assert sum(" kill" in line for line in lines) == 2
    (plan,) = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)
    assert len(plan["faults"]) == len(lines) - 1


def test_the_full_figures_can_be_planned():
    shown = CliRunner().invoke(main, ["torture", "--full", "--round", "100", "--dry-run"])
    assert shown.stdout.startswith("round 100: 50,000 messages in ")
    chosen = CliRunner().invoke(main, ["torture", "--full", "--messages", "1000", "--faults", "none", "--dry-run"])
    assert chosen.stdout == "round 1: 1,000 messages in 10 s, AOF always\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--faults", "earthquake"], "earthquake"),
        (["--aof", "seldom"], "seldom"),
        (["--round", "9"], "between 1 and 1"),
        (["--faults", "power", "--aof", "no"], "power"),
    ],
)
def test_what_cannot_be_done_is_a_usage_error(words, told):
    result = CliRunner().invoke(main, ["torture", *words])
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_redis_out_of_reach_is_one_line_and_69():
    result = CliRunner().invoke(main, ["--url", "unix:///nowhere.sock", "--timeout", "0.2s", "torture"])
    assert result.exit_code == 69
    assert len(result.stderr.splitlines()) == 1


def test_without_a_compiler_it_says_what_is_left_out(folder, monkeypatch):
    server = shutil.which("redis-server")
    assert server
    (folder / "redis-server").symlink_to(server)
    monkeypatch.setenv("PATH", str(folder))
    result = CliRunner().invoke(main, ["torture", "--dry-run"])
    assert result.exit_code == 0
    assert "left out: power, disk, clock, slow-fsync" in result.stderr
    assert " power" not in result.stdout


def test_a_history_that_is_none_is_one_line(folder):
    (folder / "empty").mkdir()
    result = CliRunner().invoke(main, ["torture", "check", str(folder / "empty")])
    assert result.exit_code == 1
    assert "no history there" in result.stderr
