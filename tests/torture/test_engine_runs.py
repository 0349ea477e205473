"""`delayq torture --engine`: streams and work queues under faults, and what is refused."""

import json
import shutil

import msgspec
import pytest
from click.testing import CliRunner

from delayq.cli import main
from delayq.errors import ConfigurationError
from delayq.torture.plan import KINDS, Settings
from delayq.torture.promises import PROMISES
from delayq.torture.run import command_of
from delayq.torture.workqueue.engine import _client
from tests.torture.running import LONG, torture

pytestmark = pytest.mark.faults
ENGINES = ["streams", "workqueue"]
FAULTS = {"kill": 2, "stop": 1, "replies": 40, "cut": 10, "server-kill": 1, "flush": 1, "memory": 1}


@LONG
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.usefixtures("unmeasured")
def test_an_engine_under_faults(folder, engine):
    account = torture(folder, 1_000, FAULTS, "--engine", engine, "--lease", "2", "--seconds", "4")
    assert account["messages"] > 950
    assert account["deliveries"] > account["messages"]
    assert account["command"].startswith(f"delayq torture --engine {engine} --seed 0 ")


@LONG
@pytest.mark.torture
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.usefixtures("unmeasured")
def test_an_engine_under_all_faults(folder, engine):
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    planned = {kind: about.usual for kind, about in KINDS.items() if kind not in PROMISES[engine].lacks}
    more = ("--engine", engine, "--aof", "always,everysec", "--lease", "3", "--producers", "6")
    assert torture(folder, 100_000, planned, *more)["messages"] > 97_000


def invoke(*words):
    return CliRunner().invoke(main, ["torture", *words])


def test_what_an_engine_has_nothing_for_is_a_usage_error():
    refused = invoke("--engine", "workqueue", "--faults", "kill=1,term=2")
    assert refused.exit_code == 2
    assert "term cannot be done here: the workqueue engine has no consumer that could drain" in refused.stderr
    unknown = invoke("--engine", "elsewhere")
    assert unknown.exit_code == 2
    assert "elsewhere" in unknown.stderr


def test_a_work_queue_on_a_cluster_is_refused():
    options = {"url": "redis+cluster://127.0.0.1:1"}
    with pytest.raises(ConfigurationError, match="single server"), _client(options):
        pass


@pytest.mark.parametrize("engine", ENGINES)
def test_all_faults_are_those_that_an_engine_has_something_for(engine):
    words = ["--engine", engine, "--messages", "100000", "--dry-run", "--json"]
    plans = json.loads(invoke(*words).stdout)
    kinds = {fault["kind"] for plan in plans for fault in plan["faults"]}
    assert not kinds & PROMISES[engine].lacks.keys()
    assert {"kill", "stop", "replies", "cut", "server-kill", "flush", "memory"} <= kinds
    assert invoke(*words, "--full", "--round", "2").exit_code == 0


def test_the_command_that_repeats_a_round_names_the_engine():
    settings = Settings(seed=1, messages=10, faults={})
    assert "--engine" not in command_of(settings)
    again = command_of(msgspec.structs.replace(settings, engine="streams"), 1)
    assert again.startswith("delayq torture --engine streams --seed 1 ")
    assert again.endswith(" --round 1")
