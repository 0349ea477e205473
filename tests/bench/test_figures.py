"""Figures over the rounds: medians, ratios taken within a round, goals; and how measurements take turns."""

from types import SimpleNamespace

import pytest
from measure.figure import NEVER, Figure, LeftOut, Measurement, Reading, at_least, at_most, measure


def figure(*readings, goal=None):
    made = Figure("send", "send", goal)
    for reading in readings:
        made.add(Reading("send", *reading))
    return made


def test_a_ratio_is_taken_within_each_round():
    # The machine was ten times slower in two of three rounds; the ratio of the medians would be 0.5.
    measured = figure((90, 100), (8, 10), (5, 10))
    assert measured.median == 8
    assert measured.other == 10
    assert measured.ratio == 0.8


def test_a_figure_beside_nothing_has_no_ratio():
    measured = figure((1,), (3,))
    assert (measured.median, measured.ratio, measured.other) == (2, None, None)


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
def test_a_goal_is_met_by_the_median_and_what_must_not_happen_by_every_round(goal, readings, met):
    assert figure(*readings, goal=goal).met is met


def test_a_goal_says_in_words_what_it_asks():
    assert at_least(2, "one by one").text == "≥ 2 of one by one"
    assert at_most(0.1).text == "≤ 0.1"


def test_the_note_is_that_of_the_largest_value():
    assert figure((1, None, "first"), (3, None, "second"), (2, None, "third")).note == "second"


def taking(name, taken, *, once=False, ends=None):
    def take(stand):
        taken.append((stand.turn, name))
        yield Reading(name, 1.0)
        if ends:
            raise ends

    return Measurement(name, take, [Figure(name, name)], once)


def test_measurements_take_turns_round_by_round():
    taken = []
    every = [taking("a", taken), taking("b", taken), taking("c", taken, once=True)]
    figures, left_out, failed = measure(every, SimpleNamespace(), 2, lambda _: None)
    assert taken == [(0, "a"), (0, "b"), (0, "c"), (1, "a"), (1, "b")]
    assert [len(one.values) for one in figures] == [2, 2, 1]
    assert (left_out, failed) == ({}, {})


def test_what_is_left_out_keeps_what_it_measured_and_is_not_tried_again():
    taken = []
    every = [taking("a", taken, ends=LeftOut("no room"))]
    figures, left_out, failed = measure(every, SimpleNamespace(), 3, lambda _: None)
    assert taken == [(0, "a")]
    assert [one.values for one in figures] == [[1.0]]
    assert (left_out, failed) == ({"a": "no room"}, {})


def test_what_fails_is_told_and_the_others_go_on():
    taken, said = [], []
    every = [taking("a", taken, ends=ValueError("broken")), taking("b", taken)]
    results = measure(every, SimpleNamespace(), 2, said.append)
    assert taken == [(0, "a"), (0, "b"), (1, "b")]
    assert (results.left_out, results.failed) == ({}, {"a": "ValueError: broken"})
    assert "failed: a: ValueError: broken" in said


def test_what_was_not_measured_is_no_figure():
    empty = Measurement("a", lambda _: (), [Figure("a", "a")])
    assert measure([empty], SimpleNamespace(), 1, lambda _: None) == ([], {}, {})
