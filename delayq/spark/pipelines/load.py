"""Loads a table of messages, or a plan, into a queue; repeating a load adds only what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Observation
from pyspark.sql import functions as F

from delayq.bulk.connection import TargetQueue
from delayq.bulk.files.schemas import arrow_schema
from delayq.bulk.load_run import Loaded, LoadRun, When, begin_load, cancel_ids, window_of
from delayq.bulk.message_batches import COLUMNS
from delayq.queue.sweeps.bulk_runs import MAX_REFUSALS
from delayq.spark.datasource.source_options import WriteOptions, as_options, write_options
from delayq.spark.datasource.task_sender import send_rows
from delayq.spark.datasource.writer import check_schema
from delayq.spark.pipelines.spark_audit import source_of
from delayq.spark.spark_errors import error_of
from delayq.values.times import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    window = window_of(dedupe_window)
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
        dedupeWindow=None if window is None else f"{window}ms",
    )
    options = write_options(texts)
    messages = messages.toDF(*map(str.lower, messages.columns))  # as Spark, which compares names in any case
    to_send, to_cancel = _parts(messages)
    check_schema(to_send.schema)
    begun = begin_load(
        options.target,
        start,
        until,
        run=run,
        source=source_of(messages),
        has_due="due" in to_send.columns,
        dedupe_window=options.dedupe_window,
    )
    try:
        outside = _send(to_send, options, begun)
        cancelled = {} if to_cancel is None else _cancel(to_cancel, options.target)
    except Exception as error:
        ours = error_of(error)
        if ours is None:
            error.add_note(begun.stored(None))
            raise
        raise begun.failure(ours) from error
    return begun.result(past=outside.get("past", 0), later=outside.get("later", 0), cancelled=cancelled)


def _parts(messages: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    """Return the messages to send and, of a plan, the rows to cancel."""
    if "action" not in messages.columns:
        return messages, None
    is_cancel = F.col("action").eqNullSafe("cancel")
    columns = [name for name in messages.columns if name in COLUMNS]
    return messages.where(~is_cancel).select(*columns), messages.where(is_cancel)


def _send(messages: DataFrame, options: WriteOptions, run: LoadRun) -> dict[str, int]:
    """Send the rows within the horizon and end the run; returns the counts of the others, taken in the same job.

    The rows are not written through the data source: that starts three more Python processes, and their imports.
    """
    counts, first, last = Observation(), run.first, run.last
    if run.has_horizon:
        past = F.expr("false") if first is None else F.col("due") < F.timestamp_millis(F.lit(first))
        later = F.expr("false") if last is None else F.col("due") >= F.timestamp_millis(F.lit(last))
        observed = messages.observe(counts, F.count_if(past).alias("past"), F.count_if(later).alias("later"))
        messages = observed.where(~F.coalesce(past | later, F.expr("false")))
    try:
        told = messages.mapInArrow(partial(_send_rows, options, run.name), _SENT).collect()
    except Exception as error:
        run.abort(error_of(error) or error)
        raise
    refusals = [(row["id"], row["reason"]) for row in told if row["reason"] is not None]
    run.commit(refusals[:MAX_REFUSALS], sum(row["refused"] for row in told))
    return counts.get if run.has_horizon else {}


_SENT = "refused BIGINT, id STRING, reason STRING"
"""What a task tells that has sent its rows: how many it has refused, and the first of them."""


def _send_rows(options: WriteOptions, run: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    sender = send_rows(options, run, batches)
    told: list[dict[str, Any]] = [{"refused": sender.refused}]
    told += ({"refused": 0, "id": id, "reason": reason} for id, reason in sender.refusals)
    yield pa.RecordBatch.from_pylist(told, arrow_schema(_SENT))


def _cancel(messages: DataFrame, target: TargetQueue) -> dict[str, int]:
    """Cancel messages, on the executors; returns how many got each status."""
    statuses = messages.select("id").mapInArrow(partial(_cancel_ids, target), "status STRING")
    return {row["status"]: row["count"] for row in statuses.groupBy("status").count().collect()}


def _cancel_ids(target: TargetQueue, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        ids: list[Any] = batch.column("id").drop_null().to_pylist()
        yield pa.record_batch({"status": pa.array(list(cancel_ids(target, ids)), pa.string())})
