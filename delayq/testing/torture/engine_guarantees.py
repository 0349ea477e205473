"""What each engine promises, and so what its runs are judged by; what it lacks cannot be broken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Promises(NamedTuple):
    """What an engine promises, as far as it is less than what a delay queue does."""

    lacks: Mapping[str, str] = {}
    """Kinds of faults that it has nothing for, and why."""
    unjudged: Mapping[str, str] = {}
    """Rules that have no meaning for it, and why."""
    tokens_return: bool = False
    """Whether a delivery that was given back is delivered again under the same token."""
    tokens_drawn: bool = True
    """Whether the server draws them, in the order of the deliveries; else of two at a time either may be the first."""


PROMISES = {
    "delay": Promises(),
    "streams": Promises(
        unjudged={"never early": "a stream has no due times", "counters": "it keeps no totals"},
        tokens_return=True,
    ),
    "workqueue": Promises(
        lacks={"term": "no consumer that could drain"},
        unjudged={
            "never early": "a work queue has no due times",
            "dead letter": "it has no dead letter",
            "counters": "it keeps no totals",
        },
        tokens_drawn=False,
    ),
}
"""By the names of the engines."""
