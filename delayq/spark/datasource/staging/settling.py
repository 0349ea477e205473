"""Settles messages that a stream has consumed before Spark commits their batch: `settle`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa

from delayq.broker.requests import Failure, Receipt, Rejection, ScriptCall
from delayq.broker.scripts import MAX_SETTLED
from delayq.bulk.connection import TargetQueue, calls_of, connect, context_of, target_of
from delayq.errors import ConfigurationError, short_repr
from delayq.values.times import Duration, to_millis
from delayq.worker.delivery.in_flight_delivery import truncate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

How = Literal["ack", "nack", "reject"]
HOW = ("ack", "nack", "reject")
RETRY_DELAY = 60
"""Seconds that a message waits after a nack, by default."""
_FAILED = "failed in a batch of Spark"


class Settled(NamedTuple):
    """What `settle` has done."""

    settled: int
    """Messages settled by it."""
    stale: int
    """Messages that were not: settled before, as in a batch that is repeated, or claimed again after their lease."""


def settle(
    messages: DataFrame,
    queue: str,
    *,
    how: How = "ack",
    delay: Duration = RETRY_DELAY,
    url: str | None = None,
    prefix: str = "delayq",
) -> Settled:
    """Settle messages of a batch now, on the executors; what is not settled is acknowledged when Spark commits.

    `messages` has the columns `id` and `token` of the stream, and may have `error`, a text that says why. They are
    acknowledged, retried after `delay` at the cost of a retry (nack), or moved to the dead letter (reject). Each is
    settled once, whatever is repeated after a crash.

    Raises `ConfigurationError` for another `how`, and for messages without these columns.
    """
    if how not in HOW:
        raise ConfigurationError(f"how must be {', '.join(HOW[:-1])} or {HOW[-1]}, not {short_repr(how)}")
    kinds = dict(messages.dtypes)
    for name, kind in ("id", "string"), ("token", "bigint"), ("error", "string"):
        if kinds.get(name, kind if name == "error" else None) != kind:
            raise ConfigurationError(f"settle needs the columns id and token of the stream: {name} must be {kind}")
    target = target_of(queue, url, prefix, None)
    chosen = messages.select(*(name for name in ("id", "token", "error") if name in kinds))
    work = partial(_settle_batches, target, how, to_millis(delay, "delay"))
    done = chosen.mapInArrow(work, "status STRING").groupBy("status").count().collect()
    counts = {row["status"]: row["count"] for row in done}
    stale = counts.pop("0", 0)
    return Settled(sum(counts.values()), stale)


def _settle_batches(
    target: TargetQueue, how: How, delay: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = batch.to_pylist()
        pages = [rows[at : at + MAX_SETTLED] for at in range(0, len(rows), MAX_SETTLED)]
        done = "".join(settle_rows(target, how, delay, page) for page in pages)
        yield pa.record_batch({"status": pa.array([*done], pa.string())})


def settle_rows(target: TargetQueue, how: How, delay: int, rows: list[dict[str, Any]]) -> str:
    """Settle messages, `MAX_SETTLED` at most, and return a status each: 0 for one that was not settled by this call."""
    executor, done = connect(target), ""
    while len(done) < len(rows):  # one call moves a limited number of bytes
        done += executor.call(_call(target, how, delay, rows[len(done) :]))
    if "2" in done:  # without a retry left
        executor.call(calls_of(target).collect(context_of(target).settings))
    return done


def _call(target: TargetQueue, how: How, delay: int, rows: list[dict[str, Any]]) -> ScriptCall[str]:
    calls = calls_of(target)
    if how == "ack":
        return calls.ack(Receipt(row["id"], row["token"]) for row in rows)
    texts = [truncate(row.get("error") or _FAILED) for row in rows]
    told = [(row["id"], row["token"], text) for row, text in zip(rows, texts, strict=True)]
    if how == "nack":
        return calls.nack(Failure(id, token, delay, text) for id, token, text in told)
    return calls.reject(Rejection(id, token, text, "") for id, token, text in told)
