"""Figures: what was measured over the rounds, what stood beside it in the same round, and what is to be reached."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

RATE, MILLISECONDS, BYTES, NUMBER = "/s", " ms", " B", ""


class Goal(NamedTuple):
    """What is to be reached: in words, and whether a figure does."""

    text: str
    met: Callable[[Figure], bool]


class Reading(NamedTuple):
    """What one round brought for the figure of a name, and what stands beside it."""

    figure: str
    value: float
    other: float | None = None
    note: str = ""
    """What is to be known of it besides."""


@dataclass(slots=True)
class Figure:
    """One figure over the rounds. `beside` says what the other value of a round is: "raw", "one by one"."""

    name: str
    title: str
    goal: Goal | None = None
    unit: str = RATE
    beside: str = "raw"
    values: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    note: str = ""
    """What was noted of the largest value."""

    def add(self, reading: Reading) -> None:
        """Take in what a round brought."""
        self.values.append(reading.value)
        if reading.other is not None:
            self.others.append(reading.other)
        if reading.value == max(self.values):
            self.note = reading.note

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.values)

    @property
    def other(self) -> float | None:
        """The median of what stood beside it; None if nothing did."""
        return statistics.median(self.others) if self.others else None

    @property
    def ratio(self) -> float | None:
        """The median of the ratios, each taken within a round; None where nothing stood beside."""
        if not self.others:
            return None
        return statistics.median(value / other for value, other in zip(self.values, self.others, strict=True))

    @property
    def met(self) -> bool:
        """Whether the goal is reached, if there is one."""
        return self.goal is None or self.goal.met(self)


def at_least(ratio: float, of: str = "raw") -> Goal:
    """Return the goal of a ratio to what stands beside."""
    return Goal(f"≥ {ratio:g} of {of}", lambda figure: figure.ratio is not None and figure.ratio >= ratio)


def at_most(most: float, unit: str = NUMBER) -> Goal:
    """Return the goal of a value that is to be small."""
    return Goal(f"≤ {most:g}{unit}", lambda figure: figure.median <= most)


NEVER = Goal("0", lambda figure: max(figure.values) == 0)
"""The goal of what must not happen in any round."""


class LeftOut(Exception):  # noqa: N818 - it is no error: a measurement says why it cannot be taken here
    """A measurement is left out here, for the reason given."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Something that is measured: `take` returns the readings of one round for its figures."""

    name: str
    take: Callable[[Any], Iterable[Reading]]
    figures: list[Figure]
    once: bool = False
    """Whether it is taken in the first round only, since it takes long or always says the same."""


class Results(NamedTuple):
    """What a run brought: figures, and the measurements that were left out or failed, with the reason of each."""

    figures: list[Figure]
    left_out: dict[str, str]
    failed: dict[str, str]


def measure(measurements: list[Measurement], stand: Any, rounds: int, say: Callable[[str], None]) -> Results:
    """Take every measurement `rounds` times, round by round, so that a slow minute hits them all.

    One that is left out or fails is not tried again; the others go on, for a run takes long.
    """
    figures = [figure for measurement in measurements for figure in measurement.figures]
    known = {figure.name: figure for figure in figures}
    left_out: dict[str, str] = {}
    failed: dict[str, str] = {}
    for turn in range(rounds):
        stand.turn = turn
        for measurement in measurements:
            if measurement.name in left_out | failed or (measurement.once and turn):
                continue
            say(f"round {turn + 1} of {rounds}: {measurement.name}")
            try:
                for reading in measurement.take(stand):
                    known[reading.figure].add(reading)
            except LeftOut as reason:
                left_out[measurement.name] = str(reason)
            except Exception as error:  # noqa: BLE001 - told with the figures, at the end
                failed[measurement.name] = f"{type(error).__name__}: {error}"
                say(f"failed: {measurement.name}: {failed[measurement.name]}")
    return Results([figure for figure in figures if figure.values], left_out, failed)
