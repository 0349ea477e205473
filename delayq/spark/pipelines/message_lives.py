"""Follows the lives of messages through the event log: each event must fit those before it.

The scripts of the queue allow few orders of events, and write due time, attempt, token and retries into several of
them. So an event that was lost, doubled or changed does not fit the others of its message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from delayq.spark.datasource.schemas import IMPORTED, KILLED, LIFE_STARTS, NOTES, OF_ENTRIES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SPENT = "retries spent"
"""The reason that collect_garbage.lua sets for a death; any other but `KILLED` comes from a rejection."""
STEP = f"""CASE WHEN kind IN ('nacked', 'expired') AND retries_left IS NULL THEN 'spent'
    WHEN kind = 'dead' AND reason = '{KILLED}' THEN '{KILLED}'
    WHEN kind = 'dead' AND reason IS DISTINCT FROM '{SPENT}' THEN 'rejected' ELSE kind END"""
"""The event's kind; `spent` is the failure that used the last retry, `killed` a death by hand, `rejected` any other
without a spent retry."""

SETTLED = ("acked", "discarded")
DEATHS = ("dead", "rejected", KILLED, IMPORTED)
_ENDS = (*SETTLED, "cancelled", *DEATHS)
_WAITING = ("promoted", "nacked", "released", "retried", "rescheduled", *LIFE_STARTS)
"""After these a message waits, so it can be replaced, cancelled or rescheduled."""
_BEFORE = {
    "sent": (*_ENDS, "purged"),
    "redriven": (*_ENDS, "purged"),
    "replaced": _WAITING,
    "cancelled": (*_WAITING, "delivered"),  # asked to stop while it ran
    "rescheduled": (*_WAITING, "delivered", "spent"),  # a repair reschedules what has no location
    "promoted": (*LIFE_STARTS, "rescheduled"),
    "delivered": ("promoted", "released", "retried"),
    # A late ack counts as long as the message lives.
    **dict.fromkeys(SETTLED, ("delivered", "promoted", "nacked", "released", "retried", "rescheduled")),
    **dict.fromkeys(("nacked", "expired", "released", "spent", "rejected"), ("delivered",)),
    "retried": ("nacked", "expired", "released"),
    "dead": ("spent",),
    IMPORTED: (*_ENDS, "purged"),
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
        f"step = 'sent' AND before.step NOT IN {('purged', IMPORTED)}",
        "concat('was sent again after it was ', before.step)",
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
        "kind IN ('promoted', 'delivered', 'dead') AND due != life_due",
        f"concat('has the due time ', due, ' in its event ', kind, {_PLACE}, ', and ', life_due, ' in those before')",
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


def histories(events: DataFrame, purges: Sequence[int], *, is_cut: bool = False) -> DataFrame:
    """Return one row for each message: its last state by the log, counts, and the first event that is wrong.

    `purges` are the offsets of purges. If the events were deleted up to some day (`is_cut`), a message may have had
    others before its first one. One shuffle serves all of it.
    """
    # The hash comes before the id because it is faster to sort by.
    steps = events.where(f"id IS NOT NULL AND kind NOT IN {NOTES}").selectExpr(
        *(
            "xxhash64(id) AS hash",
            "id",
            "log_offset",
            "entry_index",
            "event_at",
            "kind",
            "due",
            "attempt",
            "token",
            "retries_left",
            "run",
        ),
        f"{STEP} AS step",
    )
    before = Window.partitionBy("hash", "id").orderBy("log_offset", "entry_index")
    before = before.rowsBetween(Window.unboundedPreceding, -1)

    def last(value: str, condition: str = "true") -> Column:
        return F.last(F.expr(f"CASE WHEN {condition} THEN {value} END"), ignorenulls=True).over(before)

    starts, entry = f"kind IN {LIFE_STARTS}", f"kind NOT IN {OF_ENTRIES}"
    seen = steps.select(
        "*",
        F.lit(is_cut).alias("is_cut"),
        last("struct(step, log_offset, entry_index)", entry).alias("before"),
        last("due", f"{starts} OR kind = 'rescheduled'").alias("life_due"),
        last("kind = 'delivered'", f"{starts} OR kind = 'delivered'").alias("handed"),
        last(f"if({starts}, 0, attempt)", f"{starts} OR kind = 'delivered'").alias("last_attempt"),
        last("kind = 'released'", f"{starts} OR kind IN ('delivered', 'released')").alias("is_released"),
        last("kind = 'released'", f"{starts} OR kind = 'released'").alias("had_release"),
        last("token", "kind = 'delivered'").alias("last_token"),
        last("retries_left", f"{starts} OR kind IN ('delivered', 'nacked', 'expired')").alias("left"),
    )
    if purges:
        between = (
            f"exists(array({','.join(f'{one}L' for one in purges)}), p -> p > before.log_offset AND p < log_offset)"
        )
        after_purge = f"step IN {('sent', 'redriven', IMPORTED)} AND before IS NOT NULL AND {between}"
        purged = "named_struct('step', 'purged', 'log_offset', before.log_offset, 'entry_index', before.entry_index)"
        seen = seen.withColumn("before", F.expr(f"CASE WHEN {after_purge} THEN {purged} ELSE before END"))
    cases = "".join(
        f" WHEN {condition} THEN struct('{what}' AS what, {text} AS text)" for what, condition, text in _WRONG
    )
    judged = seen.withColumn("wrong", F.expr(f"CASE{cases} END"))
    order = "struct(log_offset, entry_index)"
    columns = (
        f"max_by(step, {order}) FILTER (WHERE {entry}) AS last",
        f"max_by(event_at, {order}) FILTER (WHERE {entry}) AS last_at",
        f"max(log_offset) FILTER (WHERE {entry}) AS last_offset",
        f"max_by(due, {order}) FILTER (WHERE kind IN ('sent', 'replaced')) AS sent_due",
        f"max_by(due, {order}) FILTER (WHERE {starts} OR kind = 'rescheduled') AS life_due",
        f"max_by(run, {order}) FILTER (WHERE kind IN {('sent', 'replaced', IMPORTED)}) AS run",
        f"max_by(retries_left, {order}) FILTER (WHERE retries_left IS NOT NULL) AS left",
        "min(event_at) FILTER (WHERE kind = 'delivered') AS delivered_at",
        f"min_by(unix_micros(event_at) - unix_micros(due), {order}) FILTER (WHERE kind = 'delivered') AS lateness",
        "count_if(kind = 'delivered') AS deliveries",
        "count_if(kind = 'rescheduled') AS rescheduled",
        "count_if(kind = 'delivered' AND event_at < greatest(due, life_due)) AS early",
        f"count_if(kind IN {('dead', IMPORTED)}) AS deaths",
        f"count_if(kind IN {('redriven', *OF_ENTRIES)}) AS taken",
        f"max(event_at) FILTER (WHERE kind IN {('dead', IMPORTED, 'redriven', *OF_ENTRIES)}) AS dead_at",
        f"min_by(wrong, {order}) FILTER (WHERE wrong IS NOT NULL) AS wrong",
    )
    last_purge = max(purges, default=-1)
    log_status = f"""CASE WHEN last IN {SETTLED} THEN 'delivered'
        WHEN last IN {DEATHS} THEN 'dead' WHEN last = 'cancelled' THEN last
        WHEN last_offset < {last_purge} THEN 'cancelled' WHEN last IS NOT NULL THEN 'scheduled' END"""
    return (
        judged.groupBy("hash", "id")
        .agg(*map(F.expr, columns))
        .drop("hash")
        .withColumn("log_status", F.expr(log_status))
    )
