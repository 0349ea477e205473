"""What an audit compares of the cold tier: its files against the log and the queue."""

from __future__ import annotations

from typing import TypeVar

from delayq.archive.sql_engine import SqlEngine, time_text

T = TypeVar("T")

COLD = "cold"
"""The status of a message in the cold tier."""
_ALONE = f"log_status = '{COLD}' AND cold = 1 AND cold_files = 1 AND NOT cold_later"
"""Whether a message is in the files once, as it should be: what they say of it must be what the log says."""
COLD_CHECKS = (
    (
        "cold twice",
        "cold_files > greatest(cold, 1) AND NOT cold_later",
        "concat('is ', cold_files, ' times in the files of the cold tier, and ', cold, ' times by the log')",
    ),
    (
        "cold and living",
        f"alive AND NOT changed_later AND log_status = '{COLD}'",
        "'is in the queue, and by the log it is in the cold tier'",
    ),
    (
        "cold and living",
        "alive AND NOT changed_later AND cold_files > cold AND NOT cold_later AND NOT is_cut",
        "'is in the queue, and also in a file of the cold tier that counts'",
    ),
    (
        "resurrected",
        f"log_status NOT IN ('scheduled', '{COLD}') AND cold_files > cold AND NOT cold_later AND NOT is_cut",
        "'is in the cold tier after its end'",
    ),
    (
        "missing",
        f"status = 'missing' AND log_status = '{COLD}'",
        "'is in the cold tier by the log, but in none of its files that count'",
    ),
    (
        "wrong time",
        f"{_ALONE} AND cold_due != spilled_due",
        f"""concat('has the due time ', {time_text("cold_due")}, ' in the cold tier, and ', {time_text("spilled_due")},
            ' by the log')""",
    ),
    (
        "wrong retries",
        f"{_ALONE} AND cold_left != left",
        "concat('has ', cold_left, ' retries left in the cold tier, and ', left, ' by the log')",
    ),
    (
        "wrong payload",
        f"{_ALONE} AND payload != cold_payload",
        "'has another payload in the cold tier than in the plan'",
    ),
    (
        "overdue",
        f"status = 'overdue' AND log_status = '{COLD}'",
        f"concat('is in the cold tier, and was due at ', {time_text('since')}, ': nobody has brought it back')",
    ),
)
"""Findings on cold messages, as those of `delayq.audit.audit`."""


def with_cold(engine: SqlEngine[T], snapshot: T, cold: T) -> T:
    """Add the messages of the cold tier to a snapshot with digests; they have states of their own."""
    return engine.query(
        """SELECT id, state, due, deadline, retries_left, digest FROM {snapshot}
        UNION ALL SELECT id, state, due, CAST(NULL AS TIMESTAMP), retries_left, digest FROM {cold}""",
        snapshot=snapshot,
        cold=cold,
    )
