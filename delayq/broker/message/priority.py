"""Priority: a head start in time among the messages that are due."""

from __future__ import annotations

from typing import Any

from delayq.values.checks import check_int

MAX_PRIORITY = 100
"""The largest priority; the smallest is its negative."""


def check_priority(priority: Any) -> int:
    """Return a valid priority; raise `ConfigurationError` for anything else."""
    return check_int(priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)
