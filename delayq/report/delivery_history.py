"""The history of every delivery according to the event log: its outcome, and whether a redelivery is explained."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from delayq.archive.message_steps import SETTLED, SPENT
from delayq.archive.sql_engine import SqlEngine
from delayq.bulk.files.schemas import COLD_DROPPED, IMPORTED, KILLED, LIFE_STARTS, NOTES, OF_ENTRIES, RESTORED, SPILLED
from delayq.queue.inspecting.event_log import EventKind
from delayq.report.overview import OUTCOMES

T = TypeVar("T")

MAX_ROWS = 1000
"""Rows of a list of texts, messages or gaps: the first or the most frequent."""
_LAST = " for good"  # marks the failure that spent the last retry
_ENDED = ("delivered", *SETTLED, "dead", "rejected", "cancelled", f"nacked{_LAST}", f"expired{_LAST}")
"""After these no delivery may follow: the message is in flight, or its life has ended."""
_REJECTED = f"(kind = 'dead' AND reason NOT IN ('{SPENT}', '{KILLED}'))"
"""Whether a death is due to a rejection; others follow a failure that has an event of its own, or are by hand."""
_UNMOVED = ("promoted", "retried", "rescheduled", SPILLED, RESTORED, COLD_DROPPED, *OF_ENTRIES, IMPORTED, *NOTES)
"""Events that leave a message where it is, or a waiting one waiting, or that are of no life in this queue."""


_FAILED_FOR_GOOD = tuple(f"{kind}{_LAST}" for kind in ("nacked", "expired"))
_STEPS = (*(kind.value for kind in EventKind), *_FAILED_FOR_GOOD, "rejected")
"""What an event means for its message; the queries use numbers from 1, because sorting longer rows takes longer."""


def _codes(*steps: str) -> str:
    """Return the numbers of steps, as a list in SQL."""
    return f"({', '.join(str(_STEPS.index(step) + 1) for step in steps)})"


def _named(step: str, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return SQL for the name of a step by its number; `names` are those with another name."""
    cases = "".join(f" WHEN {number} THEN '{names.get(name, name)}'" for number, name in enumerate(_STEPS, 1))
    return f"CASE {step}{cases} WHEN 0 THEN 'other' END"


def delivery_history(engine: SqlEngine[T], events: T) -> T:
    """Follow each message's deliveries and outcomes in order, and count equal steps.

    `after` is the event before a delivery or ack, which may explain it. Unexplained ones also have their location in
    `found`, a row each. One shuffle, one sort and one pass serve funnel, duplicates and the number of messages.
    """
    numbers = "".join(f" WHEN '{name}' THEN {number}" for number, name in enumerate(_STEPS, 1))
    of_life = "OVER (PARTITION BY hash, id ORDER BY log_offset, entry_index"
    until_now = f"{of_life} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    so_far = f"{of_life} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    settled, delivered = _codes(*SETTLED), _codes("delivered")
    kinds = {"rejected": "dead", **{name: name.removesuffix(_LAST) for name in _FAILED_FOR_GOOD}}
    return engine.query(
        f"""WITH named AS (
            SELECT *, CASE WHEN kind IN ('nacked', 'expired') AND retries_left IS NULL THEN concat(kind, '{_LAST}')
                WHEN {_REJECTED} THEN 'rejected' ELSE kind END AS name
            FROM {{events}} WHERE id IS NOT NULL AND kind NOT IN {_UNMOVED}
        ), steps AS (
            -- The hash comes before the id because it is faster to sort by.
            SELECT xxhash64(id) AS hash, id, log_offset, entry_index, event_at, token, attempt,
                CAST(CASE name{numbers} ELSE 0 END AS TINYINT) AS step,
                CASE WHEN kind = 'delivered' THEN token END AS given
            FROM named
        ), seen AS (
            -- Only the latest delivery can have an outcome: a later one makes the token of the one before invalid.
            SELECT id, log_offset, entry_index, event_at, token, step, attempt,
                last_value(given) IGNORE NULLS {until_now} AS given,
                last_value(attempt) IGNORE NULLS {until_now} AS given_attempt,
                lag(step) {of_life}) AS before,
                last_value(CASE WHEN step IN {_codes(*LIFE_STARTS, *SETTLED)} THEN step END) IGNORE NULLS {so_far}
                    AS settled
            FROM steps
        ), explained AS (
            SELECT *, CASE WHEN step IN {delivered} THEN before
                    WHEN step IN {settled} AND settled IN {settled} THEN settled END AS after,
                coalesce(attempt, CASE WHEN token = given THEN given_attempt END) AS of_attempt
            FROM seen
        ), judged AS (
            SELECT step, of_attempt AS attempt, after, before IS NULL AS begins,
                CASE WHEN CASE WHEN step IN {delivered} THEN after IN {_codes(*_ENDED)} ELSE after IS NOT NULL END
                    THEN struct(id, event_at, token, log_offset, entry_index) END AS found
            FROM explained
        ), counted AS (
            SELECT step, attempt, after, begins, found, count(*) AS events FROM judged GROUP BY 1, 2, 3, 4, 5
        ) SELECT {_named("step")} AS step, attempt, {_named("after")} AS after, begins, found, events,
            {_named("step", kinds)} AS kind
        FROM counted""",
        events=events,
    )


def failures(engine: SqlEngine[T], events: T) -> T:
    """Return the events of failed deliveries, one per failure, with their error or reason as `error_text`."""
    text = "CASE kind WHEN 'nacked' THEN error WHEN 'expired' THEN 'lease expired' ELSE reason END"
    is_failure = f"kind IN ('nacked', 'expired') OR {_REJECTED}"
    return engine.query(f"SELECT *, {text} AS error_text FROM {{events}} WHERE {is_failure}", events=events)


def totals(conditions: Mapping[str, str]) -> str:
    """Return columns that sum `events` over the rows that meet a condition, by name."""
    return ", ".join(
        f"CAST(sum(CASE WHEN {condition} THEN events ELSE 0 END) AS BIGINT) AS {name}"
        for name, condition in conditions.items()
    )


def funnel(engine: SqlEngine[T], history: T) -> T:
    """Return the outcomes of the deliveries of each attempt."""
    conditions = {name: f"kind = '{name}'" for name in ("delivered", *OUTCOMES, "dead")}
    conditions["rejected"] = "step = 'rejected'"
    return engine.query(
        f"""WITH counted AS (
            SELECT attempt, {totals(conditions)} FROM {{history}}
            WHERE kind IN {("delivered", "dead", *OUTCOMES)} GROUP BY attempt
        ) SELECT *, CASE WHEN delivered > 0 THEN acked / delivered END AS share
        FROM counted ORDER BY attempt NULLS LAST""",
        history=history,
    )


def redeliveries(engine: SqlEngine[T], history: T) -> T:
    """Return the deliveries and acks after the first of a life, by the event before."""
    return engine.query(
        f"""SELECT kind, after, found IS NULL AS explained, CAST(sum(events) AS BIGINT) AS events FROM {{history}}
        WHERE after NOT IN {LIFE_STARTS} GROUP BY 1, 2, 3 ORDER BY explained, events DESC, kind, after""",
        history=history,
    )


def duplicates(engine: SqlEngine[T], history: T) -> T:
    """Return the unexplained deliveries and acks, one row each, in log order."""
    return engine.query(
        f"""SELECT found.id AS id, kind, after, found.event_at AS event_at, attempt, found.token AS token,
            found.log_offset AS log_offset, found.entry_index AS entry_index
        FROM {{history}} WHERE found IS NOT NULL ORDER BY log_offset, entry_index LIMIT {MAX_ROWS}""",
        history=history,
    )
