"""Load a table of messages, or a plan, into a queue for a horizon; the next run adds only what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Observation
from pyspark.sql import functions as F

from delayq.clock import Duration, milliseconds, timestamp
from delayq.errors import ConfigurationError, DelayqError, shown
from delayq.ids import new_id
from delayq.runs import RunInfo
from delayq.spark.columns import KNOWN, check_columns
from delayq.spark.connection import calls_of, connect
from delayq.spark.failures import error_of
from delayq.spark.ledger import RunLedger, ledger_of
from delayq.spark.options import Target, write_options
from delayq.spark.source import register

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CANCELLED_AT_ONCE = 200
"""Ids cancelled in one call."""

When = datetime | str
"""A time, or a text that names one: see `load`."""


@dataclass(frozen=True, slots=True)
class Loaded(RunInfo):
    """What became of the messages of a load: its record in the run ledger, and what was not sent."""

    past: int
    """Rows due before `start`."""
    later: int
    """Rows due at `until` or after it."""
    cancelled: int
    """Messages that a plan no longer wants and that were withdrawn now."""
    too_late: int
    """Messages that a plan no longer wants and that are being processed, or are dead."""

    def facts(self) -> dict[str, Any]:
        """Return it all by name; times as ISO 8601."""
        return {name: at.isoformat() if isinstance(at, datetime) else at for name, at in asdict(self).items()}

    def told(self) -> str:
        """Return it as a sentence."""
        counts = {
            "new": self.new,
            "there already": self.exists + self.running,
            "replaced": self.replaced,
            "settled before": self.settled,
            "refused": self.refused,
            "past": self.past,
            "later": self.later,
            "cancelled": self.cancelled,
            "not cancelled in time": self.too_late,
        }
        told = [f"{number:,} {what}" for what, number in counts.items() if number or what == "new"]
        return f"run {self.run}: {', '.join(told)}"


def new_run() -> str:
    """Return a name for a run that no other has."""
    return new_id()


def load(
    messages: DataFrame,
    queue: str,
    *,
    url: str | None = None,
    prefix: str = "delayq",
    start: When | None = None,
    until: When | None = None,
    run: str | None = None,
    on_conflict: str = "skip",
    on_error: str = "fail",
    batch_size: int = 200,
    max_rows_per_second: float | None = None,
    default_retries: int = 3,
    max_payload: int = 1 << 20,
    dedupe_window: Duration | None = None,
) -> Loaded:
    """Send the messages of a table that are due from `start` on and before `until`, and return what became of them.

    The table has the columns `schemas.MESSAGES`, or it is a plan (it has a column `action`): then what it wants is
    sent, and after that what it no longer wants is cancelled, whenever that is due; it is read twice, so store it
    first. A row without a time is due at
    once, and is always sent.

    `start` and `until` are aware datetimes, such times as ISO text, or relative: `"now"`, `"+1d"`, `"-2h"`. They are
    resolved to instants before the job begins, by the clock of the Redis server; `until` counts from `start`. With
    `start="now"`, what is past is not sent but counted as `past`; without `start` it is sent, and due at once.

    Repeatable: a message is stored once while it lives, and within the queue's dedupe window after it was settled; so
    a load that failed is just done once more. `run` names it in the run ledger, whose counts are exact whatever
    happens to tasks; several loads under one name are added up. The other options are those of the data source.

    Works on Spark Connect too; this process must reach the Redis as the executors do. Raises `ConfigurationError` for
    wrong options and columns, before a row is sent where it can be known by then, and what the job failed of as the
    `DelayqError` it is. What a load that failed has sent stays sent.
    """
    asked = {
        "queue": queue,
        "url": url,
        "prefix": prefix,
        "runId": run or new_run(),
        "onConflict": on_conflict,
        "onError": on_error,
        "batchSize": batch_size,
        "maxRowsPerSecond": max_rows_per_second,
        "defaultRetries": default_retries,
        "maxPayload": max_payload,
        "dedupeWindow": None if dedupe_window is None else _duration(dedupe_window),
    }
    given = {name: str(value) for name, value in asked.items() if value is not None}
    options = write_options(given)
    given["url"] = options.target.url
    wanted, unwanted = _parts(messages)
    check_columns(wanted.schema)
    ledger = ledger_of(options.target, dedupe_window=options.dedupe_window)
    ledger.open()
    first, last = _horizon(options.target, start, until)
    if not (first is last is None or "due" in wanted.columns):
        raise ConfigurationError("start and until choose rows by their column due, and there is none")
    try:
        outside = _send(wanted, given, first, last)
        cancelled = {} if unwanted is None else _cancel(unwanted, options.target)
    except Exception as error:
        ours = error_of(error)
        if ours is None or ours is error:
            raise
        raise ours from error
    return _result(ledger, given["runId"], outside, cancelled)


def _parts(messages: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    """Return the messages to send and, of a plan, the rows to cancel."""
    if "action" not in messages.columns:
        return messages, None
    is_cancel = F.col("action").eqNullSafe("cancel")
    columns = [name for name in messages.columns if name in KNOWN]
    return messages.where(~is_cancel).select(*columns), messages.where(is_cancel)


def _duration(value: Duration) -> str:
    exact = milliseconds(value, "dedupe_window")
    return f"{exact}ms" if exact else "0"


def _horizon(target: Target, start: When | None, until: When | None) -> tuple[int | None, int | None]:
    """Return both ends in milliseconds since 1970; `ConfigurationError` if nothing can lie between them."""
    now = connect(target).call(calls_of(target).time())
    first = None if start is None else resolve(start, "start", now)
    last = None if until is None else resolve(until, "until", now if first is None else first)
    if first is not None and last is not None and first >= last:
        raise ConfigurationError(f"until {shown(until)} must be after start {shown(start)}")
    return first, last


def resolve(when: When, name: str, base: int) -> int:
    """Return a time in milliseconds since 1970; one that is relative counts from `base`."""
    if not isinstance(when, str):
        return timestamp(when, name)
    if when == "now":
        return base
    if when.startswith(("+", "-")):
        return base + int(f"{when[0]}{milliseconds(when[1:], name)}")
    try:
        at = datetime.fromisoformat(when)
    except ValueError:
        right = "'now', '+1d', '-2h' or a time such as 2026-01-31T09:00:00+00:00"
        raise ConfigurationError(f"{name} must be {right}, not {shown(when)}") from None
    return timestamp(at, name)


def _send(wanted: DataFrame, options: dict[str, str], first: int | None, last: int | None) -> dict[str, int]:
    """Write the rows of the horizon; returns how many lay outside of it, which the same job counts."""
    register(wanted.sparkSession)
    write = partial(_write, options=options)
    if first is None and last is None:
        write(wanted)
        return {}
    past = F.expr("false") if first is None else F.col("due") < _at(first)
    later = F.expr("false") if last is None else F.col("due") >= _at(last)
    counts = Observation()
    observed = wanted.observe(counts, F.count_if(past).alias("past"), F.count_if(later).alias("later"))
    write(observed.where(~F.coalesce(past | later, F.expr("false"))))
    return counts.get


def _write(messages: DataFrame, options: dict[str, str]) -> None:
    messages.write.format("delayq").mode("append").options(**options).save()


def _at(milliseconds_since_1970: int) -> Column:
    return F.timestamp_micros(F.lit(milliseconds_since_1970 * 1000))


def _cancel(unwanted: DataFrame, target: Target) -> dict[str, int]:
    """Cancel messages, on the executors; returns how many by the digit that the server answered."""
    answers = unwanted.select("id").mapInArrow(partial(_cancel_ids, target), "answer STRING")
    return {row["answer"]: row["count"] for row in answers.groupBy("answer").count().collect()}


def _cancel_ids(target: Target, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    executor, calls = connect(target), calls_of(target)
    for batch in batches:
        ids: list[Any] = batch.column("id").drop_null().to_pylist()
        parts = [ids[at : at + CANCELLED_AT_ONCE] for at in range(0, len(ids), CANCELLED_AT_ONCE)]
        answers = executor.run(calls.cancel(part) for part in parts)
        for answer in answers:
            if isinstance(answer, DelayqError):
                raise answer
        yield pa.record_batch({"answer": pa.array(list("".join(answers)), pa.string())})


def _result(ledger: RunLedger, run: str, outside: dict[str, int], cancelled: dict[str, int]) -> Loaded:
    info = next(info for info in ledger.runs() if info.run == run)
    return Loaded(
        **{one.name: getattr(info, one.name) for one in fields(RunInfo)},
        past=outside.get("past", 0),
        later=outside.get("later", 0),
        cancelled=cancelled.get("1", 0),
        too_late=cancelled.get("2", 0) + cancelled.get("3", 0),
    )
