"""Follows the lives of messages through the event log: each event must fit those before it.

The scripts of the queue allow few orders of events, and write due time, attempt, token and retries into several of
them. So an event that was lost, doubled or changed does not fit the others of its message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from delayq.archive.message_steps import DEATHS, SETTLED, STEP
from delayq.archive.sql_engine import SqlEngine, time_text
from delayq.bulk.files.schemas import (
    COLD_DROPPED,
    IMPORTED,
    KILLED,
    LIFE_STARTS,
    NOTES,
    OF_ENTRIES,
    RESTORED,
    SPILLED,
)

T = TypeVar("T")

_ENDS = (*SETTLED, "cancelled", *DEATHS)
_WAITING = ("promoted", "nacked", "released", "retried", "rescheduled", RESTORED, *LIFE_STARTS)
"""After these a message waits, so it can be replaced, cancelled or rescheduled."""
_BEFORE = {
    "sent": (*_ENDS, "purged", SPILLED),  # sends do not look at the cold tier
    "redriven": (*_ENDS, "purged"),
    "replaced": _WAITING,
    "cancelled": (*_WAITING, "delivered"),  # asked to stop while it ran
    "rescheduled": (*_WAITING, "delivered", "spent"),  # a repair reschedules what has no location
    "promoted": (*LIFE_STARTS, "rescheduled", RESTORED),
    "delivered": ("promoted", "released", "retried"),
    # A late ack counts as long as the message lives.
    **dict.fromkeys(SETTLED, ("delivered", "promoted", "nacked", "released", "retried", "rescheduled")),
    **dict.fromkeys(("nacked", "expired", "released", "spent", "rejected"), ("delivered",)),
    "retried": ("nacked", "expired", "released"),
    "dead": ("spent",),
    IMPORTED: (*_ENDS, "purged"),
    SPILLED: (*LIFE_STARTS, "rescheduled", RESTORED),
    RESTORED: (SPILLED, *_ENDS),
    KILLED: (*_WAITING, "delivered"),  # a callback may reject with this reason, too
}
"""Each event, and those that may come directly before it."""

_FITS = " OR ".join(f"step = '{step}' AND before.step IN {allowed}" for step, allowed in _BEFORE.items())
_FITS = _FITS.replace(",)", ")")
_PLACE = "' at offset ', log_offset"
_WRONG = (
    (
        "event doubled",
        "before.log_offset = log_offset AND before.entry_index = entry_index",
        f"concat('its event ', kind, {_PLACE}, ' is there twice')",
    ),
    (
        "event lost",
        f"before IS NULL AND step NOT IN {('sent', IMPORTED)} AND NOT is_cut",
        "'its send is not in the log'",
    ),
    (
        "sent again",
        f"step = 'sent' AND before.step NOT IN {('purged', IMPORTED, SPILLED)}",
        "concat('was sent again after it was ', before.step)",
    ),
    (
        "sent again",
        f"step = 'sent' AND before.step = '{SPILLED}' AND cold_before <= 0 AND NOT is_cut",
        "'was sent again after it was dropped from the cold tier'",
    ),
    (
        "sent again",
        f"step = '{RESTORED}' AND before.step IN {_ENDS}",
        "concat('was sent again while it was cold, and came back after it was ', before.step)",
    ),
    (
        "event lost",
        f"step IN {(RESTORED, COLD_DROPPED)} AND coalesce(cold_before, 0) <= 0 AND NOT is_cut",
        f"concat('its move to the cold tier before its event ', kind, {_PLACE}, ' is not in the log')",
    ),
    (
        "duplicate",
        f"step = 'delivered' AND before.step IN {_ENDS} OR step IN {SETTLED} AND before.step IN {SETTLED}",
        "concat('was ', step, ' after it was ', before.step)",
    ),
    ("duplicate", "step = 'delivered' AND before.step = step", "'was delivered twice without a failure between'"),
    ("event lost", f"step IN {SETTLED} AND NOT coalesce(handed, is_cut)", "'was acked without a delivery'"),
    (
        "event lost",
        f"before IS NOT NULL AND step IN {tuple(_BEFORE)} AND NOT ({_FITS})",
        f"concat('what led from ', before.step, ' to ', step, {_PLACE}, ' is not in the log')",
    ),
    (
        "wrong time",
        f"kind IN {('promoted', 'delivered', 'dead', SPILLED, RESTORED)} AND due != life_due",
        f"""concat('has the due time ', {time_text("due")}, ' in its event ', kind, {_PLACE}, ', and ',
            {time_text("life_due")}, ' in those before')""",
    ),
    (
        "event changed",
        # A release does not count as an attempt, and a repair may reset them. A kill draws a token for what has none.
        """step = 'delivered' AND (attempt != last_attempt + if(is_released, 0, 1)
            AND NOT (attempt = 1 AND before.step = 'rescheduled') OR token <= last_token OR retries_left != left)
        OR step IN ('nacked', 'expired', 'spent') AND coalesce(retries_left, -1) != left - 1
        OR kind IN ('nacked', 'expired', 'released', 'retried', 'dead') AND token != last_token
            AND NOT (step = 'killed' AND last_attempt = 0)
        OR kind IN ('acked', 'discarded') AND (token > last_token
            OR token != last_token AND last_attempt = 1 AND NOT coalesce(had_release, is_cut))
        OR kind = 'dead' AND attempt != last_attempt - if(step = 'killed' AND is_released, 1, 0)""",
        f"concat('attempt, token or retries of its event ', kind, {_PLACE}, ' do not fit those before')",
    ),
)
"""What is wrong with an event, when, and its detail, in SQL; the first that applies."""


_STARTS = f"kind IN {LIFE_STARTS}"
_IS_OWN = f"kind NOT IN {(*OF_ENTRIES, COLD_DROPPED)}"
"""Whether an event is of the message itself, not of an entry of the dead letter or of the cold tier."""
_OF_COLD = f"kind IN {(SPILLED, RESTORED, COLD_DROPPED)}"
_COLD = f"CASE WHEN kind = '{SPILLED}' THEN 1 WHEN {_OF_COLD} THEN -1 ELSE 0 END"
"""How many more messages of the id are cold after an event."""


def _last(value: str, condition: str) -> str:
    return f"last_value(CASE WHEN {condition} THEN {value} END) IGNORE NULLS OVER earlier"


_SEEN = f"""
WITH steps AS (
    -- The hash comes before the id because it is faster to sort by.
    SELECT xxhash64(id) AS hash, id, log_offset, entry_index, event_at, kind, due, attempt, token, retries_left, run,
        {STEP} AS step
    FROM {{events}} WHERE id IS NOT NULL AND kind NOT IN {NOTES}
), seen AS (
    SELECT *,
        {_last("struct(step, log_offset, entry_index)", _IS_OWN)} AS before,
        {_last("due", f"{_STARTS} OR kind = 'rescheduled'")} AS life_due,
        {_last("kind = 'delivered'", f"{_STARTS} OR kind = 'delivered'")} AS handed,
        {_last(f"if({_STARTS}, 0, attempt)", f"{_STARTS} OR kind = 'delivered'")} AS last_attempt,
        {_last("kind = 'released'", f"{_STARTS} OR kind IN ('delivered', 'released')")} AS is_released,
        {_last("kind = 'released'", f"{_STARTS} OR kind = 'released'")} AS had_release,
        {_last("token", "kind = 'delivered'")} AS last_token,
        {_last("retries_left", f"{_STARTS} OR kind IN ('delivered', 'nacked', 'expired')")} AS left,
        sum({_COLD}) OVER earlier AS cold_before
    FROM steps
    WINDOW earlier AS (
        PARTITION BY hash, id ORDER BY log_offset, entry_index ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
)
"""
_ORDER = "struct(log_offset, entry_index)"
_HISTORIES = f"""
SELECT id,
    max_by(step, {_ORDER}) FILTER (WHERE {_IS_OWN}) AS last,
    max_by(event_at, {_ORDER}) FILTER (WHERE {_IS_OWN}) AS last_at,
    max(log_offset) FILTER (WHERE {_IS_OWN}) AS last_offset,
    max_by(due, {_ORDER}) FILTER (WHERE kind IN ('sent', 'replaced')) AS sent_due,
    max_by(due, {_ORDER}) FILTER (WHERE {_STARTS} OR kind = 'rescheduled') AS life_due,
    max_by(run, {_ORDER}) FILTER (WHERE kind IN {("sent", "replaced", IMPORTED)}) AS run,
    max_by(retries_left, {_ORDER}) FILTER (WHERE retries_left IS NOT NULL) AS left,
    min(event_at) FILTER (WHERE kind = 'delivered') AS delivered_at,
    min_by(unix_micros(event_at) - unix_micros(due), {_ORDER}) FILTER (WHERE kind = 'delivered') AS lateness,
    count_if(kind = 'delivered') AS deliveries,
    count_if(kind = 'rescheduled') AS rescheduled,
    count_if(kind = 'delivered' AND event_at < greatest(due, life_due)) AS early,
    count_if(kind IN {("dead", IMPORTED)}) AS deaths,
    count_if(kind IN {("redriven", *OF_ENTRIES)}) AS taken,
    max_by(due, {_ORDER}) FILTER (WHERE kind = '{SPILLED}') AS spilled_due,
    sum(CASE WHEN is_void THEN 0 ELSE {_COLD} END) AS cold,
    max(event_at) FILTER (WHERE {_OF_COLD}) AS cold_at,
    max(log_offset) FILTER (WHERE kind = '{COLD_DROPPED}') AS dropped_offset,
    max(event_at) FILTER (WHERE kind IN {("dead", IMPORTED, "redriven", *OF_ENTRIES)}) AS dead_at,
    min_by(wrong, {_ORDER}) FILTER (WHERE wrong IS NOT NULL) AS wrong
FROM {{judged}} GROUP BY hash, id
"""


def histories(engine: SqlEngine[T], events: T, purges: Sequence[int], *, is_cut: bool = False) -> T:
    """Return one row for each message: its last state by the log, counts, and the first event that is wrong.

    `purges` are the offsets of purges. If the events were deleted up to some day (`is_cut`), a message may have had
    others before its first one. One shuffle serves all of it.
    """
    between = " OR ".join(f"before.log_offset < {one} AND {one} < log_offset" for one in purges) or "false"
    is_after = f"step IN {('sent', 'redriven', IMPORTED)} AND before IS NOT NULL AND ({between})"
    purged = "named_struct('step', 'purged', 'log_offset', before.log_offset, 'entry_index', before.entry_index)"
    last_purge = max(purges, default=-1)
    seen = engine.query(f"{_SEEN} SELECT * FROM seen", events=events)
    purging = f"CASE WHEN {is_after} THEN {purged} ELSE before END AS before"
    cases = "".join(
        f" WHEN {condition} THEN struct('{what}' AS what, {text} AS text)" for what, condition, text in _WRONG
    )
    others = "hash, id, log_offset, entry_index, event_at, kind, due, attempt, token, retries_left, run, step"
    others += ", life_due, handed, last_attempt, is_released, had_release, last_token, left, cold_before"
    judged = engine.query(
        f"""WITH after_purges AS (SELECT {others}, {purging}, {str(is_cut).lower()} AS is_cut,
            log_offset < {last_purge} AS is_void FROM {{seen}})
        SELECT *, CASE{cases} END AS wrong FROM after_purges""",
        seen=seen,
    )
    log_status = f"""CASE WHEN last IN {SETTLED} THEN 'delivered'
        WHEN last IN {DEATHS} THEN 'dead' WHEN last = 'cancelled' THEN last
        WHEN last_offset < {last_purge} THEN 'cancelled'
        WHEN last = '{SPILLED}' THEN if(coalesce(dropped_offset > last_offset, false), 'cancelled', 'cold')
        WHEN last IS NOT NULL THEN 'scheduled' END"""
    each = engine.query(_HISTORIES, judged=judged)
    return engine.query(f"SELECT *, {log_status} AS log_status FROM {{each}}", each=each)
