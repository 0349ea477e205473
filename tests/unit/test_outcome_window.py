"""The window of outcomes by which a breaker trips."""

from __future__ import annotations

import pytest

from delayq import Breaker
from delayq.worker.parts.breakers import OutcomeWindow

NOW = 1000.0


def added(window: OutcomeWindow, outcomes: str, started: float = NOW) -> list[int]:
    """Add outcomes, F for a failure; return what each brings."""
    return [window.add(started, failed=outcome == "F") for outcome in outcomes]


@pytest.mark.parametrize(
    ("share", "of", "failures"),
    [(0.07, 100, 7), (0.29, 100, 29), (1 / 3, 3, 1), (0.1, 30, 3), (1, 4, 4), (0.001, 5, 1)],
)
def test_exactly_the_share_trips(share, of, failures):
    breaker = Breaker(share=share, of=of)
    assert added(OutcomeWindow(breaker), "F" * failures + "S" * (of - failures))[-1] == failures
    assert not any(added(OutcomeWindow(breaker), "F" * (failures - 1) + "S" * (of - failures + 1)))


def test_window_slides_and_is_empty_after_a_trip():
    window = OutcomeWindow(Breaker(of=4))
    assert added(window, "FSSSFSFF") == [0, 0, 0, 0, 0, 0, 2, 0]
    assert added(window, "FFF") == [0, 0, 4]


def test_what_started_before_a_time_without_starts_does_not_count():
    window = OutcomeWindow(Breaker(of=4, pause="10s"))
    assert added(window, "FFF") == [0, 0, 0]
    assert added(window, "SS", NOW + 5) == [0, 0]
    assert added(window, "FFFF", NOW + 4.9) == [0, 0, 0, 0]
    assert added(window, "FF", NOW + 9.9) == [0, 2]
