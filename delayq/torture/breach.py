"""A rule of the history that was broken, and the names of the rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from delayq.torture.stories import Step

RULES = (
    "conservation",
    "provenance",
    "never early",
    "bounded deliveries",
    "leases",
    "fencing",
    "dead letter",
    "counters",
    "doubt",
    "liveness",
    "leftovers",
    "duplicates",
)
"""The twelve rules, in the order in which the handbook tells them."""


class Breach(NamedTuple):
    """One rule broken once."""

    rule: str
    id: str
    text: str
    steps: tuple[Step, ...] = ()
    """The least of the history that shows it."""


Breaches = Iterator[Breach]
