"""`scripts/capacity.py`: what nodes do and hold, by the costs of a message."""

import capacity
import pytest
from capacity import Costs, check, measured, tables
from measure.cluster import throwaway_cluster

COSTS = Costs(send=5.0, deliver=15.0, waiting=250.0, byte=1.25)


def test_a_node_does_what_fits_into_a_core_and_several_as_many_times_as_much():
    assert COSTS.rate(1) == 50_000
    assert COSTS.rate(12) == 600_000


def test_bytes_grow_with_the_messages_and_their_payloads():
    assert COSTS.bytes(1, 200) == 500
    assert COSTS.bytes(10**9, 200) == 500e9
    assert COSTS.bytes(2, 0) == 500


def test_tables_have_a_line_for_each_count():
    lines = [*tables(COSTS, (1, 6), 200)]
    assert lines[0] == "a message costs 5.0 µs to send, 15.0 µs to deliver and settle"
    assert lines[4].split() == ["1", "50,000", "35,000"]
    assert lines[5].split() == ["6", "300,000", "210,000"]
    assert lines[-1].split() == ["10,000,000,000", "4,656.6", "GiB", "98"]


def test_handbook_has_what_is_printed(capsys):
    assert capacity.main(["--nodes", "6"]) == 0
    printed = capsys.readouterr().out.splitlines()
    page = (capacity.ROOT / "delayq" / "docs" / "partitions.md").read_text()
    assert all(line in page for line in printed)


@pytest.mark.parametrize("words", [["--payload", "0"], ["--nodes", "-1"], ["--nodes", "many"], ["more"]])
def test_wrong_words_are_refused(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        capacity.main(words)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.torture
def test_it_is_what_one_two_and_six_nodes_do_here():
    with throwaway_cluster(1) as cluster:
        costs = measured(cluster)
    found = {what: computed / measured for what, computed, measured in check(costs)}
    assert all(abs(ratio - 1) <= capacity.WITHIN for ratio in found.values()), found
