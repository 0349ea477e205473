"""The plan of a round: drawn from the seed, all of what was asked for, and nothing that cannot be done."""

from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import pytest

from delayq import ConfigurationError
from delayq.torture.crew import Crew
from delayq.torture.plan import EXCLUSIVE, KINDS, Settings, draw, read_aof, read_faults

FAULTS = dict.fromkeys(KINDS, 7) | {"replies": 500, "cut": 90}


def settings(**changed):
    given = {"seed": 1, "messages": 100_000, "faults": FAULTS, "aof": ("always", "everysec")}
    return Settings(**{**given, **changed})


def drawn(settings):
    return [draw(settings, number) for number in range(1, settings.rounds + 1)]


def test_the_same_seed_draws_the_same_again_and_another_does_not():
    assert drawn(settings()) == drawn(settings())
    assert drawn(settings()) != drawn(settings(seed=2))


def test_the_rounds_of_a_seed_differ():
    one, other = drawn(settings(aof=("always",)))
    assert [fault.at for fault in one.faults] != [fault.at for fault in other.faults]


@pytest.mark.parametrize("per_round", [10_000, 33_000, 100_000])
def test_all_that_was_asked_for_is_planned(per_round):
    plans = drawn(settings(per_round=per_round))
    planned = Counter()
    for plan in plans:
        for fault in plan.faults:
            planned[fault.kind] += fault.size if fault.kind in {"replies", "cut"} else 1
    assert planned == FAULTS
    assert sum(plan.messages for plan in plans) == 100_000


def test_the_power_fails_where_every_write_is_synced_if_that_is_among_the_policies():
    for plan in drawn(settings(per_round=10_000)):
        assert plan.aof == "always" or not any(fault.kind == "power" for fault in plan.faults)
    only = draw(settings(aof=("everysec",), per_round=100_000), 1)
    assert sum(fault.kind == "power" for fault in only.faults) == 7


def test_faults_of_the_server_come_one_after_another_and_every_fault_within_the_round():
    plan = draw(settings(per_round=100_000), 1)
    times = [fault.at for fault in plan.faults if fault.kind in EXCLUSIVE]
    assert min(later - earlier for earlier, later in pairwise(times)) > 1
    assert all(0 < fault.at < plan.seconds for fault in plan.faults)


def test_a_worker_is_frozen_for_longer_than_its_leases():
    plan = draw(settings(lease=3.0), 1)
    assert all(fault.lasts > 3 for fault in plan.faults if fault.kind == "stop")


@pytest.mark.parametrize(("target", "name"), [(0.0, "one"), (0.499, "one"), (0.5, "two"), (0.999, "two"), (1.0, "two")])
def test_a_target_is_one_of_the_workers_that_are_there(target, name):
    crew = object.__new__(Crew)
    crew.members = [
        SimpleNamespace(name=name, role=role, running=True, ready=True)
        for name, role in [("one", "worker"), ("other", "producer"), ("two", "worker")]
    ]
    assert crew.choose(target).name == name


def test_a_round_that_there_is_not_is_refused():
    with pytest.raises(ConfigurationError, match="between 1 and 2"):
        draw(settings(), 3)


def read(text, allowed=KINDS, aof=("always",)):
    return read_faults(text, messages=200_000, allowed=allowed, aof=aof)


def test_faults_are_read():
    assert read("none") == {}
    assert read("kill=5, stop") == {"kill": 5, "stop": 2 * KINDS["stop"].usual}
    assert set(read("all")) == set(KINDS)
    assert set(read("all", allowed=("kill", "cut"))) == {"kill", "cut"}
    assert not {"server-kill", "power", "disk"} & set(read("all", aof=("always", "no")))


@pytest.mark.parametrize(
    ("text", "allowed", "aof"),
    [
        ("earthquake", KINDS, ("always",)),
        ("kill=many", KINDS, ("always",)),
        ("kill=-1", KINDS, ("always",)),
        ("power", ("kill",), ("always",)),
        ("server-kill", KINDS, ("no",)),
    ],
)
def test_what_cannot_be_done_is_refused(text, allowed, aof):
    with pytest.raises(ConfigurationError, match=text.partition("=")[0]):
        read(text, allowed, aof)


def test_policies_are_read():
    assert read_aof("always, everysec") == ("always", "everysec")
    with pytest.raises(ConfigurationError, match="seldom"):
        read_aof("always,seldom")
