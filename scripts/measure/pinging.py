"""A client that measures round trips of PING until its standard input ends.

    python -m measure.pinging SOCKET     prints "ready", and at the end p50, p99 and max in milliseconds, as JSON

It runs in its own process, so that it measures the server and not the GIL of the measured process.
"""

from __future__ import annotations

import contextlib
import gc
import json
import select
import sys
import time
from collections.abc import Iterator

from measure.program import await_ready, start
from measure.raw import Raw

INTERVAL = 0.001
"""Seconds between two pings."""


@contextlib.contextmanager
def pings(path: str) -> Iterator[dict[str, float]]:
    """Ping a server during the block; fill the dictionary afterwards."""
    found: dict[str, float] = {}
    with start("pinging", path) as process:
        await_ready(process)
        try:
            yield found
        finally:
            output, _ = process.communicate("")
    found |= json.loads(output)


def main(path: str) -> None:
    """Ping, and print the results."""
    raw, took = Raw(path), []
    gc.disable()
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], INTERVAL)[0]:
        began = time.perf_counter()
        raw.exchange(b"*1\r\n$4\r\nPING\r\n", 1)
        took.append(1000 * (time.perf_counter() - began))
    took.sort()
    print(json.dumps({"p50": took[len(took) // 2], "p99": took[int(len(took) * 0.99)], "max": took[-1]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
