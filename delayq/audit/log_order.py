"""Checks that a log is whole and in order: numbers without gaps, and times that rise with the offsets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

from delayq.archive.sql_engine import SqlEngine, micros_of, rows_of
from delayq.broker.event_log import MIN_TIME_OFFSET

CLOCK_STEP = 1_000_000
"""Microseconds by which a server's clock may be set back without a finding."""
AHEAD = timedelta(hours=1)
"""How far an event may be ahead of the audit: it takes a while, and clocks differ."""
_SIZES, _OVERLAPS = (65_536, 3_600_000_000_000), (2, 1_000_000_000)
"""Offsets in a part, and how many of the last ones are read with the next part, too: if counted, and if times."""
T = TypeVar("T")


class Disorder(NamedTuple):
    """What is wrong at a place of the log."""

    what: str
    """`wrong order`: the time of an event does not fit its offset; `event lost`: an event of an entry is gone."""
    id: str
    """The message of the event; "" for one that is gone."""
    detail: str


class LogOrder(NamedTuple):
    """What is wrong with a log."""

    first: int
    last: int
    missing: int
    """Entries missing from offset 1 or `first` on; 0 where entries are numbered by time."""
    disorders: list[Disorder]


_ORDER_OF_LOG = """
WITH placed AS (
    SELECT log_offset, entry_index, unix_micros(event_at) AS event_at, kind, id, log_offset DIV {size} AS part,
        (log_offset + {overlap}) DIV {size} AS last_part
    FROM {{events}}
), parts AS (
    SELECT *, part AS read_in FROM placed UNION ALL SELECT *, last_part AS read_in FROM placed WHERE last_part > part
), lagged AS (
    SELECT *, lag(event_at, 1) OVER in_order AS event_at_1, lag(event_at, 2) OVER in_order AS event_at_2,
        lag(log_offset, 1) OVER in_order AS log_offset_1, lag(entry_index, 1) OVER in_order AS entry_index_1,
        lag(kind, 1) OVER in_order AS kind_1, lag(id, 1) OVER in_order AS id_1
    FROM parts WINDOW in_order AS (PARTITION BY read_in ORDER BY log_offset, entry_index)
), judged AS (
    -- An entry has the indexes 0, 1, 2 …: a removed event leaves a gap before the next one, which tells no id.
    SELECT *, if(log_offset <=> log_offset_1, entry_index_1 + 1, 0) AS following,
        event_at < event_at_1 - {step} AS is_behind, event_at < event_at_2 - {step} AS is_behind_both
    FROM lagged WHERE part = read_in
), found AS (
    -- Of two neighbours the one is wrong that does not fit the event before both.
    SELECT part, log_offset, NOT (log_offset <=> log_offset_1) AS is_entry,
        CASE WHEN is_behind AND coalesce(is_behind_both, false)
            THEN struct(log_offset, id, kind, 'earlier than the event before it' AS how)
        WHEN is_behind
            THEN struct(log_offset_1 AS log_offset, id_1 AS id, kind_1 AS kind, 'later than the event after it' AS how)
        WHEN event_at > {latest} THEN struct(log_offset, id, kind, 'later than the audit' AS how)
        WHEN entry_index > following
            THEN struct(log_offset, '' AS id, kind, CAST(following AS STRING) AS how)
        END AS wrong
    FROM judged
)
SELECT min(log_offset) AS first, max(log_offset) AS last, count_if(is_entry) AS entries,
    slice(collect_list(wrong), 1, {limit}) AS wrong
FROM found GROUP BY part ORDER BY first
"""


def check_order(engine: SqlEngine[T], events: T, at: datetime, limit: int, *, is_cut: bool = False) -> LogOrder:
    """Look for missing entries, events missing in entries, and times out of order, in one query.

    At most `limit` of the latter two are listed. If the events were deleted up to some day (`is_cut`), no entry is
    missing before the first one.

    The log is compared in parts of consecutive offsets, which are sorted by several tasks.
    """
    size, overlap = (f"if(log_offset < {MIN_TIME_OFFSET}, {dense}, {timed})" for dense, timed in (_SIZES, _OVERLAPS))
    latest = micros_of(max(datetime.now(UTC), at) + AHEAD)
    query = _ORDER_OF_LOG.format(size=size, overlap=overlap, step=CLOCK_STEP, latest=latest, limit=limit)
    parts = rows_of(engine, engine.query(query, events=events))
    last = max((part["last"] for part in parts), default=0)
    first = min((part["first"] for part in parts), default=1) if is_cut else 1
    missing = last - first + 1 - sum(part["entries"] for part in parts) if last < MIN_TIME_OFFSET else 0
    wrong = sorted((one for part in parts for one in part["wrong"] or ()), key=lambda one: one["log_offset"])
    return LogOrder(first, last, missing, [_disorder(**one) for one in wrong[:limit]])


def _disorder(log_offset: int, id: str | None, kind: str, how: str) -> Disorder:
    if how.isdecimal():
        return Disorder("event lost", "", f"number {how} of the entry at offset {log_offset}, {kind}, is not there")
    return Disorder("wrong order", id or "", f"its event {kind} at offset {log_offset} is {how}")
