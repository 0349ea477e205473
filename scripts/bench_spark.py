"""Measures the data pipeline on Spark, compared with the bare send script, on a throwaway server.

    make bench-spark                     all measurements, medians of 3 rounds
    make bench-spark ARGS="--rounds 1 --only write --scale 0.1"

Each round also measures the raw limit of a write: script calls of 200 messages with the same rows, packed in advance
and sent over a bare socket. Machines are noisy, so compare ratios.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis
from measure.bench_server import rate_of, seconds_of, throwaway_server
from measure.cooling import cool, warm
from measure.figure import MILLISECONDS, Figure, Goal, Reading, at_least, at_most
from measure.following import RANGE, follow_half_a_day
from measure.options import parser
from measure.raw import Raw
from measure.report import figure_rows, figure_table
from measure.spark_tables import PARTITIONS, PAYLOAD, flat_log, messages
from pyspark.sql import functions as F
from rich.console import Console

from delayq import DelayQueue
from delayq.archive import archive
from delayq.broker.calls import Calls
from delayq.broker.keys import Keys
from delayq.broker.requests import Outgoing
from delayq.bulk.reading.snapshot import PAGE
from delayq.queue.sweeps.stored_messages import snapshot_call
from delayq.spark import read_archive, read_messages, register, report, session
from delayq.streams import Relay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUE = "bench"
MEASURED = ("write", "small", "sink", "consume", "snapshot", "archive", "cold", "report", "follow", "ten_minutes")
"""What is measured in each round."""
BATCH = 200
"""Messages in one call, as the data source sends them by default."""


class SparkBench:
    """The measurements, in one session, on one server that is emptied before each measurement."""

    def __init__(self, spark: SparkSession, path: str, scale: float, folder: Path) -> None:
        """Measure on the server at a unix socket, with counts multiplied by `scale`."""
        self.spark = spark
        self.url = f"unix://{path}"
        self.scale = scale
        self.folder = folder
        self.client = redis.Redis.from_url(self.url)
        self.raw = Raw(path)
        self.calls = Calls(Keys.of("delayq", QUEUE))
        self.options = {"url": self.url, "queue": QUEUE}
        register(spark)
        self.messages = str(folder / "messages")
        messages(spark, self.scaled(1_000_000)).write.parquet(self.messages)
        self.packed = list(self._pack())
        self.events = str(folder / "events")

    def scaled(self, n: int) -> int:
        """Return a scaled count: a multiple of `BATCH` for each partition."""
        whole = PARTITIONS * BATCH
        return max(whole, int(n * self.scale) // whole * whole)

    def raw_rate(self) -> float:
        """Messages per second of the send script alone, with the same rows, in the order in which two tasks send them.

        The order matters: a message due after all others is stored more quickly.
        """
        self.client.flushall()
        self.raw.load_scripts()
        return rate_of(self.scaled(1_000_000), lambda: [self.raw.exchange(call, 1) for call in self.packed])

    def _pack(self) -> Iterator[bytes]:
        due = int(time.time() * 1000) + 86_400_000
        share = self.scaled(1_000_000) // PARTITIONS
        for part, first in product(range(0, PARTITIONS, 2), range(0, share, BATCH)):
            for task in (part, part + 1):
                numbers = range(task * share + first, task * share + min(first + BATCH, share))
                rows = [Outgoing(f"{number:022d}", f"@{due + number}", 3, PAYLOAD.encode(), b"") for number in numbers]
                yield self.raw.pack(self.calls.send(rows, replace=False, max_length=None, run="raw"))

    def write(self) -> tuple[float, float, float, float]:
        """Rows per second of a bulk write, the raw limit, another client's p99 of PING and the memory of a worker."""
        raw = self.raw_rate()
        self.client.flushall()
        n = self.scaled(1_000_000)
        with _pings(self.url) as pings, _peak_of_workers() as peak:
            frame = self.spark.read.parquet(self.messages)
            rows = rate_of(n, lambda: frame.write.format("delayq").mode("append").options(**self.options).save())
        self.check(n)
        return rows, raw, pings(), peak()

    def small(self) -> float:
        """Memory of a worker that writes a tenth of the rows, in MiB."""
        self.client.flushall()
        with _peak_of_workers() as peak:
            frame = self.spark.read.parquet(self.messages).limit(self.scaled(100_000)).repartition(2)
            frame.write.format("delayq").mode("append").options(**self.options).save()
        return peak()

    def sink(self) -> tuple[float, float]:
        """Rows per second of the micro-batches of the streaming sink, and the raw limit."""
        raw = self.raw_rate()
        self.client.flushall()
        n = self.scaled(1_000_000)
        checkpoint = self.folder / "sink"
        shutil.rmtree(checkpoint, ignore_errors=True)
        stream = self.spark.readStream.schema(self.spark.read.parquet(self.messages).schema).parquet(self.messages)

        query = (
            stream.writeStream.format("delayq")
            .options(**self.options, runId="bench")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        self.check(n)
        # A stream runs for a long time, so only its micro-batches count, not its start.
        took = sum(progress.durationMs["triggerExecution"] for progress in query.recentProgress)
        return 1000 * n / took, raw

    def consume(self) -> tuple[float, float]:
        """Messages per second of the micro-batches that consume them, and of a relay, which moves them to a stream."""
        n = self._fill_due()
        with DelayQueue(QUEUE, url=self.url) as queue:
            relayed = rate_of(n, lambda: Relay(queue, "raw").run(burst=True))
        self._fill_due()
        checkpoint = self.folder / "consume"
        shutil.rmtree(checkpoint, ignore_errors=True)
        read = {"read": "messages", "maxMessagesPerBatch": "100000"}
        query = (
            self.spark.readStream.format("delayq")
            .options(**self.options, **read)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        if self.client.hlen(self.calls.keys.messages):
            raise AssertionError(f"{self.client.hlen(self.calls.keys.messages)} of {n} messages were not consumed")
        return 1000 * n / sum(progress.durationMs["triggerExecution"] for progress in query.recentProgress), relayed

    def _fill_due(self) -> int:
        self.client.flushall()
        due = self.spark.read.parquet(self.messages).withColumn("due", F.expr("timestamp_millis(0)"))
        due.limit(self.scaled(400_000)).write.format("delayq").mode("append").options(**self.options).save()
        return int(self.client.zcard(self.calls.keys.pending))

    def snapshot(self) -> tuple[float, float]:
        """Messages per second of a snapshot read, and of a bare loop that reads the same pages."""
        if self.client.zcard(self.calls.keys.pending) != self.scaled(1_000_000):
            self.write()
        n = self.scaled(1_000_000)
        frame = read_messages(self.spark, QUEUE, url=self.url)
        found = 0

        def read() -> None:
            nonlocal found
            row = frame.agg(F.count("*"), F.max("due")).first()
            found = row[0] if row else 0

        rows = rate_of(n, read)
        if found != n:
            raise AssertionError(f"the snapshot has {found} of {n} messages")
        return rows, rate_of(n, self._read_pages)

    def _read_pages(self) -> None:
        cursor, score = b"", "0"
        while page := self.raw.call(
            snapshot_call(self.calls, "", limit=PAGE, cursor=cursor, score=score, byte_limit=0)
        ):
            cursor, score = page.cursor, page.score
            if not cursor:
                return

    def archive(self) -> float:
        """Events per second from the log to Parquet."""
        self.client.flushall()
        n = self.scaled(500_000)
        with DelayQueue(QUEUE, url=self.url, events=True, events_max_len=10_000_000) as queue:
            queue.send_many([PAYLOAD] * n)
            queue.callback(lambda _: None)
            queue.run(burst=True)
        folder = self.folder / "archive"
        shutil.rmtree(folder, ignore_errors=True)
        began = time.perf_counter()
        result = archive(QUEUE, str(folder), url=self.url)
        took = time.perf_counter() - began
        if result.events != 4 * n:
            raise AssertionError(f"{result.events} of {4 * n} events were archived")
        return result.events / took

    def cold(self) -> tuple[float, float, float]:
        """Messages per second of a bulk load over a year that end in files, the most memory (MiB), and the way back."""
        self.client.flushall()
        folder = self.folder / "cold"
        shutil.rmtree(folder, ignore_errors=True)
        rate, peak = cool(self.url, QUEUE, self.scaled(10_000_000), folder)
        return rate, peak, warm(self.url, QUEUE, folder)

    def report(self) -> float:
        """Seconds that a report over six million events takes, including its page."""
        if not Path(self.events).exists():
            flat_log(self.spark, self.scaled(6_000_000)).write.parquet(self.events)
        return seconds_of(lambda: report(self.spark.read.parquet(self.events), self.folder / "report"))

    def follow(self) -> tuple[float, float]:
        """Seconds of a report on an archive after half a day of following, and on the same events in one file."""
        return self._compared(lambda path: report(read_archive(self.spark, path), self.folder / "report"))

    def ten_minutes(self) -> tuple[float, float]:
        """Seconds for ten minutes of an archive after half a day of following, and of the same events in one file."""
        start, until = RANGE
        return self._compared(lambda path: read_archive(self.spark, path, start=start, until=until).count())

    def _compared(self, read: Callable[[str], object]) -> tuple[float, float]:
        followed, single = self.folder / "followed", self.folder / "single"
        if not followed.exists():
            follow_half_a_day(flat_log(self.spark, self.scaled(1_000_000)).toArrow(), followed, single)
        read(str(single))  # the first time takes longer
        took = {path: seconds_of(partial(read, str(path))) for path in (single, followed)}
        return took[followed], took[single]

    def check(self, n: int) -> None:
        """Raise unless `n` messages are pending."""
        if self.client.zcard(self.calls.keys.pending) != n:
            raise AssertionError(f"{self.client.zcard(self.calls.keys.pending)} of {n} messages were written")


@contextlib.contextmanager
def _pings(url: str) -> Iterator[Callable[[], float]]:
    """Measure round trips of PING in the background; yields a function that returns their p99 in milliseconds."""
    client = redis.Redis.from_url(url)
    took: list[float] = []
    ended = threading.Event()

    def ping() -> None:
        while not ended.wait(0.005):
            began = time.perf_counter()
            client.ping()
            took.append(1000 * (time.perf_counter() - began))

    thread = threading.Thread(target=ping, daemon=True)
    thread.start()
    try:
        yield lambda: statistics.quantiles(took, n=100)[98]
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def _peak_of_workers() -> Iterator[Callable[[], float]]:
    """Watch the memory of Spark's Python workers; yields a function that returns the largest, in MiB."""
    peak = 0.0
    ended = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.1):
            for status in Path("/proc").glob("[0-9]*/status"):
                with contextlib.suppress(OSError):
                    if b"pyspark.daemon" in (status.parent / "cmdline").read_bytes():
                        text = status.read_text()
                        peak = max(peak, int(text.partition("VmRSS:")[2].split()[0]) / 1024)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lambda: peak
    finally:
        ended.set()
        thread.join()


def measure(bench: SparkBench, rounds: int, only: str, report_progress: Callable[[str], None]) -> list[Figure]:
    """Take every measurement once per round, so that a slow minute affects all of them.

    The first write of the session is apart; the others are of a session that has done the same before.
    """
    figures = {
        "first": Figure("first", "bulk write, the first of a session, rows", at_least(0.6)),
        "write": Figure("write", "bulk write, rows", at_least(0.8)),
        "ping": Figure("ping", "another client's PING p99", at_most(20, MILLISECONDS), MILLISECONDS),
        "memory": Figure("memory", "largest worker, 1 M rows", None, " MiB"),
        "small": Figure("small", "largest worker, 100,000 rows", None, " MiB"),
        "sink": Figure("sink", "streaming sink, rows in its micro-batches", at_least(0.75)),
        "consume": Figure("consume", "consumed messages, in micro-batches", at_least(0.6)),
        "snapshot": Figure("snapshot", "snapshot, messages", at_least(0.8)),
        "archive": Figure("archive", "event log to Parquet, events", _rate_goal(100_000)),
        "cold": Figure("cold", "bulk load over a year into the cold tier, messages", _rate_goal(30_000)),
        "cold_memory": Figure("cold_memory", "most memory of Redis in it", None, " MiB"),
        "warm": Figure("warm", "a month of it back in Redis, messages", _rate_goal(30_000)),
        "report": Figure("report", "report over 6 M events", at_most(15, " s"), " s"),
        "follow": _times_goal(Figure("follow", "report after half a day of following", unit=" s"), 1.5),
        "ten_minutes": _times_goal(Figure("ten_minutes", "ten minutes of it", unit=" s"), 2),
    }
    if only in "first":
        report_progress("first")
        figures["first"].add(Reading("first", *bench.write()[:2]))
    if any(only in name for name in ("write", "sink", "snapshot")):
        report_progress("once, not counted")
        bench.sink()
        bench.snapshot()
    if only in "consume":
        report_progress("consume, not counted")
        bench.consume()
    for turn in range(rounds):
        if only in "write":
            bench.small()  # starts Python workers: Spark ends those that were idle for a minute
        for name in MEASURED:
            if only not in name:
                continue
            report_progress(f"round {turn + 1} of {rounds}: {name}")
            result: Any = getattr(bench, name)()
            values = result if isinstance(result, tuple) else (result,)
            if name == "write":
                *values, ping, memory = values
                figures["ping"].add(Reading("ping", ping))
                figures["memory"].add(Reading("memory", memory))
            if name == "cold":
                *values, memory, back = values
                figures["cold_memory"].add(Reading("cold_memory", memory))
                figures["warm"].add(Reading("warm", back))
            figures[name].add(Reading(name, *values))
    return [figure for figure in figures.values() if figure.values]


def _rate_goal(number: float) -> Goal:
    return Goal(f"≥ {number:,.0f}/s", lambda figure: figure.median >= number)


def _times_goal(figure: Figure, times: float) -> Figure:
    """Set the goal of a maximal ratio to reading one file."""
    figure.goal = Goal(f"≤ {times:g} of one file", lambda one: one.ratio is not None and one.ratio <= times)
    figure.reference_name, figure.cost = "one file", True
    return figure


def main() -> int:
    """Measure, print, and return 1 if a goal was missed."""
    arguments = parser("bench_spark", __doc__, rounds=3)
    arguments.add_argument("--scale", type=float, default=1.0, help="multiply the counts by this factor")
    options = arguments.parse_args()
    with throwaway_server() as path, tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder:
        spark = session("delayq bench", master="local[2]", **{"spark.sql.shuffle.partitions": 4})
        bench = SparkBench(spark, path, options.scale, Path(folder))
        figures = measure(bench, options.rounds, options.only, lambda text: print(text, file=sys.stderr))
        spark.stop()
    if options.json:
        print(json.dumps(figure_rows(figures), indent=2))
    else:
        Console().print(figure_table(figures, "Spark, local[2]"))
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
