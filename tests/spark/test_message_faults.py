"""Each message is in one batch that was written, however often the driver, its JVM, its Python workers or Redis die."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from delayq import DelayQueue, NewMessage
from delayq.spark.datasource.compat import LIMITS_BATCHES
from tests.spark.conftest import JAVA_OPTIONS
from tests.support.processes import Process

pytestmark = [
    *(pytest.mark.long, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(300)),
    pytest.mark.skipif(not LIMITS_BATCHES, reason="needs batches with a limit"),
]

MESSAGES = 6_000
WORKER_KILLS = 26
DRIVER_KILLS, REDIS_KILLS = 2, 3
WORKERS = ("pyspark.daemon", "pyspark.worker", "python_streaming_source_runner")
DRIVER = """
import sys, time

from delayq import DelayQueue
from delayq.spark import register, session

url, folder, java = sys.argv[1:]
spark = session("consume", master="local[2,4]", **{"spark.driver.extraJavaOptions": java})
options = {"queue": "visits", "url": url, "read": "messages", "maxMessagesPerBatch": "500", "lease": "8s"}


def write(batch, number):
    batch.select("id", "attempt").write.mode("overwrite").parquet(f"{folder}/out/part={number}")


with DelayQueue("visits", url=url) as queue:
    while True:
        try:
            register(spark)
            due = spark.readStream.format("delayq").options(**options).load().writeStream.foreachBatch(write)
            due.trigger(availableNow=True).start(checkpointLocation=f"{folder}/checkpoint").awaitTermination()
            if not any((queue.counts().ready, queue.counts().active, queue.counts().retry)):
                break
            time.sleep(0.2)
        except Exception as error:
            print(str(error)[:200], file=sys.stderr, flush=True)
            time.sleep(0.1)
"""


def children(pid: int) -> list[int]:
    """Return the processes below one, the nearest first."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *children(child)]
    return found


def workers(pid: int) -> list[int]:
    """Return the Python workers of a driver: a daemon, its forks and those of the stream."""
    found = []
    for child in children(pid):
        with suppress(OSError):
            if any(name in Path(f"/proc/{child}/cmdline").read_text() for name in WORKERS):
                found.append(child)
    return found


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_each_message_is_in_one_batch_over_kills_of_all_processes(start_redis, tmp_path):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    chance = random.Random(42)
    with DelayQueue("visits", url=server.url, events=True, events_max_len=1_000_000) as queue:
        for first in range(0, MESSAGES, 3000):
            queue.send_many([NewMessage("x", id=f"m{first + n}", retries=100) for n in range(3000)])

        def driver():
            command = [sys.executable, "-c", DRIVER, server.url, str(tmp_path), JAVA_OPTIONS]
            with (tmp_path / "log").open("a") as log:
                return Process(command, stderr=log)

        kills, started = Counter(), driver()
        while started.poll() is None:
            time.sleep(chance.uniform(0.05, 0.2))  # when it strikes is left to chance
            found = workers(started.pid)
            if not (tmp_path / "out").exists() or not found:
                continue
            if kills["driver"] < min(DRIVER_KILLS, kills["worker"] // 7):
                for pid in [started.pid, *children(started.pid)]:
                    kill(pid)
                started.wait()
                kills["driver"] += 1
                started = driver()
            elif kills["redis"] < min(REDIS_KILLS, kills["worker"] // 5):
                server.restart()
                kills["redis"] += 1
            elif kills["worker"] < WORKER_KILLS:
                kill(chance.choice(found))
                kills["worker"] += 1
        assert started.returncode == 0, (tmp_path / "log").read_text()
        written = Counter(ds.dataset(tmp_path / "out").to_table(columns=["id"])["id"].to_pylist())
        expired = Counter(event.id for event in queue.events() if event.kind == "expired")
        acked = Counter(event.id for event in queue.events() if event.kind == "acked")
    assert sum(kills.values()) >= 30, kills
    assert acked == dict.fromkeys((f"m{n}" for n in range(MESSAGES)), 1)
    assert written.keys() == acked.keys()
    unexplained = {id: times for id, times in written.items() if times > 1 + expired[id]}
    assert not unexplained
