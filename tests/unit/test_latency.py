"""The estimate of the latency of the network."""

import pytest

from delayq.values.times import Latency

TRIPS = 2000


def after(*calls):
    latency = Latency(message_time=0.001)
    for took, messages in calls:
        latency.measure(took, messages)
    return latency.seconds


@pytest.mark.table(
    ("calls", "seconds"),
    [
        ([], 0.0),
        ([(5.0, 0)], 0.0),
        ([(5.0, 0), (0.5, 0)], 0.5),
        ([(0.1, 0), (0.5, 0)], 0.5),
        ([(5.0, 0), (0.5, 0), (0.25, 0)], 0.25),
        ([(5.0, 0), (0.5, 100)], 0.4),
        ([(5.0, 0), (0.5, 1000)], 0.0),
        ([(5.0, 0), (0.5, 0), (1.0, 250)], 0.5005),
    ],
)
def test_the_fastest_call_counts_without_the_time_of_its_messages(calls, seconds):
    assert after(*calls) == pytest.approx(seconds)


@pytest.mark.parametrize("before", [0.0, 0.1, 0.5])
def test_a_way_that_has_become_longer_is_noticed(before):
    assert after((before, 0), (before, 0), *[(1.0, 0)] * TRIPS) == pytest.approx(1.0, rel=0.02)


def test_a_way_that_has_become_shorter_is_noticed_at_once():
    assert after(*[(1.0, 0)] * TRIPS, (0.1, 0)) == pytest.approx(0.1)
