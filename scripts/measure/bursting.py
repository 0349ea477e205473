"""Bursts: how late the first and the last of 1,000 messages start that are due at the same time.

The consumer is a process of its own, with default options but for its threads:

    python -m measure.bursting URL THREADS

It prints, for each burst, by how many milliseconds its first and last start were late.
"""

from __future__ import annotations

import logging
import statistics
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from delayq import DelayQueue, Message, NewMessage
from measure.bench_server import QUEUE, TEXT, BenchServer
from measure.figure import MILLISECONDS, Figure, Measurement, Reading, at_most
from measure.limiting import NAMES, NEVER_BINDS
from measure.program import await_ready, read_line, start

BURST = 1000
BURSTS = 20
AHEAD = timedelta(seconds=0.4)
"""From sending until all are due."""
LIMITED, RANKED, LOGGED = "limited", "ranked", "logged"


def consume(url: str, threads: int) -> None:
    """Consume bursts until the input ends."""
    late: list[float] = []
    with DelayQueue(QUEUE, url=url, concurrency=threads) as queue:

        def note(message: Message[str]) -> None:
            late.append(1000 * (time.time() - message.due.timestamp()))
            if len(late) == BURST:
                print(min(late), max(late), flush=True)
                late.clear()

        queue.callback(note)
        for number in range(NAMES):
            queue.on(f"job{number}")(note)
        queue.start_consume()
        print("ready", flush=True)
        sys.stdin.read()


def bursts(kind: str, threads: int, server: BenchServer) -> Iterator[Reading]:
    """Lateness in milliseconds of the first and the last start of a burst: p50 of many bursts."""
    server.empty()
    options: list[dict[str, Any]] = [{}]
    with DelayQueue(QUEUE, url=server.url, events=kind == LOGGED) as queue:
        if kind == LIMITED:
            options = [{"name": f"job{number}"} for number in range(NAMES)]
            for number in range(NAMES):
                queue.limits.set(f"job{number}", **NEVER_BINDS)
        elif kind == RANKED:
            options = [{"priority": 1}]
        with start("bursting", server.url, threads) as consumer:
            await_ready(consumer)
            found = []
            for _ in range(BURSTS if server.scale >= 1 else BURSTS // 2):
                at = datetime.now(UTC) + AHEAD
                queue.send_many([NewMessage(TEXT, at=at, **options[number % len(options)]) for number in range(BURST)])
                found.append([*map(float, read_line(consumer).split())])
            consumer.communicate("")
    firsts, lasts = zip(*found, strict=True)
    yield Reading(f"{_name(kind, threads)}_first", statistics.median(firsts))
    yield Reading(f"{_name(kind, threads)}_last", statistics.median(lasts))


def _name(kind: str, threads: int) -> str:
    return f"burst_{kind}_{threads}"


def _measurement(kind: str, threads: int) -> Measurement:
    name, title = _name(kind, threads), f"start of {BURST:,} due at once, {kind}, {threads} threads, p50"
    figures = [
        Figure(f"{name}_first", f"first {title}", at_most(4, MILLISECONDS), MILLISECONDS),
        Figure(f"{name}_last", f"last {title}", None, MILLISECONDS),
    ]
    return Measurement(name, partial(bursts, kind, threads), figures)


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    kinds = ("plain", LIMITED, RANKED, LOGGED)
    return [_measurement(kind, threads) for kind in kinds for threads in (1, 10)]


if __name__ == "__main__":
    logging.getLogger("delayq").setLevel(logging.ERROR)  # as in `bench.py`
    consume(sys.argv[1], int(sys.argv[2]))
