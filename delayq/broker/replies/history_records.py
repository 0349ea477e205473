"""What is stored of an hour in which a queue was consumed: numbers, separated by spaces, in the order of `HourCounts`.

Consumers add theirs to it, and to a total, which is never deleted. A number that a later version adds goes to the end,
so that versions can be mixed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from delayq.values.lateness import LATENESS_BOUNDS
from delayq.values.times import LATEST

BUCKETS = len(LATENESS_BOUNDS) + 1
"""Buckets in which lateness is counted."""
HOUR = 3_600_000
KEPT_HOURS = 90 * 24
"""Hours that are kept."""

_NUMBERS = re.compile(rb"[0-9]{1,16}(?: [0-9]{1,16})*")


class HourCounts(NamedTuple):
    """What the consumers of a queue have done in an hour."""

    delivered: int = 0
    """Messages claimed."""
    acked: int = 0
    discarded: int = 0
    nacked: int = 0
    rejected: int = 0
    released: int = 0
    callbacks: int = 0
    """Calls of callbacks that have ended."""
    busy: int = 0
    """Microseconds that these took."""
    lateness: tuple[int, ...] = (0,) * BUCKETS
    """How many messages started how late, for each of `LATENESS_BOUNDS` and what is later."""


_SINGLE = len(HourCounts._fields) - 1


def write_counts(counts: HourCounts) -> str:
    """Return counts as they are stored."""
    return " ".join(map(str, (*counts[:_SINGLE], *counts.lateness)))


def read_counts(text: bytes) -> HourCounts | None:
    """Return stored counts, None for what another program has written."""
    if not _NUMBERS.fullmatch(text):
        return None
    numbers = [min(int(number), LATEST) for number in text.split()]
    numbers += [0] * (_SINGLE + BUCKETS - len(numbers))
    return HourCounts._make([*numbers[:_SINGLE], tuple(numbers[_SINGLE : _SINGLE + BUCKETS])])


def sum_of(some: Iterable[HourCounts]) -> HourCounts:
    """Return the sum of the counts of some hours."""
    *numbers, lateness = zip(HourCounts(), *some, strict=True)
    return HourCounts._make([*map(sum, numbers), tuple(map(sum, zip(*lateness, strict=True)))])
