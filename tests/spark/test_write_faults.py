"""Writing while things break: tasks that fail or die, a driver that is killed, a ledger that cannot be written."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from delayq import DelayQueue
from delayq.errors import ServerError
from delayq.spark import register
from delayq.spark.load import load
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

LATER = datetime(2100, 1, 31, 9, 0, tzinfo=UTC)


@pytest.fixture
def queue(redis_url):
    with DelayQueue("q", url=redis_url) as queue:
        yield queue


def rows(spark, number, partitions=2):
    register(spark)
    return spark.range(number, numPartitions=partitions).select(
        F.col("id").cast("string").alias("id"), F.lit(LATER).alias("due"), F.to_json(F.struct("id")).alias("payload")
    )


def write(table, url, **options):
    table.write.format("delayq").mode("append").options(url=url, runId="night", **options).save("q")


def test_a_job_whose_attempts_all_fail_is_aborted_and_done_again(spark, redis_url, queue):
    table = rows(spark, 4000)
    broken = table.withColumn("payload", F.expr("if(id = '3700', raise_error('out of cheese'), payload)"))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        with pytest.raises(PySparkException, match="out of cheese"):
            write(broken, redis_url)
        assert [run.state for run in queue.runs()] == ["aborted"]
        write(table, redis_url)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    (run,) = queue.runs()
    assert (run.state, run.new) == ("committed", 4000), "whatever the first job had sent when it failed"
    assert queue.counts().pending == 4000


def test_the_same_rows_in_two_tasks_at_once_are_stored_once(spark, redis_url, queue):
    table = rows(spark, 5000, partitions=1)
    write(table.union(table), redis_url)
    (run,) = queue.runs()
    assert (run.new, run.exists) == (5000, 5000)
    assert queue.counts().pending == 5000


def test_a_job_whose_commit_fails_has_stored_everything_and_is_done_again(spark, redis_url, redis_client, queue):
    table = rows(spark, 1000)
    redis_client.set("delayq:{q}:refusals", "of another type than end_run expects")
    with pytest.raises(ServerError, match=r"^end_run: WRONGTYPE"):
        load(table, "q", url=redis_url, run="night")
    (run,) = queue.runs()
    assert (run.state, run.new, run.ended) == ("writing", 1000, None)
    redis_client.delete("delayq:{q}:refusals")
    write(table, redis_url)
    (run,) = queue.runs()
    assert (run.state, run.new, run.exists) == ("committed", 1000, 1000)
    assert queue.counts().pending == 1000


def test_a_job_done_again_when_everything_was_settled_resurrects_nothing(spark, redis_url, queue):
    table = rows(spark, 500).withColumn("due", F.lit(None).cast("timestamp"))
    write(table, redis_url)
    settled = 0
    while settled < 500:
        with queue.lease(n=100) as messages:
            settled += len(messages)
    write(table, redis_url)
    (run,) = queue.runs()
    assert (run.new, run.settled) == (500, 500)
    assert queue.counts().living == 0


# A driver of its own, which may be killed

DRIVER = """
import os, signal, sys, time
from pathlib import Path
from delayq.spark import register, session
from pyspark.sql import functions as F
name, url, folder = sys.argv[1:]
spark = session("driver", master="local[2,4]", **{
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # which is for long runs
    "spark.sql.shuffle.partitions": 2, "spark.local.dir": folder + "/local"})
register(spark)
while not Path(folder, f"go-{name}").exists():
    time.sleep(0.05)
"""

RETRIED = """
def dies(batches):
    for number, batch in enumerate(batches):
        yield batch
        for fault in ("killed", "raised"):
            mark = Path(folder, fault)
            if number == 7 and not mark.exists():
                mark.touch()
                if fault == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise OSError("once")

spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
table = spark.range(10_000, numPartitions=2).selectExpr(
    "cast(id as string) as id", "TIMESTAMP '2100-01-31 09:00:00Z' AS due", "repeat('x', 2000) AS payload")
table.mapInArrow(dies, table.schema).write.format("delayq").mode("append").options(url=url, runId="night").save("q")
"""

SINK = """
stream = (spark.readStream.schema("id STRING, due TIMESTAMP, payload STRING").option("maxFilesPerTrigger", 1)
    .parquet(folder + "/in"))
(stream.writeStream.format("delayq").options(url=url, maxRowsPerSecond="4000")
    .option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start("q").awaitTermination())
"""


class Driver:
    """A Spark driver in a process group of its own; it starts a session, which takes its time, and waits for `go`."""

    def __init__(self, program, name, url, folder):
        self.log = Path(folder, f"log-{name}")
        self._go = Path(folder, f"go-{name}")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", DRIVER + program, name, url, str(folder)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def go(self):
        self._go.touch()

    def kill(self):
        """End it, its JVM and what that has started, as a power cut would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_until(self, sent, goal):
        wait_until(lambda: sent() >= goal or self.process.poll() is not None, timeout=120)
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-3000:]

    def finish(self):
        assert self.process.wait(100) == 0, self.log.read_text(errors="replace")[-3000:]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()


@pytest.mark.timeout(180)
def test_tasks_that_die_or_fail_midway_are_tried_again_and_counted_right(redis_url, queue, tmp_path):
    with Driver(RETRIED, "retried", redis_url, tmp_path) as driver:
        driver.go()
        driver.finish()
    assert {path.name for path in tmp_path.iterdir()} >= {"killed", "raised"}, "both faults happened"
    (run,) = queue.runs()
    assert (run.state, run.new) == ("committed", 10_000)
    assert run.exists > 0, "an attempt had sent something"
    assert queue.counts().pending == 10_000


@pytest.mark.timeout(400)
def test_a_sink_whose_driver_is_killed_five_times_loses_and_doubles_nothing(redis_url, queue, tmp_path):
    number = 30_000
    (tmp_path / "in").mkdir()
    for part in range(10):
        ids = [f"{part}-{row}" for row in range(number // 10)]
        due = pa.array([LATER] * len(ids), pa.timestamp("us", tz="UTC"))
        pq.write_table(pa.table({"id": ids, "due": due, "payload": ["{}"] * len(ids)}), tmp_path / f"in/{part}.parquet")

    def sent():
        return sum(run.new for run in queue.runs())

    # Each in the middle of a micro-batch, and of a later one than the one before.
    goals = range(number // 20, number, number // 5)
    with ExitStack() as drivers:

        def start(name):
            return drivers.enter_context(Driver(SINK, name, redis_url, tmp_path))

        driver = start("first")
        for goal in goals:
            following = start(f"after-{goal}")
            driver.go()
            driver.wait_until(sent, goal)
            driver.kill()
            assert sent() < number
            driver = following
        driver.go()
        driver.finish()
    (run,) = queue.runs()
    assert (run.state, run.new) == ("committed", number)
    assert run.exists > 0, "micro-batches were cut short and written again"
    assert run.exists <= 5 * number // 10, "but only those"
    assert queue.counts().pending == number
