"""What reading a queue and reading its event log have in common: the queue must be there, and Arrow wants columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from delayq.errors import ConfigurationError
from delayq.inspector import queue_names
from delayq.spark.commands import is_known
from delayq.spark.connection import calls_of, connect
from delayq.spark.given import did_you_mean
from delayq.spark.options import Target

INSTANT = pa.timestamp("us", tz="UTC")
"""How Spark takes a TIMESTAMP from Python."""

ROWS = 10_000
"""Rows of one Arrow batch, about: beyond that nothing gets faster."""


def check_queue(target: Target) -> None:
    """Raise `ConfigurationError` if there is no queue of that name; a name mistyped would read as an empty one."""
    executor = connect(target)
    answers = executor.run(is_known(calls_of(target).keys, target.prefix, target.queue))
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    if not any(answers):
        names = tuple(executor.perform(queue_names(target.prefix)))
        hint = did_you_mean(target.queue, names)
        raise ConfigurationError(f"there is no queue {target.queue!r} under the prefix {target.prefix!r}{hint}")


def instants(times: Sequence[int | None]) -> pa.Array[Any]:
    """Return milliseconds since 1970 as Spark's timestamps."""
    return pa.array(times, pa.timestamp("ms", tz="UTC")).cast(INSTANT)


def texts(cells: Sequence[bytes | None]) -> pa.Array[Any]:
    """Return UTF-8 as a column of texts; what is none is replaced, as everywhere where errors are shown."""
    stored = pa.array(cells, pa.binary())
    try:
        return stored.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if cell is None else cell.decode("utf-8", "replace") for cell in cells], pa.string())
