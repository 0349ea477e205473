"""`delayq torture` as a process: each kind of fault, interruption, and cleanup."""

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
from delayq.testing.torture.round_plan import FAULT_KINDS
from delayq.testing.torture.runner import Round
from tests.support.processes import processes_of
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until
from tests.torture.running import LONG, run, start, torture

pytestmark = pytest.mark.faults


FIGURES = {"kill": 50, "stop": 10, "term": 10, "server-kill": 10, "replies": 2000, "cut": 500}
FEW = {"kill": 3, "stop": 1, "term": 1, "server-kill": 1, "replies": 100, "cut": 25}


@LONG
@pytest.mark.long
@pytest.mark.usefixtures("unmeasured")
def test_a_few_client_faults_of_each_kind(folder):
    planned = FEW | {"replies": 110, "cut": 28}
    account = torture(folder, 5_000, planned, "--aof", "always", "--lease", "3", "--producers", "6")
    assert all(account["faults"][kind] >= number for kind, number in FEW.items())


@LONG
@pytest.mark.parametrize(
    ("messages", "times"),
    [pytest.param(3_000, 1, marks=pytest.mark.long), pytest.param(50_000, 8, marks=pytest.mark.torture)],
)
@pytest.mark.usefixtures("unmeasured")
def test_a_queue_over_partitions(folder, messages, times):
    once = {"kill": 2, "stop": 1, "server-kill": 1, "flush": 1, "foreign": 1, "pause": 1, "replies": 30, "cut": 12}
    planned = {kind: times * number for kind, number in once.items()}
    torture(folder, messages, planned, "--partitions", "4", "--aof", "always", "--lease", "3")


def test_faults_of_names_are_refused_over_partitions():
    result = CliRunner().invoke(main, ["torture", "--partitions", "4", "--faults", "pause-name"])
    assert (result.exit_code, "fault pause-name is not possible here" in result.stderr) == (2, True)


@LONG
@pytest.mark.torture
@pytest.mark.usefixtures("unmeasured")
def test_full_number_of_client_faults(folder):
    planned = FIGURES | {"replies": 2200, "cut": 560}
    account = torture(folder, 100_000, planned, "--aof", "always,everysec", "--lease", "3", "--producers", "6")
    assert all(account["faults"][kind] >= number for kind, number in FIGURES.items())
    assert account["rounds"] == 2
    assert account["messages"] > 97_000  # every producer sends some of them
    assert account["deliveries"] > account["messages"]


@LONG
@pytest.mark.parametrize("aof", ["always", pytest.param("everysec", marks=pytest.mark.torture)])
@pytest.mark.usefixtures("unmeasured")
def test_every_kind_of_fault(folder, aof):
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    once = dict.fromkeys(FAULT_KINDS, 1)
    torture(folder, 1_000, once | {"kill": 2, "replies": 50, "cut": 12}, "--aof", aof, "--lease", "3")


@LONG
@pytest.mark.torture
@pytest.mark.usefixtures("unmeasured")
def test_run_without_faults_has_no_duplicates(folder):
    assert torture(folder, 5_000, {}, "--lease", "10")["duplicates"] == 0


@LONG
@pytest.mark.torture
@pytest.mark.usefixtures("unmeasured")
def test_million_messages_without_faults(folder):
    account = torture(folder, 1_000_000, {}, "--per-round", "100000", "--aof", "everysec", "--lease", "10")
    assert account["duplicates"] == 0


# On the user's Redis


@pytest.fixture
def user_redis():
    with RedisServer(tcp=True) as server, server.client() as client:
        client.set("precious", 1)
        yield server
        assert client.keys() == [b"precious"]


@LONG
@pytest.mark.long
def test_run_on_the_users_redis_has_only_client_faults(folder, user_redis):
    code, account, err = run(
        folder, "--messages", "2000", "--faults", "all", "--seconds", "10", DELAYQ_URL=user_redis.url
    )
    assert (code, account["right"]) == (0, True)
    assert set(account["faults"]) == {"kill", "stop", "term", "exit", "replies", "cut", "refuse"}
    assert err == "delayq: server faults are left out: this Redis was not started by us\n"
    assert list(folder.iterdir()) == []


def test_server_faults_are_refused_on_the_users_redis(user_redis):
    result = CliRunner().invoke(main, ["--url", user_redis.url, "torture", "--faults", "server-kill"])
    assert result.exit_code == 2
    assert "server-kill" in result.stderr


@pytest.mark.long
@LONG
def test_lost_message_is_found_and_its_history_kept(folder, user_redis):
    with start(
        folder, "--messages", "1000", "--faults", "none", "--seconds", "5", DELAYQ_URL=user_redis.url
    ) as torture:
        with redis.Redis.from_url(user_redis.url) as client:

            def lose():
                """Delete a pending message, as a defect would."""
                for key in client.scan_iter("delayq-torture:*:pending"):
                    for id, _ in client.zrange(key, -1, -1, withscores=True):
                        hash_ = key.decode().removesuffix("pending")
                        return client.hdel(f"{hash_}messages", id) and client.zrem(key, id)
                return False

            wait_until(lose, timeout=60)
        out, _ = torture.communicate()
    assert torture.returncode == 1
    assert "WRONG: a guarantee was broken." in out
    assert "VIOLATION of rule 1, conservation" in out
    (kept,) = folder.glob("delayq-torture-*/round-1")
    assert f"round 1 failed; histories: {kept}" in out
    assert "repeat: delayq torture --seed 0" in out
    again = CliRunner().invoke(main, ["torture", "check", str(kept), "--json"])
    assert again.exit_code == 1
    assert json.loads(again.stdout)["broken"]["conservation"] == 1


# Interruption


def begun(folder):
    """Return whether all processes of a run have started."""
    commands = processes_of(folder)
    return all(
        any(b"process_roles\0" + role in one for one in commands) for role in (b"worker", b"producer", b"inspector")
    )


def server_of(torture):
    """Return the folder in /proc of the server of a run, which hides its environment."""
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
@pytest.mark.parametrize(
    "send",
    [
        pytest.param(os.kill, id="to it alone", marks=pytest.mark.long),
        pytest.param(os.killpg, id="to all in the terminal"),
    ],
)
def test_ctrl_c_ends_the_run_with_a_tally(folder, send):
    with start(folder, "--messages", "100000", "--faults", "kill=500,stop=5,replies=50") as torture:
        wait_until(lambda: begun(folder), timeout=60)
        server = server_of(torture)
        send(torture.pid, signal.SIGINT)
        out, err = torture.communicate(timeout=60)
    assert (torture.returncode, err) == (130, "")
    assert "interrupted: the figures are those so far" in out
    assert list(folder.iterdir()) == []
    assert processes_of(folder) == []
    assert not server.exists()


@pytest.mark.timeout(10)
def test_fault_that_waits_for_a_worker_does_not_delay_the_end():
    interrupted = threading.Event()
    interrupted.set()
    ended = object.__new__(Round)
    ended._processes = SimpleNamespace(running=lambda _: iter(()))  # Ctrl-C in a terminal has ended all of them
    ended._todo = [(0.0, 0, None, repeat(0.01))]
    ended._cause_faults(interrupted)


@LONG
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
@pytest.mark.usefixtures("unmeasured")
def test_nothing_keeps_running_after_a_kill(folder, number):
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


# Output


def test_dry_run_prints_the_plan(folder):
    words = ["torture", "--messages", "1000", "--faults", "kill=2,cut=5", "--seed", "7", "--dry-run"]
    shown = CliRunner().invoke(main, words)
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert lines[0] == "round 1: 1,000 messages in 10 s, AOF always"
    assert sum(" kill" in line for line in lines) == 2
    (plan,) = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)
    assert len(plan["faults"]) == len(lines) - 1


def test_full_option_plans_large_rounds():
    shown = CliRunner().invoke(main, ["torture", "--full", "--round", "100", "--dry-run"])
    assert shown.stdout.startswith("round 100: 50,000 messages in ")
    chosen = CliRunner().invoke(main, ["torture", "--full", "--messages", "1000", "--faults", "none", "--dry-run"])
    assert chosen.stdout == "round 1: 1,000 messages in 10 s, AOF always\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--faults", "earthquake"], "earthquake"),
        (["--aof", "seldom"], "seldom"),
        (["--round", "9"], "between 1 and 1"),
        (["--faults", "power", "--aof", "no"], "power"),
    ],
)
def test_impossible_fault_is_a_usage_error(words, error):
    result = CliRunner().invoke(main, ["torture", *words])
    assert result.exit_code == 2
    assert error in result.stderr


def test_unreachable_redis_is_one_line_and_exits_69():
    result = CliRunner().invoke(main, ["--url", "unix:///nowhere.sock", "--timeout", "0.2s", "torture"])
    assert result.exit_code == 69
    assert len(result.stderr.splitlines()) == 1


def test_run_without_a_compiler_names_the_left_out_faults(folder, monkeypatch):
    server = shutil.which("redis-server")
    assert server
    (folder / "redis-server").symlink_to(server)
    monkeypatch.setenv("PATH", str(folder))
    result = CliRunner().invoke(main, ["torture", "--dry-run"])
    assert result.exit_code == 0
    assert "left out: power, disk, clock, slow-fsync" in result.stderr
    assert " power" not in result.stdout


def test_check_of_a_folder_without_history_is_one_line(folder):
    (folder / "empty").mkdir()
    result = CliRunner().invoke(main, ["torture", "check", str(folder / "empty")])
    assert result.exit_code == 1
    assert "no history (*.jsonl) found" in result.stderr
