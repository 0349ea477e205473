"""Results: how many per second 100 processes get that wait for 1,000 each, and their blocking reads meanwhile.

The rate is compared with that of as many results that nobody awaits. The processes share the cores of this machine with
the server and the consumer: with few cores, it is their work that is measured.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any

from delayq import DelayQueue, NewMessage
from delayq.queue.results.result_waits import RENEW_EVERY
from measure.bench_server import BenchServer
from measure.consuming import burst
from measure.figure import NUMBER, Figure, Measurement, Reading, at_most

PROCESSES, EACH = 100, 1_000
TIMEOUT = 120
PROGRAM = Path(__file__).with_name("waiters.py")


def awaiting(server: BenchServer) -> Iterator[Reading]:
    """Results per second until the last process has its own, and blocking reads before the first and for each."""
    processes = server.many(PROCESSES * EACH) // EACH
    n = processes * EACH
    server.empty()
    with _sent(server, "alone", n) as queue:
        alone = burst(queue, n)
    server.empty()
    with _sent(server, "awaited", n) as queue, _waiters(server, queue, processes) as waiters:
        before, began = _reads(server), time.perf_counter()
        _wait_until(lambda: _all_wait(server, queue, processes, n))
        reads = _reads(server) - before
        periods = ceil((time.perf_counter() - began) / RENEW_EVERY)  # on a busy machine, all begin to wait later
        began = time.perf_counter()
        burst(queue, n)
        if waiters.wait(TIMEOUT):
            raise AssertionError("a process did not get its results")
        rate = n / (time.perf_counter() - began)
    yield Reading("results", rate, alone)
    yield Reading("results_reads", reads / processes / periods)
    yield Reading("results_reads_each", (_reads(server) - before) / n)


def _sent(server: BenchServer, name: str, n: int) -> DelayQueue[int]:
    """Return a queue full of messages whose results are their numbers."""
    queue: DelayQueue[int] = DelayQueue(name, url=server.url, concurrency=10, callback=lambda message: message.payload)
    queue.send_many([NewMessage(number, id=f"r{number}", retention="1h") for number in range(n)])
    return queue


@contextmanager
def _waiters(server: BenchServer, queue: DelayQueue[int], processes: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run processes that wait for the results, and end those that are left."""
    words = [server.url, queue.name, str(processes), str(EACH)]
    with subprocess.Popen([sys.executable, PROGRAM, *words], start_new_session=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _all_wait(server: BenchServer, queue: DelayQueue[int], processes: int, n: int) -> bool:
    waited: Any = server.client.zcard(server.calls_of(queue.name).keys.waited)
    return waited == n and server.client.info("clients")["blocked_clients"] == processes


def _reads(server: BenchServer) -> int:
    stats: dict[str, Any] = server.client.info("commandstats")
    return int(stats.get("cmdstat_xread", {"calls": 0})["calls"])


def _wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not all were waiting within {TIMEOUT} s")
        time.sleep(0.05)


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    who = f"{PROCESSES} processes that wait for {EACH:,} each"
    idle = f"blocking reads of a process in {RENEW_EVERY:g} s without a result, {who}"
    figures = [
        Figure("results", f"results of {who}", reference_name="not awaited"),
        Figure("results_reads", idle, at_most(1), NUMBER),
        Figure("results_reads_each", f"blocking reads a result, {who}", None, NUMBER),
    ]
    return [Measurement("results", awaiting, figures, once=True)]
