"""Loads a table of messages, or a plan, into a queue; repeating a load adds only what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Observation
from pyspark.sql import functions as F

from delayq.broker.batches import batched
from delayq.broker.ids import new_id
from delayq.broker.transport.operation import together
from delayq.errors import ConfigurationError, DelayqError, NoReplyError, short_repr
from delayq.queue.bulk_runs import RunInfo, begin_run, list_runs
from delayq.spark.datasource.connection import calls_of, connect, context_of, open_queue
from delayq.spark.datasource.message_batches import COLUMNS, check_columns
from delayq.spark.datasource.source import register
from delayq.spark.datasource.source_options import TargetQueue, as_options, write_options
from delayq.spark.pipelines.planned_reminders import UNKNOWN, source_of
from delayq.spark.spark_errors import error_of
from delayq.text import pluralize
from delayq.times import Duration, timestamp, to_millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CANCEL_BATCH = 200
"""Ids cancelled per call."""

When = datetime | str
"""A time, or a text such as `"now"` or `"+1d"`: see `load`."""


@dataclass(frozen=True, slots=True)
class Loaded(RunInfo):
    """The result of a load: its record in the run ledger, and the counts of rows not sent."""

    past: int = 0
    """Rows due before `start`."""
    later: int = 0
    """Rows due at `until` or after it."""
    cancelled: int = 0
    """Messages that the plan no longer contains and that this load cancelled."""
    too_late: int = 0
    """Messages that the plan no longer contains but that are in flight or dead, so could not be cancelled."""

    def facts(self) -> dict[str, Any]:
        """Return all fields by name, ready for JSON."""
        return {name: at.isoformat() if isinstance(at, datetime) else at for name, at in asdict(self).items()}

    def told(self) -> str:
        """Return the result as a sentence."""
        counts = {
            "new": self.new,
            "already there": self.exists + self.running,
            "replaced": self.replaced,
            "already settled": self.settled,
            "refused": self.refused,
            "past": self.past,
            "later": self.later,
            "cancelled": self.cancelled,
            "too late to cancel": self.too_late,
        }
        parts = [f"{number:,} {what}" for what, number in counts.items() if number or what == "new"]
        return f"run {self.run}: {', '.join(parts)}"


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
    """Send the messages of a table that are due from `start` (inclusive) to `until` (exclusive).

    The table has the columns of `schemas.MESSAGES`, or it is a plan (it has a column `action`). The cancels of a plan
    are carried out after its messages are sent, whenever they are due. A plan is read twice, so store it first. Rows
    without a due time are always sent, and due at once.

    `start` and `until` are aware datetimes, ISO 8601 texts, or relative: `"now"`, `"+1d"`, `"-2h"`. They are resolved
    before the job begins, by the clock of the Redis server; a relative `until` counts from `start`. With `start="now"`,
    past rows are not sent but counted in `past`; without `start` they are sent, and due at once.

    Repeatable: a message is stored once while it lives and within the queue's dedupe window after it was settled. After
    a failure, load again: what was sent stays, and only the rest is added. `run` is the name in the run ledger, whose
    counts are exact even if tasks are repeated; loads with the same name are added up. Without a name, a load of the
    same files resumes their unfinished run. The ledger also has `start` and `until`, for the audit. The other
    parameters are options of the data source.

    Works over Spark Connect too; this process must reach Redis, like the executors. Raises `ConfigurationError` for
    invalid options and columns, if possible before a row is sent; an error of a task is raised as its `DelayqError`.
    The text of an error ends with what the run has stored, as a note where it is an error of Spark.
    """
    texts = as_options(
        queue=queue,
        url=url,
        prefix=prefix,
        runId=run,
        onConflict=on_conflict,
        onError=on_error,
        batchSize=batch_size,
        maxRowsPerSecond=max_rows_per_second,
        defaultRetries=default_retries,
        maxPayload=max_payload,
        dedupeWindow=None if dedupe_window is None else f"{to_millis(dedupe_window, 'dedupe_window')}ms",
    )
    options = write_options(texts)
    texts["url"] = options.target.url
    to_send, to_cancel = _parts(messages)
    check_columns(to_send.schema)
    open_queue(options.target, options.dedupe_window)
    first, last = _horizon(options.target, start, until)
    if not (first is last is None or "due" in to_send.columns):
        raise ConfigurationError("start and until need a column due, which the table does not have")
    texts["runId"] = _begin(options.target, run, messages, first, last)
    try:
        outside = _send(to_send, texts, first, last)
        cancelled = {} if to_cancel is None else _cancel(to_cancel, options.target)
    except Exception as error:
        ours = error_of(error)
        stored = _stored(ours, options.target, texts["runId"])
        if ours is None:
            error.add_note(stored)
            raise
        raise type(ours)(f"{ours}; {stored}") from error
    return _result(options.target, texts["runId"], outside, cancelled)


def _parts(messages: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    """Return the messages to send and, of a plan, the rows to cancel."""
    if "action" not in messages.columns:
        return messages, None
    is_cancel = F.col("action").eqNullSafe("cancel")
    columns = [name for name in messages.columns if name in COLUMNS]
    return messages.where(~is_cancel).select(*columns), messages.where(is_cancel)


def _horizon(target: TargetQueue, start: When | None, until: When | None) -> tuple[int | None, int | None]:
    """Return both ends in milliseconds since 1970; raises `ConfigurationError` if nothing can lie between them."""
    now = connect(target).call(calls_of(target).time())
    first = None if start is None else resolve(start, "start", now)
    last = None if until is None else resolve(until, "until", now if first is None else first)
    if first is not None and last is not None and first >= last:
        raise ConfigurationError(f"until {short_repr(until)} must be after start {short_repr(start)}")
    return first, last


def resolve(when: When, name: str, base: int) -> int:
    """Return a time in milliseconds since 1970; a relative one counts from `base`."""
    if not isinstance(when, str):
        return timestamp(when, name)
    if when == "now":
        return base
    if when.startswith(("+", "-")):
        return base + int(f"{when[0]}{to_millis(when[1:], name)}")
    try:
        at = datetime.fromisoformat(when)
    except ValueError:
        allowed = "'now', '+1d', '-2h' or a time such as 2026-01-31T09:00:00+00:00"
        raise ConfigurationError(f"{name} must be {allowed}, not {short_repr(when)}") from None
    return timestamp(at, name)


def _begin(target: TargetQueue, run: str | None, messages: DataFrame, first: int | None, last: int | None) -> str:
    """Begin a run, and return its name; without a name the unfinished run of the same files is resumed."""
    executor, context, source = connect(target), context_of(target), source_of(messages)
    if run is None:
        unfinished = (info for info in executor.perform(list_runs(context)) if info.state != "committed")
        run = next((info.run for info in unfinished if info.source == source != UNKNOWN), new_id())
    executor.perform(begin_run(context, run, start=first, until=last, source=source))
    return run


def _send(messages: DataFrame, options: dict[str, str], first: int | None, last: int | None) -> dict[str, int]:
    """Write the rows between both ends; returns the counts of the others, taken in the same job."""
    register(messages.sparkSession)
    counts = Observation()
    if not (first is last is None):
        past = F.expr("false") if first is None else F.col("due") < F.timestamp_millis(F.lit(first))
        later = F.expr("false") if last is None else F.col("due") >= F.timestamp_millis(F.lit(last))
        observed = messages.observe(counts, F.count_if(past).alias("past"), F.count_if(later).alias("later"))
        messages = observed.where(~F.coalesce(past | later, F.expr("false")))
    messages.write.format("delayq").mode("append").options(**options).save()
    return {} if first is last is None else counts.get


def _cancel(messages: DataFrame, target: TargetQueue) -> dict[str, int]:
    """Cancel messages, on the executors; returns how many got each status."""
    statuses = messages.select("id").mapInArrow(partial(_cancel_ids, target), "status STRING")
    return {row["status"]: row["count"] for row in statuses.groupBy("status").count().collect()}


def _cancel_ids(target: TargetQueue, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        ids: list[Any] = batch.column("id").drop_null().to_pylist()
        cancels = [calls_of(target).cancel(part) for part in batched(ids, CANCEL_BATCH)]
        statuses = "".join(connect(target).perform(together(cancels)))
        yield pa.record_batch({"status": pa.array(list(statuses), pa.string())})


def _stored(error: DelayqError | None, target: TargetQueue, run: str) -> str:
    """Return what a failed run has stored, and what to do, as the end of an error text."""
    unknown = f"what run {run} has stored stays: load again to add the rest"
    if isinstance(error, NoReplyError):  # the next call would wait for Redis as long
        return unknown
    try:
        runs = connect(target).perform(list_runs(context_of(target)))
    except DelayqError:
        return unknown
    stored = sum(info.new + info.replaced for info in runs if info.run == run)
    if not stored:
        return f"run {run} has stored nothing"
    return f"run {run} has stored {pluralize(stored, 'message')}, which stay: load again to add the rest"


def _result(target: TargetQueue, run: str, outside: dict[str, int], cancelled: dict[str, int]) -> Loaded:
    runs = connect(target).perform(list_runs(context_of(target)))
    info = next(info for info in runs if info.run == run)
    return Loaded(
        **asdict(info),
        past=outside.get("past", 0),
        later=outside.get("later", 0),
        cancelled=cancelled.get("1", 0),
        too_late=cancelled.get("2", 0) + cancelled.get("3", 0),
    )
