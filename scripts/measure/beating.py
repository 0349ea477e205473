"""Beats: consuming with them compared with without, and how long it takes to read 1,000 workers.

A beat is due every 10 s: these come every second, so that a measurement of seconds has some. The
workers that are read run ten messages each.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from unittest.mock import patch

from delayq import DelayQueue
from delayq.broker.worker_entries import WorkerEntry
from delayq.worker import beats
from measure.backlog import slowlog
from measure.bench_server import QUEUE, BenchServer, seconds_of
from measure.consuming import in_threads
from measure.figure import MILLISECONDS, Figure, Measurement, Reading, at_least, at_most

MESSAGES = 200_000
OFTEN = 1.0
"""Seconds between two beats."""
WORKERS = 1000
RUNNING = 10
TURNS = 7


def _consume(server: BenchServer, n: int, every: float) -> tuple[float, int]:
    """Return the messages per second, and how many beats there were."""
    with patch.object(beats, "BEAT_EVERY", every), patch.object(beats, "WorkerEntry", wraps=WorkerEntry) as told:
        return in_threads(server, n), told.call_count


def beating(server: BenchServer) -> Iterator[Reading]:
    """Messages per second with beats, compared with none."""
    n = server.many(MESSAGES)
    (rate, told), (without, none) = server.compare(
        lambda: _consume(server, n, OFTEN), lambda: _consume(server, n, math.inf)
    )
    if none or told < int(n / rate / OFTEN):
        raise AssertionError(f"there were {told} beats, and {none} without")
    yield Reading("beats", rate, without)


def listing(server: BenchServer) -> Iterator[Reading]:
    """Milliseconds in which the workers of a queue are read, and those of the longest script."""
    server.empty()
    running = [(f"{number:022}", 1000) for number in range(RUNNING)]
    names = [f"queue-{number}" for number in range(RUNNING)]
    for number in range(WORKERS):
        entry = WorkerEntry("host", number, "1.0", names, RUNNING, RUNNING, 10_000, 1000, RUNNING, running)
        server.raw.call(server.calls.beat(f"{number:022}", entry))
    with DelayQueue(QUEUE, url=server.url) as queue:
        queue.workers()  # which loads the script
        with slowlog(server) as longest:
            took = [1000 * seconds_of(lambda: len(queue.workers())) for _ in range(TURNS)]
        if len(queue.workers()) != WORKERS:
            raise AssertionError("some workers were not listed")
    yield Reading("workers", statistics.median(took))
    yield Reading("workers_script", longest["workers_page"])


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    often = Figure("beats", "consume, 10 threads, a beat a second", at_least(0.95, "without"), reference_name="without")
    title = f"{WORKERS:,} workers"
    listed = [
        Figure("workers", f"read {title}", at_most(50, MILLISECONDS), MILLISECONDS),
        Figure("workers_script", f"longest script that reads {title}", at_most(10, MILLISECONDS), MILLISECONDS),
    ]
    return [Measurement("beating", beating, [often]), Measurement("listing_workers", listing, listed, once=True)]
