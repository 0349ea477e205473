"""Migrating: how fast a queue of the Go library is taken over by the command, and the memory it takes meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

from delayq.cli.failure import Exit
from measure.figure import Figure, Measurement, Reading
from measure.raw import PAYLOAD
from measure.stand import QUEUE, Stand

MESSAGES = 1_000_000
AT_ONCE = 5000
"""Messages of the Go queue that are written in one round trip."""
SPREAD = 86_400
"""Seconds over which their times are spread."""
MEGABYTES = " MB"


def migrating(stand: Stand) -> Iterator[Reading]:
    """Messages a second of `delayq migrate`, its start included, and the most memory its process had."""
    n = stand.many(MESSAGES)
    _fill(stand, n)
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "delayq", "--url", stand.url, "migrate", QUEUE], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != Exit.OK or stand.client.exists(f"dp:{QUEUE}:pending"):
        raise RuntimeError("the queue was not taken over")
    yield Reading("migrate", n / took, note=f"{n:,} messages")
    yield Reading("migrate_memory", used.ru_maxrss * 1024 / 1e6, note=f"{n:,} messages")


def _fill(stand: Stand, n: int) -> None:
    """Empty the server and write what the Go library would have written."""
    stand.empty()
    now = int(time.time()) + SPREAD
    for first in range(0, n, AT_ONCE):
        ids = [str(uuid.uuid4()) for _ in range(first, min(first + AT_ONCE, n))]
        with stand.client.pipeline(transaction=False) as pipe:
            for id in ids:
                pipe.set(f"dp:{QUEUE}:msg:{id}", PAYLOAD, ex=2 * SPREAD)
            pipe.hset(f"dp:{QUEUE}:retry:cnt", mapping=dict.fromkeys(ids, 3))
            pipe.zadd(f"dp:{QUEUE}:pending", {id: now + at * 7919 % SPREAD for at, id in enumerate(ids, first)})
            pipe.execute()


def measurements() -> list[Measurement]:
    """Return what is measured here."""
    figures = [
        Figure("migrate", "messages taken over from the Go library"),
        Figure("migrate_memory", "the same, most memory of the process", unit=MEGABYTES),
    ]
    return [Measurement("migrate", migrating, figures, once=True)]
