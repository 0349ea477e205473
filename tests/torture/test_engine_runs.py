"""`delayq torture --engine`: streams and work queues under faults, and refused options."""

import json
import shutil
from types import SimpleNamespace

import msgspec
import pytest
from click.testing import CliRunner

from delayq.cli import main
from delayq.errors import ConfigurationError
from delayq.testing.torture.round_plan import FAULT_KINDS, RunSettings
from delayq.testing.torture.rules.engine_guarantees import GUARANTEES
from delayq.testing.torture.runner import command_of
from delayq.testing.torture.workqueue.workqueue_engine import WorkQueueEngine
from tests.torture.running import LONG, torture

pytestmark = pytest.mark.faults
ENGINES = ["streams", "workqueue"]
FAULTS = {"kill": 2, "stop": 1, "replies": 40, "cut": 10, "server-kill": 1, "flush": 1, "memory": 1}


@LONG
@pytest.mark.parametrize("engine", ["workqueue", pytest.param("streams", marks=pytest.mark.long)])
@pytest.mark.usefixtures("unmeasured")
def test_engine_keeps_its_guarantees_under_faults(folder, engine):
    account = torture(folder, 1_000, FAULTS, "--engine", engine, "--lease", "2", "--seconds", "4")
    assert account["messages"] > 950
    assert account["deliveries"] > account["messages"]
    assert account["command"].startswith(f"delayq torture --engine {engine} --seed 0 ")


@LONG
@pytest.mark.torture
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.usefixtures("unmeasured")
def test_engine_keeps_its_guarantees_under_all_faults(folder, engine):
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    planned = {
        kind: about.usual for kind, about in FAULT_KINDS.items() if kind not in GUARANTEES[engine].unsupported_faults
    }
    more = ("--engine", engine, "--aof", "always,everysec", "--lease", "3", "--producers", "6")
    assert torture(folder, 100_000, planned, *more)["messages"] > 97_000


def invoke(*words):
    return CliRunner().invoke(main, ["torture", *words])


def test_unsupported_fault_is_a_usage_error():
    refused = invoke("--engine", "workqueue", "--faults", "kill=1,term=2")
    assert refused.exit_code == 2
    assert "fault term is not possible here: the workqueue engine has no consumer that could drain" in refused.stderr
    unknown = invoke("--engine", "elsewhere")
    assert unknown.exit_code == 2
    assert "elsewhere" in unknown.stderr


def test_work_queue_in_a_cluster_is_refused():
    options = {"url": "redis+cluster://127.0.0.1:1"}
    task = SimpleNamespace(prefix="delayq-torture", queue="any")
    with pytest.raises(ConfigurationError, match="single server"), WorkQueueEngine().open(task, options):
        pass


@pytest.mark.parametrize("engine", ENGINES)
def test_default_faults_are_those_that_the_engine_supports(engine):
    words = ["--engine", engine, "--messages", "100000", "--dry-run", "--json"]
    plans = json.loads(invoke(*words).stdout)
    kinds = {fault["kind"] for plan in plans for fault in plan["faults"]}
    assert not kinds & GUARANTEES[engine].unsupported_faults.keys()
    assert {"kill", "stop", "replies", "cut", "server-kill", "flush", "memory"} <= kinds
    assert invoke(*words, "--full", "--round", "2").exit_code == 0


def test_repeat_command_names_the_engine():
    settings = RunSettings(seed=1, messages=10, faults={})
    assert "--engine" not in command_of(settings)
    again = command_of(msgspec.structs.replace(settings, engine="streams"), 1)
    assert again.startswith("delayq torture --engine streams --seed 1 ")
    assert again.endswith(" --round 1")
