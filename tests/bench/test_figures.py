"""Figures over several rounds: medians, ratios within a round, goals, and the order of measurements."""

from types import SimpleNamespace

import pytest
from measure.figure import NEVER, Figure, LeftOut, Measurement, Reading, at_least, at_most, measure


def figure(*readings, goal=None):
    made = Figure("send", "send", goal)
    for reading in readings:
        made.add(Reading("send", *reading))
    return made


def test_ratio_is_computed_within_each_round():
    # The machine was ten times slower in two of three rounds; the ratio of the medians would be 0.5.
    measured = figure((90, 100), (8, 10), (5, 10))
    assert measured.median == 8
    assert measured.reference == 10
    assert measured.ratio == 0.8


def test_figure_without_a_reference_has_no_ratio():
    measured = figure((1,), (3,))
    assert (measured.median, measured.ratio, measured.reference) == (2, None, None)


@pytest.mark.parametrize(
    ("goal", "readings", "met"),
    [
        (at_least(0.85), [(85, 100)], True),
        (at_least(0.85), [(84, 100)], False),
        (at_least(0.85), [(85,)], False),
        (at_most(5, " ms"), [(9,), (5,), (1,)], True),
        (at_most(5, " ms"), [(5.1,)], False),
        (NEVER, [(0,), (0,)], True),
        (NEVER, [(0,), (0,), (1,)], False),
        (None, [(1,)], True),
    ],
)
def test_median_must_meet_the_goal_and_never_applies_to_every_round(goal, readings, met):
    assert figure(*readings, goal=goal).met is met


def test_goal_has_a_text():
    assert at_least(2, "one by one").text == "≥ 2 of one by one"
    assert at_most(0.1).text == "≤ 0.1"


def test_note_belongs_to_the_largest_value():
    assert figure((1, None, "first"), (3, None, "second"), (2, None, "third")).note == "second"


def recording(name, taken, *, once=False, ends=None):
    def take(server):
        taken.append((server.turn, name))
        yield Reading(name, 1.0)
        if ends:
            raise ends

    return Measurement(name, take, [Figure(name, name)], once)


def test_measurements_take_turns_round_by_round():
    taken = []
    every = [recording("a", taken), recording("b", taken), recording("c", taken, once=True)]
    figures, left_out, failed = measure(every, SimpleNamespace(), 2, lambda _: None)
    assert taken == [(0, "a"), (0, "b"), (0, "c"), (1, "a"), (1, "b")]
    assert [len(one.values) for one in figures] == [2, 2, 1]
    assert (left_out, failed) == ({}, {})


def test_left_out_measurement_keeps_its_values_and_is_not_repeated():
    taken = []
    every = [recording("a", taken, ends=LeftOut("no room"))]
    figures, left_out, failed = measure(every, SimpleNamespace(), 3, lambda _: None)
    assert taken == [(0, "a")]
    assert [one.values for one in figures] == [[1.0]]
    assert (left_out, failed) == ({"a": "no room"}, {})


def test_failed_measurement_is_reported_and_others_continue():
    taken, reported = [], []
    every = [recording("a", taken, ends=ValueError("broken")), recording("b", taken)]
    results = measure(every, SimpleNamespace(), 2, reported.append)
    assert taken == [(0, "a"), (0, "b"), (1, "b")]
    assert (results.left_out, results.failed) == ({}, {"a": "ValueError: broken"})
    assert "failed: a: ValueError: broken" in reported


def test_figure_without_values_is_left_out():
    empty = Measurement("a", lambda _: (), [Figure("a", "a")])
    assert measure([empty], SimpleNamespace(), 1, lambda _: None) == ([], {}, {})
