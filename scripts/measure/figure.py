"""Figures: values measured over the rounds, reference values of the same rounds, and goals."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

EXACT = 0.03
"""How far a count may rise that is the same in each run: five on a busy machine differed by up to 1 %."""
RATE, MILLISECONDS, BYTES, NUMBER = "/s", " ms", " B", ""


class Goal(NamedTuple):
    """A goal in words, and a test whether a figure reaches it."""

    text: str
    met: Callable[[Figure], bool]


class Reading(NamedTuple):
    """The value of a figure in one round, and the reference value of that round."""

    figure: str
    value: float
    reference: float | None = None
    note: str = ""
    """A remark on the value."""


@dataclass(slots=True)
class Figure:
    """A figure over all rounds. `reference_name` names the value it is compared with: "raw", "one by one"."""

    name: str
    title: str
    goal: Goal | None = None
    unit: str = RATE
    reference_name: str = "raw"
    values: list[float] = field(default_factory=list)
    references: list[float] = field(default_factory=list)
    note: str = ""
    """The remark on the largest value."""
    cost: bool = False
    """Whether less is better."""
    may_rise: float | None = None
    """How far a count may rise that hardly depends on the machine, as a share; None for what is no such count."""

    def add(self, reading: Reading) -> None:
        """Add the reading of a round."""
        self.values.append(reading.value)
        if reading.reference is not None:
            self.references.append(reading.reference)
        if reading.value == max(self.values):
            self.note = reading.note

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.values)

    @property
    def reference(self) -> float | None:
        """The median of the references; None if there are none."""
        return statistics.median(self.references) if self.references else None

    @property
    def ratio(self) -> float | None:
        """The median of the ratios, each of one round; None without references."""
        if not self.references:
            return None
        return statistics.median(value / other for value, other in zip(self.values, self.references, strict=True))

    @property
    def met(self) -> bool:
        """Whether the goal is reached; true without a goal."""
        return self.goal is None or self.goal.met(self)


def at_least(ratio: float, of: str = "raw") -> Goal:
    """Return the goal of a minimal ratio to the reference."""
    return Goal(f"≥ {ratio:g} of {of}", lambda figure: figure.ratio is not None and figure.ratio >= ratio)


def at_most(maximum: float, unit: str = NUMBER) -> Goal:
    """Return the goal of a maximal value."""
    return Goal(f"≤ {maximum:g}{unit}", lambda figure: figure.median <= maximum)


NEVER = Goal("0", lambda figure: max(figure.values) == 0)
"""The goal for an event that must not happen in any round."""


class LeftOut(Exception):  # noqa: N818 - not an error: the measurement is impossible on this machine
    """A measurement is skipped on this machine; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement: `take` returns the readings of one round for its figures."""

    name: str
    take: Callable[[Any], Iterable[Reading]]
    figures: list[Figure]
    once: bool = False
    """Whether it runs only in the first round, because it takes long or always gives the same."""


class Results(NamedTuple):
    """Results of a run: figures, and the reasons of measurements that were skipped or failed, by name."""

    figures: list[Figure]
    left_out: dict[str, str]
    failed: dict[str, str]


def measure(measurements: list[Measurement], server: Any, rounds: int, log: Callable[[str], None]) -> Results:
    """Take every measurement `rounds` times, round by round, so that a slow minute affects them all.

    A measurement that is skipped or fails is not repeated; the others continue, because a run takes long.
    """
    figures = [figure for measurement in measurements for figure in measurement.figures]
    known = {figure.name: figure for figure in figures}
    left_out: dict[str, str] = {}
    failed: dict[str, str] = {}
    for turn in range(rounds):
        server.turn = turn
        for measurement in measurements:
            if measurement.name in left_out | failed or (measurement.once and turn):
                continue
            log(f"round {turn + 1} of {rounds}: {measurement.name}")
            try:
                for reading in measurement.take(server):
                    known[reading.figure].add(reading)
            except LeftOut as reason:
                left_out[measurement.name] = str(reason)
            except Exception as error:  # noqa: BLE001 - reported with the figures, at the end
                failed[measurement.name] = f"{type(error).__name__}: {error}"
                log(f"failed: {measurement.name}: {failed[measurement.name]}")
    return Results([figure for figure in figures if figure.values], left_out, failed)
