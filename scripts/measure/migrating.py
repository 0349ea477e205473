"""Migrating: how fast `delayq migrate` moves a queue of the Go library, and how much memory it uses."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

from delayq.cli.support.exit_codes import Exit
from measure.bench_server import QUEUE, BenchServer
from measure.figure import Figure, Measurement, Reading
from measure.raw import PAYLOAD

MESSAGES = 1_000_000
BATCH = 5000
"""Messages of the Go queue that are written in one round trip."""
SPREAD = 86_400
"""Seconds over which their times are spread."""
MEGABYTES = " MB"


def migrating(server: BenchServer) -> Iterator[Reading]:
    """Messages per second of `delayq migrate`, including its start, and the maximal memory of its process."""
    n = server.many(MESSAGES)
    _fill(server, n)
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "delayq", "--url", server.url, "migrate", QUEUE], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != Exit.OK or server.client.exists(f"dp:{QUEUE}:pending"):
        raise RuntimeError("the queue was not migrated")
    yield Reading("migrate", n / took, note=f"{n:,} messages")
    yield Reading("migrate_memory", used.ru_maxrss * 1024 / 1e6, note=f"{n:,} messages")


def _fill(server: BenchServer, n: int) -> None:
    """Empty the server and write messages like the Go library."""
    server.empty()
    now = int(time.time()) + SPREAD
    for first in range(0, n, BATCH):
        ids = [str(uuid.uuid4()) for _ in range(first, min(first + BATCH, n))]
        with server.client.pipeline(transaction=False) as pipe:
            for id in ids:
                pipe.set(f"dp:{QUEUE}:msg:{id}", PAYLOAD, ex=2 * SPREAD)
            pipe.hset(f"dp:{QUEUE}:retry:cnt", mapping=dict.fromkeys(ids, 3))
            pipe.zadd(f"dp:{QUEUE}:pending", {id: now + at * 7919 % SPREAD for at, id in enumerate(ids, first)})
            pipe.execute()


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    figures = [
        Figure("migrate", "messages migrated from the Go library"),
        Figure("migrate_memory", "the same, maximal memory of the process", unit=MEGABYTES),
    ]
    return [Measurement("migrate", migrating, figures, once=True)]
