"""The plan of a round: drawn from the seed, complete, and without impossible faults."""

from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import pytest

from delayq import ConfigurationError
from delayq.testing.torture.disturbing.processes import Processes
from delayq.testing.torture.round_plan import EXCLUSIVE, FAULT_KINDS, RunSettings, draw_round, read_aof, read_faults

FAULTS = dict.fromkeys(FAULT_KINDS, 7) | {"replies": 500, "cut": 90}


def settings(**changed):
    defaults = {"seed": 1, "messages": 100_000, "faults": FAULTS, "aof": ("always", "everysec")}
    return RunSettings(**{**defaults, **changed})


def drawn(settings):
    return [draw_round(settings, number) for number in range(1, settings.rounds + 1)]


def test_plan_depends_on_the_seed():
    assert drawn(settings()) == drawn(settings())
    assert drawn(settings()) != drawn(settings(seed=2))


def test_rounds_of_a_seed_differ():
    one, other = drawn(settings(aof=("always",)))
    assert [fault.at for fault in one.faults] != [fault.at for fault in other.faults]


@pytest.mark.parametrize("per_round", [10_000, 33_000, 100_000])
def test_all_requested_faults_are_planned(per_round):
    plans = drawn(settings(per_round=per_round))
    planned = Counter()
    for plan in plans:
        for fault in plan.faults:
            planned[fault.kind] += fault.size if fault.kind in {"replies", "cut"} else 1
    assert planned == FAULTS
    assert sum(plan.messages for plan in plans) == 100_000


def test_power_cuts_are_planned_for_rounds_that_sync_every_write():
    for plan in drawn(settings(per_round=10_000)):
        assert plan.aof == "always" or not any(fault.kind == "power" for fault in plan.faults)
    only = draw_round(settings(aof=("everysec",), per_round=100_000), 1)
    assert sum(fault.kind == "power" for fault in only.faults) == 7


def test_server_faults_do_not_overlap_and_all_faults_are_within_the_round():
    plan = draw_round(settings(per_round=100_000), 1)
    times = [fault.at for fault in plan.faults if fault.kind in EXCLUSIVE]
    assert min(later - earlier for earlier, later in pairwise(times)) > 1
    assert all(0 < fault.at < plan.seconds for fault in plan.faults)


def test_worker_is_stopped_for_longer_than_its_lease():
    plan = draw_round(settings(lease=3.0), 1)
    assert all(fault.lasts > 3 for fault in plan.faults if fault.kind == "stop")


@pytest.mark.parametrize(("target", "name"), [(0.0, "one"), (0.499, "one"), (0.5, "two"), (0.999, "two"), (1.0, "two")])
def test_target_of_a_fault_is_a_running_worker(target, name):
    processes = object.__new__(Processes)
    processes.all = [
        SimpleNamespace(name=name, role=role, running=True, ready=True)
        for name, role in [("one", "worker"), ("other", "producer"), ("two", "worker")]
    ]
    assert processes.pick_worker(target).name == name


def test_unknown_round_is_refused():
    with pytest.raises(ConfigurationError, match="between 1 and 2"):
        draw_round(settings(), 3)


def read(text, allowed=FAULT_KINDS, aof=("always",)):
    return read_faults(text, messages=200_000, allowed=allowed, aof=aof)


def test_faults_are_parsed():
    assert read("none") == {}
    assert read("kill=5, stop") == {"kill": 5, "stop": 2 * FAULT_KINDS["stop"].usual}
    assert set(read("all")) == set(FAULT_KINDS) - {"flushall"}
    assert read("flushall") == {"flushall": 1}
    assert set(read("all", allowed=("kill", "cut"))) == {"kill", "cut"}
    assert not {"server-kill", "power", "disk"} & set(read("all", aof=("always", "no")))


@pytest.mark.parametrize(
    ("text", "allowed", "aof"),
    [
        ("earthquake", FAULT_KINDS, ("always",)),
        ("kill=many", FAULT_KINDS, ("always",)),
        ("kill=-1", FAULT_KINDS, ("always",)),
        ("power", ("kill",), ("always",)),
        ("server-kill", FAULT_KINDS, ("no",)),
    ],
)
def test_invalid_or_impossible_fault_is_refused(text, allowed, aof):
    with pytest.raises(ConfigurationError, match=text.partition("=")[0]):
        read(text, allowed, aof)


def test_aof_policies_are_parsed():
    assert read_aof("always, everysec") == ("always", "everysec")
    with pytest.raises(ConfigurationError, match="seldom"):
        read_aof("always,seldom")
