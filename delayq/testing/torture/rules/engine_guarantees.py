"""What each engine guarantees: which faults can be tested and which rules of the checker apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Guarantees(NamedTuple):
    """Where an engine differs from a delay queue."""

    unsupported_faults: Mapping[str, str] = {}
    """Kinds of faults that cannot hit it, and why."""
    inapplicable_rules: Mapping[str, str] = {}
    """Rules that do not apply to it, and why."""
    renews_leases: bool = True
    """Whether a consumer renews the leases of all that it holds."""
    tokens_ordered: bool = True
    """Whether the server issues tokens in the order of deliveries; if not, concurrent deliveries have no order."""


GUARANTEES = {
    "delay": Guarantees(),
    "streams": Guarantees(
        unsupported_faults=dict.fromkeys(("pause", "pause-name", "trip"), "a stream cannot be paused"),
        inapplicable_rules={
            "never early": "a stream has no due times",
            "counters": "it keeps no totals",
            "pauses": "it cannot be paused",
            "limits": "it has none",
            "breakers": "it has none",
            "answers": "its sends share no calls",
        },
    ),
    "workqueue": Guarantees(
        unsupported_faults={
            "term": "no consumer that could drain",
            "exit": "no consumer that could be left running",
            "foreign": "no key that other programs must not write",
            "pause": "a work queue cannot be paused",
            "pause-name": "its items have no names",
            "trip": "it has no breaker",
        },
        inapplicable_rules={
            "never early": "a work queue has no due times",
            "dead letter": "it has no dead letter",
            "counters": "it keeps no totals",
            "pauses": "it cannot be paused",
            "limits": "it has none",
            "breakers": "it has none",
            "answers": "its sends share no calls",
        },
        renews_leases=False,
        tokens_ordered=False,
    ),
}
"""By name of the engine."""
