"""The cold tier: a bulk load of a year beside a process that moves it to files, and a month that comes back."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import redis

from delayq.broker.keys import Keys
from delayq.bulk import cold_status, load, move_cold

DAYS = 365
LOADED = 1_000_000
"""Messages of one load."""
KEEP = "7d"


def cool(url: str, queue: str, n: int, folder: Path) -> tuple[float, float]:
    """Messages per second that are loaded over a year and in files, and the most memory (MiB) that Redis took."""
    client = redis.Redis.from_url(url)
    first, peak, ended = _year(0, 1), 0.0, threading.Event()
    load(first, queue, url=url)
    command = [sys.executable, "-m", "delayq", "--url", url, "cold", queue, str(folder), "--follow", "--keep", KEEP]

    def look() -> None:
        nonlocal peak
        while not ended.wait(0.1):
            peak = max(peak, client.info("memory")["used_memory"] / (1 << 20))

    thread = threading.Thread(target=look)
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as follower:
        thread.start()
        began = time.perf_counter()
        for start in range(0, n, LOADED):
            load(_year(start, min(LOADED, n - start)), queue, url=url)
        follower.terminate()
        follower.wait()
        move_cold(queue, folder, url=url, keep=KEEP)
        seconds = time.perf_counter() - began
        ended.set()
        thread.join()
    cold = cold_status(queue, url=url).cold
    kept = client.zcard(Keys.of("delayq", queue).pending)
    if cold + kept != n or kept > n * 9 / DAYS + 2:
        raise AssertionError(f"{cold} messages are cold and {kept} are not, of {n}")
    return n / seconds, peak


def warm(url: str, queue: str, folder: Path) -> float:
    """Messages per second of a month that come back."""
    began = time.perf_counter()
    return move_cold(queue, folder, url=url, keep="37d").restored / (time.perf_counter() - began)


def _year(start: int, count: int) -> pa.Table:
    """Return messages whose due times are spread over a year, in no order."""
    now = int(time.time() * 1_000_000)
    step = DAYS * 86_400_000_000 // 1_000_003
    due = [now + number * 611_953 % 1_000_003 * step for number in range(start, start + count)]
    return pa.table(
        {
            "id": [f"year-{number}" for number in range(start, start + count)],
            "due": pa.array(due, pa.timestamp("us", tz="UTC")),
            "payload": ['{"user": 12345678, "kind": "reminder"}'] * count,
        }
    )
