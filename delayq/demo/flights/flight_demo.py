"""The course of the Spark demo: plan, load, real workers in time lapse with one killed, archive, report, audit."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from delayq.clock import moment
from delayq.config import QueueOptions, read_settings
from delayq.demo.server import Server
from delayq.doctor import removal
from delayq.errors import DelayqError
from delayq.executor import open_executor
from delayq.keys import Keys
from delayq.queue import DelayQueue
from delayq.spark.archive import archive, read_archive
from delayq.spark.audit import Audit, audit
from delayq.spark.demo.flights import flights
from delayq.spark.demo.worker import NAME, OPTIONS
from delayq.spark.load import load
from delayq.spark.plan import plan
from delayq.spark.report import PAGE, report
from delayq.spark.rules import Rule
from delayq.spark.snapshot import read_messages
from delayq.spark.summary import summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RULE = Rule("boarding", offset="-2h", payload=["carrier", "flight", "origin", "dest"], retries=2)
WORKERS = 2
LOADED_PER_SECOND = 10_000
"""Messages loaded a second, as a slow machine does it: by when the first of them may be due."""
KILLED_AT = 0.6
"""The share of the messages still to go when a worker is killed."""
PATIENCE = timedelta(minutes=5)
"""How long after the last due time everything must be settled."""
LOOK = 0.05
"""Seconds between two looks at the queue."""

Tell = Callable[[Any], object]
"""Prints a text, or what rich can draw."""


class SparkDemoError(DelayqError):
    """The demo could not be carried out."""


@dataclass(frozen=True, slots=True)
class Course:
    """A demo under way: where it runs and what it has made so far."""

    spark: SparkSession
    server: Server
    folder: Path
    queue: DelayQueue[Any]
    tell: Tell

    @property
    def planned(self) -> DataFrame:
        """The plan in time lapse."""
        return self.spark.read.parquet(str(self.folder / "lapse"))

    @property
    def events(self) -> DataFrame:
        """The archive of the event log."""
        return read_archive(self.spark, str(self.folder / "archive"))

    def make_plan(self, month: int | None, seconds: float) -> int:
        """Plan a reminder two hours before each departure, and shrink the year to so many seconds; returns how many."""
        things = flights(self.spark, self.folder, month=month).drop("departure")
        plan(things, RULE).write.mode("overwrite").parquet(str(self.folder / "plan"))
        full = self.spark.read.parquet(str(self.folder / "plan"))
        micros = F.unix_micros("due")
        row = full.agg(F.min(micros).alias("first"), F.max(micros).alias("last"), F.count("*").alias("number")).first()
        if row is None or not row.number:
            raise SparkDemoError("there are no flights to plan for")
        first, last = moment(row.first // 1000), moment(row.last // 1000)
        self.tell(f"planned {row.number:,} reminders, {first:%d %B %Y} to {last:%d %B %Y}, two hours before departure")
        begin = _now(self.queue) + timedelta(seconds=5 + row.number / LOADED_PER_SECOND)
        factor = max((last - first).total_seconds(), 1) / seconds
        shrunk = ((micros - row.first) / factor).cast("bigint")
        due = F.timestamp_micros(F.unix_micros(F.lit(begin)) + shrunk)
        full.withColumn("due", due).write.mode("overwrite").parquet(str(self.folder / "lapse"))
        self.tell(f"time lapse: {factor:,.0f} times as fast, from {begin:%H:%M:%S} UTC for {seconds:g} s")
        return int(row.number)

    def load(self) -> None:
        """Load the plan into the queue."""
        begun = time.monotonic()
        info = load(self.planned, self.queue.name, url=self.server.url, prefix=self.queue.prefix)
        took = time.monotonic() - begun
        self.tell(f"loaded {info.new:,} messages in {took:.1f} s ({info.new / took:,.0f} a second)")

    def consume(self) -> None:
        """Let workers deliver everything, and kill one of them on the way."""
        row = self.planned.agg(F.count("*").alias("number"), F.unix_micros(F.max("due")).alias("last")).first()
        assert row is not None  # noqa: S101 - an aggregate has a row
        patient_until = moment(row.last // 1000) + PATIENCE
        with _workers(self.server.url, self.queue.name) as start:
            workers = [start() for _ in range(WORKERS)]
            while living := (seen := self.queue.stats()).counts.living:
                if len(workers) == WORKERS and living <= row.number * KILLED_AT:
                    workers[0].kill()
                    workers.append(start())
                    self.tell(
                        f"killed worker {workers[0].pid} with SIGKILL, {living:,} messages to go; started another"
                    )
                if all(worker.poll() is not None for worker in workers):
                    raise SparkDemoError(f"the workers have ended, the last with exit code {workers[-1].returncode}")
                if seen.at > patient_until:
                    raise SparkDemoError(f"{living} messages are still in the queue {PATIENCE} after the last was due")
                time.sleep(LOOK)
        totals = seen.totals
        told = ", ".join(
            f"{totals.get(name, 0):,} {name}" for name in ("delivered", "acked", "nacked", "expired", "dead")
        )
        self.tell(f"delivered by {WORKERS} workers of {OPTIONS['concurrency']} threads: {told}")

    def archive(self) -> None:
        """Bring the archive up to date with the event log."""
        begun = time.monotonic()
        result = archive(
            self.spark, self.queue.name, str(self.folder / "archive"), url=self.server.url, prefix=self.queue.prefix
        )
        took = time.monotonic() - begun
        self.tell(f"archived {result.events:,} events in {took:.1f} s ({result.events / took:,.0f} a second)")

    def audit(self) -> Audit:
        """Hold the plan against ledger, archive and queue."""
        at = _now(self.queue)
        places = read_messages(self.spark, self.queue.name, url=self.server.url, prefix=self.queue.prefix)
        return audit(self.planned, self.events, places, self.queue.runs(), at=at)


def open_course(spark: SparkSession, server: Server, folder: Path, tell: Tell) -> Course:
    """Prepare a demo with a queue of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"flights-{secrets.token_hex(4)}"
    options: QueueOptions = {**OPTIONS, "url": server.url, "events": True, "events_max_len": 5_000_000}
    queue: DelayQueue[Any] = DelayQueue(name, **options)
    queue.open()
    return Course(spark, server, folder, queue, tell)


def run_demo(
    spark: SparkSession, server: Server, folder: Path, tell: Tell, *, month: int | None, seconds: float
) -> Audit:
    """Carry out the whole demo on a server; what it makes stays in `folder`, and nothing in Redis."""
    course = open_course(spark, server, folder, tell)
    try:
        course.make_plan(month, seconds)
        course.load()
        course.consume()
        course.archive()
        result = course.audit()
        made = report(course.events, folder / "report", queue=course.queue.name)
        tell(summary(made))
        tell(f"report: {(folder / 'report' / PAGE).absolute()}")
    finally:
        _remove(course)
    return result


def _now(queue: DelayQueue[Any]) -> datetime:
    """Return the server's time."""
    return queue.stats().at


def _remove(course: Course) -> None:
    """Leave nothing of the queue on the server."""
    queue = course.queue
    executor = open_executor({"url": course.server.url}, read_settings({}))
    executor.run(removal(Keys.of(queue.prefix, queue.name), queue.prefix, queue.name))
    executor.close()
    queue.close()


@contextmanager
def _workers(url: str, name: str) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Yield what starts a worker; at the end all are stopped."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "delayq", "worker", "delayq.spark.demo.worker:queue"]
        worker = subprocess.Popen(  # noqa: S603 - this Python
            command,
            env=os.environ | {"DELAYQ_URL": url, NAME: name},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the demo, which then stops its workers
        )
        started.append(worker)
        return worker

    try:
        yield start
    finally:
        for worker in started:
            if worker.poll() is None:
                worker.send_signal(signal.SIGTERM)
        for worker in started:
            try:
                worker.wait(10)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
