"""Computes the tables of a report from an event log: lateness, rates, outcomes, errors, deaths and duplicates.

Times are in UTC, whatever the session's time zone.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Generic, Self, TypeVar

import pyarrow as pa

from delayq.archive.log_gaps import BUCKET, gaps_of
from delayq.archive.sql_engine import SqlEngine, rows_of
from delayq.broker.event_log import MIN_TIME_OFFSET
from delayq.bulk.files.schemas import EVENTS, check_types, columns_of
from delayq.queue.inspecting.event_log import EventKind
from delayq.report.delivery_history import (
    MAX_ROWS,
    delivery_history,
    duplicates,
    failures,
    funnel,
    redeliveries,
    totals,
)
from delayq.report.html import overview_html
from delayq.report.overview import overview_of

T = TypeVar("T")
_OF_KIND = {kind.value: f"kind = '{kind}'" for kind in EventKind}

MAX_LINE = 200
"""Characters kept of the first line of an error or a reason."""

HOUR, MINUTE = 3600, 60
"""The widths of `lateness` and `rates`, in seconds, unless the log is short."""
_WIDTHS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, HOUR)
_MIN_POINTS = 60
_NEEDED = (
    "log_offset",
    "entry_index",
    "event_at",
    "kind",
    "id",
    "due",
    "attempt",
    "token",
    "retries_left",
    "reason",
    "error",
)


class Reports(UserDict[str, T], Generic[T]):
    """The report's tables of an engine by name, computed when read; `tables` computes all and keeps the results."""

    def __init__(self, engine: SqlEngine[T], events: T, *, width: int) -> None:
        """Set the tables, and the small intermediate results that several of them share."""
        self._engine = engine
        self._shared = ExitStack()
        each = min(MINUTE, width)
        made = _grid(engine, events, each), _late(engine, events, width), delivery_history(engine, events)
        shared = [self._shared.enter_context(engine.kept(one, is_small=True)) for one in made]
        super().__init__(_tables_of(engine, events, *shared, each=each, width=width))
        self._tables: dict[str, pa.Table] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def tables(self, told: Callable[[str], object] | None = None) -> Mapping[str, pa.Table]:
        """Return every report as an Arrow table with times in UTC, computed once; `told` is called with each name."""
        for name, table in self.items():
            if name not in self._tables:
                self._tables[name] = self._engine.arrow(table)
                if told is not None:
                    told(name)
        self.release()
        return MappingProxyType(self._tables)

    def _repr_html_(self) -> str:
        """Return the main figures, which notebooks show; only the names of the reports before `tables` has run."""
        if self._tables.keys() != self.keys():
            return f"<p>Reports, not computed yet: {', '.join(self)}</p>"
        return overview_html(overview_of(self._tables))

    def release(self) -> None:
        """Free the intermediate results; tables read afterwards are computed again on Spark, and gone in DuckDB."""
        self._shared.close()


def _check_events(engine: SqlEngine[T], events: T) -> None:
    """Raise `ConfigurationError` for a table that is not from an event log."""
    needed = {name: columns_of(EVENTS)[name] for name in _NEEDED}
    check_types(engine.types(events), needed, "the events are not from an event log")


def width_of(engine: SqlEngine[T], events: T) -> int:
    """Return the seconds of a row of `lateness` that give a log of this length 60 rows or more: at most an hour."""
    _check_events(engine, events)
    length = "SELECT max(unix_micros(event_at)) - min(unix_micros(event_at)) AS lasted FROM {events}"
    ((lasted,),) = (row.values() for row in rows_of(engine, engine.query(length, events=events)))
    seconds = (lasted or 0) // 1_000_000
    return max((width for width in _WIDTHS if seconds >= width * _MIN_POINTS), default=_WIDTHS[0])


def reports(engine: SqlEngine[T], events: T, *, width: int = HOUR) -> Reports[T]:
    """Return the reports on an event log or its archive; nothing is computed yet.

    * `log`, one row: events, messages (those with more events than waiting ones), entries, missing entries (null where
      entries are numbered by time), first and last event.
    * `totals`: one row per kind of event.
    * `lateness_overall` (at most one row) and `lateness` by time of delivery, `width` seconds a row: exact percentiles
      of the lateness of first attempts, in milliseconds. Later attempts wait for a nack delay or an expired lease, and
      so measure the callback, not the queue. `early` counts deliveries before the due time, which must never happen.
    * `rates`: events of each kind by minute, or by `width` if that is less, without empty rows.
    * `funnel`: outcomes of the deliveries of each attempt; `share` is the share of acked ones. A null attempt collects
      deliveries from before the log. A late ack after an expired lease counts, so a delivery may have both outcomes.
    * `errors`: failed deliveries by the first line of the error. Each failure counts once: a nack by its error, an
      expired lease as such, a rejection by its reason.
    * `dead`: deaths by reason.
    * `redeliveries`: deliveries and acks after the first of a life, by the event before. After `expired` the callback
      may have run twice.
    * `duplicates`: the unexplained ones among them. If the log lacks entries, it may lack their explanations.
    * `gaps`: missing entries, where entries are numbered without gaps.

    Lists end after 1,000 rows. Raises `ConfigurationError` for a missing column or a wrong type.
    """
    _check_events(engine, events)
    return Reports(engine, events, width=width)


def _tables_of(engine: SqlEngine[T], events: T, grid: T, late: T, history: T, *, each: int, width: int) -> dict[str, T]:
    lateness = "deliveries, early, p50_ms, p90_ms, p99_ms, max_ms"
    return {
        "log": _log(engine, grid, history),
        "totals": _totals(engine, grid),
        "lateness_overall": engine.query(f"SELECT {lateness} FROM {{late}} WHERE overall", late=late),
        "lateness": engine.query(
            f"SELECT begin, CAST({width} AS BIGINT) AS seconds, {lateness} FROM {{late}} WHERE NOT overall"
            " ORDER BY begin",
            late=late,
        ),
        "rates": engine.query(
            f"SELECT begin, CAST({each} AS BIGINT) AS seconds,"
            f" {totals(_OF_KIND)}"
            " FROM {grid} GROUP BY begin ORDER BY begin",
            grid=grid,
        ),
        "funnel": funnel(engine, history),
        "errors": _most_frequent(
            engine, failures(engine, events), "error_text", name="error", number="failures", more="min(id) AS example"
        ),
        "dead": _most_frequent(
            engine,
            engine.query("SELECT * FROM {events} WHERE kind = 'dead'", events=events),
            "reason",
            name="reason",
            number="deaths",
            more="min(first) AS first, max(last) AS last",
        ),
        "redeliveries": redeliveries(engine, history),
        "duplicates": duplicates(engine, history),
        "gaps": _gaps(engine, events, grid),
    }


def _floor(time: str, width: int) -> str:
    """Round down to a multiple of some seconds in UTC; `date_trunc` would use the session's time zone."""
    micros = f"unix_micros({time})"
    return f"timestamp_micros({micros} - pmod({micros}, {width}000000L))"


def _grid(engine: SqlEngine[T], events: T, width: int) -> T:
    """Count events by time, kind and part of the log; `log`, `totals`, `rates` and `gaps` are derived from this."""
    return engine.query(
        f"""SELECT {_floor("event_at", width)} AS begin, kind,
            CASE WHEN log_offset < {MIN_TIME_OFFSET} THEN {BUCKET} END AS bucket,
            count(*) AS events, count_if(entry_index = 0) AS entries, min(event_at) AS first, max(event_at) AS last,
            min(log_offset) AS low, max(log_offset) AS high
        FROM {{events}} GROUP BY 1, 2, 3""",
        events=events,
    )


def _late(engine: SqlEngine[T], events: T, width: int) -> T:
    """Return the percentiles of lateness in each period, and overall; of values between two ranks in proportion."""
    parts = {
        name: (
            f"min(ms) FILTER (WHERE upto > floor((total - 1) * {share}))",
            f"min(ms) FILTER (WHERE upto > ceil((total - 1) * {share}))",
            f"(max(total) - 1) * {share} - floor((max(total) - 1) * {share})",
        )
        for name, share in (("p50_ms", "0.5D"), ("p90_ms", "0.9D"), ("p99_ms", "0.99D"))
    }
    marks = ", ".join(f"{low} + ({high} - {low}) * ({part}) AS {name}" for name, (low, high, part) in parts.items())
    return engine.query(
        f"""WITH first AS (
            SELECT {_floor("event_at", width)} AS begin, unix_millis(event_at) - unix_millis(due) AS ms,
                count(*) AS n, count_if(event_at < due) AS early
            FROM {{events}} WHERE kind = 'delivered' AND attempt = 1 AND due IS NOT NULL GROUP BY 1, 2
        ), every AS (
            SELECT false AS overall, begin, ms, n, early FROM first
            UNION ALL
            SELECT true AS overall, CAST(NULL AS TIMESTAMP) AS begin, ms, sum(n) AS n, sum(early) AS early
            FROM first GROUP BY ms
        ), ranked AS (
            SELECT *, sum(n) OVER (PARTITION BY overall, begin ORDER BY ms) AS upto,
                sum(n) OVER (PARTITION BY overall, begin) AS total
            FROM every
        ) SELECT overall, begin, CAST(sum(n) AS BIGINT) AS deliveries, CAST(sum(early) AS BIGINT) AS early, {marks},
            max(ms) AS max_ms
        FROM ranked GROUP BY overall, begin""",
        events=events,
    )


def _log(engine: SqlEngine[T], grid: T, history: T) -> T:
    return engine.query(
        f"""WITH whole AS (
            SELECT CAST(coalesce(sum(events), 0) AS BIGINT) AS events,
                CAST(coalesce(sum(entries), 0) AS BIGINT) AS entries, min(first) AS first, max(last) AS last,
                min(low) AS first_offset, max(high) AS last_offset
            FROM {{grid}}
        ), messages AS (
            SELECT CAST(coalesce(sum(CASE WHEN begins THEN events END), 0) AS BIGINT) AS messages FROM {{history}}
        ) SELECT events, messages, entries,
            CASE WHEN last_offset < {MIN_TIME_OFFSET} THEN last_offset - first_offset + 1 - entries END AS missing,
            first, last, first_offset, last_offset
        FROM whole CROSS JOIN messages""",
        grid=grid,
        history=history,
    )


def _totals(engine: SqlEngine[T], grid: T) -> T:
    known = ", ".join(f"('{kind.value}', {number})" for number, kind in enumerate(EventKind))
    return engine.query(
        f"""WITH known AS (SELECT * FROM VALUES {known} AS t(kind, position)),
        counted AS (
            SELECT kind, CAST(sum(events) AS BIGINT) AS events, min(first) AS first, max(last) AS last
            FROM {{grid}} GROUP BY kind
        ) SELECT kind, coalesce(events, 0) AS events, first, last
        FROM known FULL OUTER JOIN counted USING (kind)
        ORDER BY position IS NULL, position, kind""",  # a kind of a later version comes last
        grid=grid,
    )


def _most_frequent(engine: SqlEngine[T], events: T, text: str, *, name: str, number: str, more: str) -> T:
    """Count events and messages by the first line of a text, the most frequent first."""
    line = rf"regexp_extract(coalesce({text}, ''), r'\A\s*([^\r\n]*)', 1)"
    return engine.query(
        f"""WITH by_id AS (
            SELECT rtrim(substring({line}, 1, {MAX_LINE})) AS text, id, count(*) AS n, min(event_at) AS first,
                max(event_at) AS last
            FROM {{events}} GROUP BY 1, 2
        ) SELECT text AS {name}, CAST(sum(n) AS BIGINT) AS {number}, count(*) AS messages, {more}
        FROM by_id GROUP BY text ORDER BY {number} DESC, {name} LIMIT {MAX_ROWS}""",
        events=events,
    )


def _gaps(engine: SqlEngine[T], events: T, grid: T) -> T:
    buckets = engine.query(
        """SELECT bucket, sum(entries) AS entries, min(low) AS low, max(high) AS high
        FROM {grid} WHERE bucket IS NOT NULL GROUP BY bucket""",
        grid=grid,
    )
    return engine.query(
        f"SELECT first, last, last - first + 1 AS missing FROM {{gaps}} ORDER BY first LIMIT {MAX_ROWS}",
        gaps=gaps_of(engine, events, buckets),
    )
