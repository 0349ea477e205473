"""Writing under faults: failed and killed tasks, a killed driver, a ledger that cannot be written."""

import os
import signal
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
from delayq.spark.pipelines.load import load
from tests.support.processes import Process
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


def test_failed_job_is_aborted_and_can_be_repeated(spark, redis_url, queue):
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


def test_same_rows_in_two_concurrent_tasks_are_stored_once(spark, redis_url, queue):
    table = rows(spark, 5000, partitions=1)
    write(table.union(table), redis_url)
    (run,) = queue.runs()
    assert (run.new, run.exists) == (5000, 5000)
    assert queue.counts().pending == 5000


def test_job_with_a_failed_commit_can_be_repeated(spark, redis_url, redis_client, queue):
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


def write_files(folder, files, rows):
    """Write the rows of a stream, which reads a file in each micro-batch."""
    folder.mkdir()
    for file in range(files):
        ids = [f"{file}-{row}" for row in range(rows)]
        due = pa.array([LATER] * rows, pa.timestamp("us", tz="UTC"))
        pq.write_table(pa.table({"id": ids, "due": due, "payload": ["{}"] * rows}), folder / f"{file}.parquet")


def test_stopped_sink_loses_and_duplicates_nothing(spark, start_redis, tmp_path):
    # On a server of its own: Spark does not wait for the tasks of a query that it stops.
    url = start_redis().url
    queue = DelayQueue("q", url=url)
    register(spark)
    write_files(tmp_path / "in", 2, 2000)

    def start(**options):
        source = spark.readStream.schema("id STRING, due TIMESTAMP, payload STRING").option("maxFilesPerTrigger", 1)
        sink = source.parquet(str(tmp_path / "in")).writeStream.format("delayq").options(url=url, **options)
        return sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start("q")

    def sent():
        return sum(run.new for run in queue.runs())

    first = start(batchSize="100", maxRowsPerSecond="50")  # 40 s, were it not stopped
    wait_until(lambda: sent() or first.exception(), timeout=60)
    first.stop()
    assert 0 < sent() < 2000, first.exception()
    assert start().awaitTermination(100)
    (run,) = queue.runs()
    assert (run.state, run.new) == ("committed", 4000)
    assert 0 < run.exists <= 2000, "the micro-batch was cut short and written again"
    assert queue.counts().pending == 4000
    queue.close()


def test_repeated_job_does_not_send_settled_messages_again(spark, redis_url, queue):
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


# A separate driver, which can be killed

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
    """A Spark driver in its own process group; it starts a session and waits for `go`."""

    def __init__(self, program, name, url, folder):
        self.log = Path(folder, f"log-{name}")
        self._go = Path(folder, f"go-{name}")
        with self.log.open("ab") as log:
            self.process = Process(
                [sys.executable, "-c", DRIVER + program, name, url, str(folder)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def go(self):
        self._go.touch()

    def kill(self):
        """Kill it, its JVM and their child processes at once, like a power cut."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_until(self, sent, goal):
        wait_until(lambda: sent() >= goal or self.process.poll() is not None, timeout=300)
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-3000:]

    def finish(self):
        assert self.process.wait(300) == 0, self.log.read_text(errors="replace")[-3000:]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()


@pytest.mark.torture
@pytest.mark.timeout(600)
def test_killed_and_failed_tasks_are_retried_and_counted_once(redis_url, queue, tmp_path):
    with Driver(RETRIED, "retried", redis_url, tmp_path) as driver:
        driver.go()
        driver.finish()
    assert {path.name for path in tmp_path.iterdir()} >= {"killed", "raised"}, "both faults happened"
    (run,) = queue.runs()
    assert (run.state, run.new) == ("committed", 10_000)
    assert run.exists > 0, "an attempt had sent something"
    assert queue.counts().pending == 10_000


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_sink_with_a_killed_driver_loses_and_duplicates_nothing(redis_url, queue, tmp_path):
    kills, number = 5, 30_000
    write_files(tmp_path / "in", 10, number // 10)

    def sent():
        return sum(run.new for run in queue.runs())

    # Each kill hits the middle of a micro-batch, each time a later one.
    goals = range(number // 4 // kills, number, number // kills)
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
    assert run.exists <= kills * number // 10, "but only those"
    assert queue.counts().pending == number
