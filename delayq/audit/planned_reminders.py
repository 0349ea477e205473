"""The planned reminders of an audit: those of all plans, and which of them the loads were to send."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from delayq.archive.sql_engine import SqlEngine, micros_of
from delayq.bulk.files.schemas import check_types
from delayq.bulk.load_run import UNKNOWN
from delayq.queue.sweeps.bulk_runs import RunInfo

T = TypeVar("T")

Horizon = tuple[datetime | None, datetime | None]
"""Start (inclusive) and end (exclusive); None for no limit."""

_OF_ONE = ("source", "rule", "occurrence")
"""Columns that two reminders of one plan do not have in common."""


def horizons(source: str, runs: Iterable[RunInfo]) -> list[Horizon]:
    """Return the horizons of a plan's loads: of those from its files, if there are any, else of all loads.

    `source` is a digest of the names of its files, by which its loads are recognized.
    """
    loads = [info for info in runs if info.source is not None]
    own = [info for info in loads if info.source == source != UNKNOWN]
    return [(info.start, info.until) for info in own or loads]


def planned(
    engine: SqlEngine[T],
    plans: Sequence[T],
    sources: Sequence[str],
    runs: Sequence[RunInfo],
    *,
    start: datetime | None,
    until: datetime | None,
) -> T:
    """Return the reminders of all plans, one row for each id: the last plan decides.

    `sources` are those of the plans. `expected` tells whether a load was to send it, `in_period` whether it is to be
    audited. `rows` is how often its id is in one plan, `first_id` another id of a plan with the same source, rule and
    occurrence.
    """
    parts = {}
    for number, (plan, source) in enumerate(zip(plans, sources, strict=True)):
        columns = engine.types(plan)
        check_types(columns, {"id": "string", "due": "timestamp"}, "this is no plan")
        action = "action" if "action" in columns else "'new'"
        payload = "sha2(payload, 256)" if "payload" in columns else "CAST(NULL AS STRING)"
        # Cancels are carried out, and rows without a due time sent, whatever the horizon.
        within = [_within("due", *horizon) for horizon in horizons(source, runs)] or ["true"]
        expected = " OR ".join((*within, f"coalesce({action} = 'cancel', false)", "due IS NULL"))
        parts[f"plan_{number}"] = engine.query(
            f"""SELECT id, due AS planned_due, {action} AS action, {payload} AS payload, {number} AS number,
                coalesce({expected}, false) AS expected, {_first_id(columns, action)} AS first_id FROM {{plan}}""",
            plan=plan,
        )
    every = " UNION ALL ".join(f"SELECT * FROM {{{name}}}" for name in parts)
    in_period = f"coalesce({_within('planned_due', start, until)}, true)"
    return engine.query(
        f"""WITH every AS ({every}), each AS (
            SELECT id, max_by(planned_due, number) AS planned_due, max_by(action, number) AS action,
                max_by(payload, number) AS payload, max_by(first_id, number) AS first_id,
                bool_or(expected) AS expected, count(*) - count(DISTINCT number) + 1 AS rows
            FROM every GROUP BY id
        ) SELECT *, {in_period} AS in_period, true AS planned FROM each""",
        **parts,
    )


def _first_id(columns: Iterable[str], action: str) -> str:
    """Return SQL for the first id of a plan with the source, rule and occurrence of a row; null if that is its own."""
    if not set(_OF_ONE) <= set(columns):
        return "CAST(NULL AS STRING)"
    wanted = f"NOT coalesce({action} = 'cancel', false) AND {' AND '.join(f'{name} IS NOT NULL' for name in _OF_ONE)}"
    first = f"min(CASE WHEN {wanted} THEN id END) OVER (PARTITION BY {', '.join(_OF_ONE)})"
    return f"CASE WHEN {wanted} AND {first} != id THEN {first} END"


def _within(column: str, start: datetime | None, until: datetime | None) -> str:
    ends = ((">=", start), ("<", until))
    within = [f"{column} {sign} timestamp_micros({micros_of(at)})" for sign, at in ends if at is not None]
    return " AND ".join(within) or "true"
