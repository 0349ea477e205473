"""`delayq demo` as a process: on a temporary, existing or embedded server, interrupted, or incompletely installed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from delayq.cli import main
from delayq.testing.redis_server import find_program
from tests.support.processes import Process, processes_of, run
from tests.support.waiting import wait_until

COUNTRIES = "AR,AT,BD,BR,CO,DE,EG,ES,FR,GR,HU,IN,IT,JP,KR,LB,PL,PT,TH,US"
YEAR = ["--seconds", "4", "--countries", COUNTRIES]


@pytest.fixture
def folder():
    # Not pytest's tmp_path: the path of a unix socket is limited to about a hundred characters.
    folder = Path(tempfile.mkdtemp(prefix="dq-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def start(folder, *args, **environment):
    return Process(
        [sys.executable, "-m", "delayq", *args],
        env=os.environ | {"TMPDIR": str(folder)} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check(balance):
    assert balance["adds_up"], balance["problems"]
    ends = ("delivered_once", "delivered_after_failure", "delivered_after_kill", "dead", "discarded")
    assert balance["planned"] == sum(balance[end] for end in ends) > 100
    assert (balance["early"], balance["lost"], balance["left"]) == (0, 0, 0)
    assert balance["redelivered"]
    assert min(balance[end] for end in ends if end != "delivered_after_kill") >= 1


@pytest.mark.long
@pytest.mark.skipif(not find_program(), reason="needs a redis-server on PATH")
def test_demo_on_a_temporary_server_adds_up_and_leaves_nothing_behind(folder):
    with start(folder, "demo", "--json", *YEAR) as demo:
        out, err = demo.communicate(timeout=50)
    assert (demo.returncode, err) == (0, "")
    check(json.loads(out))
    assert list(folder.iterdir()) == []
    assert processes_of(folder) == []


def test_demo_without_redis_runs_embedded_with_a_note(folder):
    with start(folder, "demo", "--json", "--countries", COUNTRIES, "--seconds", "3", PATH="") as demo:
        out, err = demo.communicate(timeout=50)
    assert demo.returncode == 0
    assert err.splitlines() == ["delayq: the demo runs on memory://, embedded in this process: no redis-server on PATH"]
    check(json.loads(out))


@pytest.mark.long
def test_ctrl_c_prints_the_balance_and_cleans_the_server(folder, redis_url, redis_client):
    with start(folder, "demo", "--seconds", "60", "--countries", COUNTRIES, DELAYQ_URL=redis_url) as demo:
        assert demo.stdout
        lines = [demo.stdout.readline() for _ in range(8)]
        demo.send_signal(signal.SIGINT)
        out, err = demo.communicate(timeout=30)
    assert (demo.returncode, err) == (130, "")
    assert "\x1b" not in "".join(lines) + out
    assert any("+" in line and "ms" in line for line in lines)
    assert out.splitlines()[-1] == "It adds up."
    assert " left " in out
    assert redis_client.keys() == []
    wait_until(lambda: processes_of(folder) == [])


def test_missing_package_is_one_line(monkeypatch):
    monkeypatch.setattr("delayq.cli.admin.demo.find_spec", lambda name: None)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 1
    assert result.stderr == "delayq: the demo needs the package holidays: pip install 'delayq[demo]'\n"


def test_unknown_country_is_a_usage_error():
    result = CliRunner().invoke(main, ["--url", "memory://", "demo", "--countries", "PT,XY"])
    assert result.exit_code == 2
    assert "XY" in result.stderr.splitlines()[-1]


def test_unreachable_redis_is_one_line_and_exits_69():
    result = CliRunner().invoke(main, ["--url", "unix:///nowhere.sock", "--timeout", "0.2s", "demo"])
    assert result.exit_code == 69
    assert len(result.stderr.splitlines()) == 1


def test_import_of_delayq_does_not_load_the_demo():
    code = "import sys, delayq; print([name for name in ('rich', 'holidays', 'delayq.demo') if name in sys.modules])"
    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
