"""Presence: consuming with reports and what they count, compared with without, and reading 1,000 workers and 90 days.

A report is due every 10 s: these come every second, so that a measurement of seconds has some. The
workers that are read run ten messages each.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from delayq import DelayQueue
from delayq.broker.stored_presence import (
    BUCKETS,
    HOUR,
    KEPT_HOURS,
    HourCounts,
    WorkerEntry,
    presence_call,
    write_counts,
)
from delayq.worker.loop import loop_parts
from delayq.worker.parts import presence
from measure.backlog import slowlog
from measure.bench_server import QUEUE, BenchServer, seconds_of
from measure.consuming import in_threads
from measure.figure import MILLISECONDS, Figure, Measurement, Reading, at_least, at_most

MESSAGES = 200_000
OFTEN = 1.0
"""Seconds between two reports."""
WORKERS = 1000
RUNNING = 10
TURNS = 7


def _consume_with(server: BenchServer, n: int) -> tuple[float, int]:
    """Return the messages per second, and how many reports there were."""
    with (
        patch.object(presence, "PRESENCE_EVERY", OFTEN),
        patch.object(presence, "WorkerEntry", wraps=WorkerEntry) as told,
    ):
        return in_threads(server, n), told.call_count


def _consume_without(server: BenchServer, n: int) -> float:
    """Return the messages per second of a consumer that neither reports nor counts."""
    with patch.object(presence, "PRESENCE_EVERY", math.inf), patch.object(loop_parts, "Tally", return_value=None):
        return in_threads(server, n)


def beating(server: BenchServer) -> Iterator[Reading]:
    """Messages per second with reports and what they count, compared with none."""
    n = server.many(MESSAGES)
    (rate, told), without = server.compare(lambda: _consume_with(server, n), lambda: _consume_without(server, n))
    if told < int(n / rate / OFTEN):
        raise AssertionError(f"there were {told} reports")
    yield Reading("beats", rate, without)


def listing(server: BenchServer) -> Iterator[Reading]:
    """Milliseconds in which the workers of a queue are read, and those of the longest script."""
    server.empty()
    running = [(f"{number:022}", 1000) for number in range(RUNNING)]
    names = [f"queue-{number}" for number in range(RUNNING)]
    for number in range(WORKERS):
        entry = WorkerEntry("host", number, "1.0", names, RUNNING, RUNNING, 10_000, 1000, RUNNING, running)
        server.raw.call(presence_call(server.calls, f"{number:022}", entry))
    with DelayQueue(QUEUE, url=server.url) as queue:
        queue.workers()  # which loads the script
        with slowlog(server) as longest:
            took = [1000 * seconds_of(lambda: len(queue.workers())) for _ in range(TURNS)]
        if len(queue.workers()) != WORKERS:
            raise AssertionError("some workers were not listed")
        numbers: list[Any] = [10**6] * 8
        counts = HourCounts(*numbers, lateness=(10**6,) * BUCKETS)
        hour = server.client.time()[0] * 1000 // HOUR
        records: Any = {hour - back: write_counts(counts) for back in range(KEPT_HOURS)}
        server.client.hset(server.calls.keys.history, mapping=records)
        days = [1000 * seconds_of(lambda: queue.history(90)) for _ in range(TURNS)]
        if queue.history(90).total.delivered < 89 * 24 * 10**6:
            raise AssertionError("some hours were not read")
    yield Reading("history", statistics.median(days))
    yield Reading("workers", statistics.median(took))
    yield Reading("workers_script", longest["workers_page"])


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    often = Figure(
        "beats", "consume, 10 threads, a report a second", at_least(0.95, "without"), reference_name="without"
    )
    title = f"{WORKERS:,} workers"
    listed = [
        Figure("workers", f"read {title}", at_most(50, MILLISECONDS), MILLISECONDS),
        Figure("history", "read the history of 90 days", at_most(50, MILLISECONDS), MILLISECONDS),
        Figure("workers_script", f"longest script that reads {title}", at_most(10, MILLISECONDS), MILLISECONDS),
    ]
    return [Measurement("beating", beating, [often]), Measurement("listing_workers", listing, listed, once=True)]
