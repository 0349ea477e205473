"""Tables of an archive for queries: the lives of messages, and the lateness of deliveries."""

from __future__ import annotations

from typing import TypeVar

from delayq.archive.message_steps import DEATHS, SETTLED, STEP
from delayq.archive.sql_engine import SqlEngine
from delayq.bulk.files.schemas import COLD_DROPPED, IMPORTED, LIFE_STARTS, NOTES, OF_ENTRIES, SPILLED

T = TypeVar("T")

LATENESS = "(unix_micros(event_at) - unix_micros(due)) / 1000"
_STARTS = f"kind IN {LIFE_STARTS}"
_IS_OWN = f"kind != '{COLD_DROPPED}'"
_PLACE = "struct(log_offset, entry_index)"
_LIVES = f"""
WITH steps AS (
    SELECT id, log_offset, entry_index, event_at, kind, due, attempt, run, reason, error, {STEP} AS step,
        sum(CASE WHEN {_STARTS} THEN 1 ELSE 0 END) OVER (PARTITION BY id ORDER BY log_offset, entry_index) AS life
    FROM {{events}} WHERE id IS NOT NULL AND kind NOT IN {(*OF_ENTRIES, IMPORTED, *NOTES)}
), each AS (
    SELECT id, CAST(life AS BIGINT) AS life,
        min(kind) FILTER (WHERE {_STARTS}) AS begun_by,
        min(event_at) FILTER (WHERE {_STARTS}) AS begun_at,
        max_by(run, {_PLACE}) FILTER (WHERE {_STARTS}) AS run,
        max_by(due, {_PLACE}) FILTER (WHERE due IS NOT NULL) AS due,
        min_by(event_at, {_PLACE}) FILTER (WHERE kind = 'delivered') AS first_delivered_at,
        min_by({LATENESS}, {_PLACE}) FILTER (WHERE kind = 'delivered') AS lateness_ms,
        count_if(kind = 'delivered') AS deliveries,
        max(attempt) AS attempts,
        max_by(reason, {_PLACE}) FILTER (WHERE kind = 'dead') AS reason,
        max_by(error, {_PLACE}) FILTER (WHERE error IS NOT NULL) AS error,
        max_by(step, {_PLACE}) FILTER (WHERE {_IS_OWN}) AS last,
        max_by(event_at, {_PLACE}) FILTER (WHERE {_IS_OWN}) AS last_event_at,
        max(event_at) FILTER (WHERE NOT {_IS_OWN}) AS dropped_at,
        max(log_offset) AS last_offset
    FROM steps GROUP BY id, life
), purge AS (
    SELECT max(log_offset) AS purge_offset, max(event_at) AS purged_at FROM {{events}} WHERE kind = 'purged'
), following AS (
    SELECT *, lead(begun_by) OVER in_order AS next_begun_by, lead(begun_at) OVER in_order AS next_begun_at
    FROM each CROSS JOIN purge WINDOW in_order AS (PARTITION BY id ORDER BY life)
), judged AS (
    SELECT *, CASE WHEN last IN {SETTLED} OR last = 'cancelled' THEN last WHEN last IN {DEATHS} THEN 'dead'
        WHEN next_begun_by = 'replaced' OR last = '{SPILLED}' AND next_begun_by IS NOT NULL THEN 'replaced'
        WHEN last = '{SPILLED}' AND dropped_at IS NOT NULL THEN 'cancelled'
        WHEN last_offset < purge_offset THEN 'purged' END AS outcome
    FROM following
) SELECT id, life, begun_by, begun_at, due, run, deliveries, attempts, first_delivered_at, lateness_ms, outcome,
    CASE outcome WHEN 'replaced' THEN next_begun_at WHEN 'purged' THEN purged_at
        ELSE CASE WHEN last = '{SPILLED}' THEN dropped_at
            WHEN outcome IS NOT NULL THEN last_event_at END END AS ended_at,
    reason, error
FROM judged
"""
_LATENESS = f"""
SELECT id, attempt, due, event_at AS delivered_at, {LATENESS} AS lateness_ms, holder
FROM {{events}} WHERE kind = 'delivered'
"""


def lives(engine: SqlEngine[T], events: T) -> T:
    """Return one row for each life of a message, by the events that it has.

    `life` counts from 1 for each id; 0 is one that began before the first event, so `begun_by` and `begun_at` are null.
    `due` is the last one set. `outcome` is acked, discarded, dead, cancelled, purged or replaced, and null while the
    life goes on, also in the cold tier. A cold message whose id was sent again counts as replaced. `lateness_ms` is
    that of the first delivery. `error` is the last one.
    """
    return engine.query(_LIVES, events=events)


def lateness(engine: SqlEngine[T], events: T) -> T:
    """Return one row for each delivery; later attempts than the first wait for a nack delay or an expired lease."""
    return engine.query(_LATENESS, events=events)
