"""A power cut is recorded with the time since which writes may be lost, also those that Redis had not written yet."""

from types import SimpleNamespace

import pytest

from delayq.testing.torture.disturbing.faults import FaultContext, run_fault
from delayq.testing.torture.round_plan import PlannedFault


@pytest.mark.table(
    ("aof", "cut", "held_back", "lost"),
    [
        ("everysec", (0, 0), 0, 0),
        ("everysec", (9, 700), 0, 700),
        ("everysec", (0, 0), 800, 800),
        ("everysec", (9, 700), 800, 700),
        ("everysec", (9, 900), 800, 800),
        ("always", (9, 700), 800, 0),
    ],
)
def test_the_earliest_write_that_may_be_lost_counts(aof, cut, held_back, lost):
    records = []
    shim = SimpleNamespace(cut_power=lambda _: cut, held_back=lambda _: held_back)
    server = SimpleNamespace(kill=lambda: None, start=lambda: None, folder=None)
    context = FaultContext(
        processes=None,
        recorder=SimpleNamespace(write=records.append),
        direct=None,
        environment=SimpleNamespace(server=server, shim=shim, aof=aof),
        announce=lambda *_: None,
        keys=None,
    )
    list(run_fault(context, PlannedFault(0.0, "power")))
    assert [record.lost for record in records] == [lost]
