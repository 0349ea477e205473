"""The data source in Spark: `df.write.format("delayq")` and `writeStream`."""

import json
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

import delayq
from delayq import DelayQueue
from delayq.errors import ConfigurationError
from delayq.spark import register
from delayq.spark.datasource.source import DelayqSource
from delayq.spark.spark_errors import reason_of
from tests.spark.conftest import JAVA_OPTIONS
from tests.support.processes import run

pytestmark = pytest.mark.spark

RECIPES = Path(delayq.__file__).parent / "docs" / "spark-recipes.md"

LATER = datetime(2100, 1, 31, 9, 0, tzinfo=UTC)


@pytest.fixture
def queue(redis_url):
    with DelayQueue("q", url=redis_url) as queue:
        yield queue


@pytest.fixture
def reminders(spark):
    """A table of a thousand messages."""
    register(spark)
    return spark.range(1000).select(
        F.format_string("reminder-%d", "id").alias("id"),
        F.lit(LATER).alias("due"),
        F.to_json(F.struct("id")).alias("payload"),
    )


def write(table, url, mode="append", **options):
    table.write.format("delayq").mode(mode).options(url=url, **options).save("q")


def refusal(act):
    """Return the message of a Spark error that a user sees."""
    with pytest.raises(PySparkException) as failed:
        act()
    return reason_of(failed.value)


def test_table_is_written(redis_url, queue, reminders):
    write(reminders, redis_url, runId="night")
    assert queue.counts().pending == 1000
    info = queue.get("reminder-7")
    assert (info.due, queue_payload(info)) == (LATER, {"id": 7})
    (run,) = queue.runs()
    assert (run.run, run.state, run.new, run.exists) == ("night", "committed", 1000, 0)
    assert run.ended


def queue_payload(info):
    return json.loads(info.payload) if isinstance(info.payload, bytes | str) else info.payload


def test_second_write_of_a_table_adds_the_missing_messages(redis_url, queue, reminders):
    write(reminders.limit(600), redis_url, runId="night", batchSize="7")
    write(reminders, redis_url, runId="night")
    (run,) = queue.runs()
    assert (run.new, run.exists, run.state) == (1000, 600, "committed")
    assert queue.counts().pending == 1000


def test_every_column_is_written(spark, redis_url):
    register(spark)
    table = spark.sql(
        "SELECT 'a' AS id, TIMESTAMP '2100-01-31 09:00:00.000001Z' AS due, X'00FF' AS payload,"
        " CAST(7 AS SMALLINT) AS retries, map('trace', '1') AS headers"
    )
    write(table, redis_url)
    with DelayQueue("q", url=redis_url, codec="bytes") as queue:
        info = queue.get("a")
    assert (info.payload, info.retries_left, info.headers) == (b"\x00\xff", 7, {"trace": "1"})
    assert info.due == LATER.replace(microsecond=1000)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kathmandu"])
def test_session_time_zone_does_not_change_times(spark, redis_url, queue, zone):
    register(spark)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        write(spark.sql("SELECT 'a' AS id, TIMESTAMP '2100-01-31 09:00:00Z' AS due, '1' AS payload"), redis_url)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert queue.get("a").due == LATER


def test_url_variable_must_be_set_on_the_driver(reminders):
    assert "'NOT_SET', which is not set on the driver" in refusal(
        lambda: reminders.write.format("delayq").mode("append").option("urlEnv", "NOT_SET").save("q")
    )


def test_rows_are_inserted_in_sql(spark, redis_url, queue):
    register(spark)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW sent (Id STRING, DUE TIMESTAMP, payload STRING, retries INT)"
        f" USING delayq OPTIONS (queue 'q', url '{redis_url}')"
    )
    spark.sql("INSERT INTO sent VALUES ('a', TIMESTAMP '2100-01-31 09:00:00Z', '1', 7)")
    spark.sql("INSERT INTO sent (ID, due, PayLoad) SELECT 'b', TIMESTAMP '2100-01-31 09:00:00Z', '2'")
    spark.sql("INSERT INTO sent BY NAME SELECT '3' AS payload, 'c' AS id, TIMESTAMP '2100-01-31 09:00:00Z' AS due")
    found = {info.id: (info.due, info.payload, info.retries_left) for info in queue.list("pending").messages}
    assert found == {"a": (LATER, 1, 7), "b": (LATER, 2, 3), "c": (LATER, 3, 3)}
    assert "a view with its own columns is for INSERT only" in refusal(
        lambda: spark.sql("SELECT id FROM sent").collect()
    )
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW waiting USING delayq OPTIONS (queue 'q', url '{redis_url}')")
    assert spark.sql("SELECT ID, Due FROM waiting WHERE State = 'pending'").count() == 3


# Refused before any send


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("overwrite", 'a queue cannot be overwritten: write with .mode("append")'),
        ("error", 'cannot be written in the "ErrorIfExists" mode. Please use either the "Append"'),
        ("ignore", 'cannot be written in the "Ignore" mode. Please use either the "Append"'),
    ],
)
def test_only_append_mode_is_supported(redis_url, queue, reminders, mode, message):
    assert message in refusal(lambda: write(reminders, redis_url, mode))
    assert queue.runs() == []


def test_options_columns_and_redis_are_checked_first(redis_url, queue, reminders):
    assert refusal(lambda: write(reminders, redis_url, batchsise="9")) == (
        "unknown option 'batchsise', did you mean 'batchSize'?"
    )
    assert refusal(lambda: write(reminders.drop("payload"), redis_url)) == (
        "column payload (STRING or BINARY) is missing; the table has id, due"
    )
    naive = reminders.withColumn("due", F.expr("TIMESTAMP_NTZ '2100-01-31 09:00:00'"))
    assert refusal(lambda: write(naive, redis_url)).startswith("column due is TIMESTAMP_NTZ")
    assert "Redis cannot be reached" in refusal(lambda: write(reminders, "redis://localhost:1"))
    assert queue.runs() == []


def test_only_append_mode_is_supported_for_streams():
    with pytest.raises(ConfigurationError, match=r'\.outputMode\("append"\), not "complete"'):
        DelayqSource({"queue": "q"}).streamWriter(None, overwrite=True)


# Invalid rows


@pytest.fixture
def one_too_large(reminders):
    large = F.when(F.col("id") == "reminder-700", F.repeat(F.lit("x"), 2000)).otherwise(F.col("payload"))
    return reminders.withColumn("payload", large)


def test_too_large_payload_fails_the_job(redis_url, queue, one_too_large):
    message = refusal(lambda: write(one_too_large, redis_url, maxPayload="1000", runId="night"))
    assert "(id 'reminder-700'): payload is 2000 bytes, and at most 1000 are allowed (option maxPayload)" in message
    assert "\n" not in message
    (run,) = queue.runs()
    assert run.state == "aborted"
    assert queue.counts().pending == run.new <= 500, "nothing of its batch is there; the other task's may be"


def test_too_large_payload_is_collected(redis_url, queue, one_too_large):
    write(one_too_large, redis_url, maxPayload="1000", runId="night", onError="collect")
    (run,) = queue.runs()
    assert (run.state, run.new, run.refused) == ("committed", 999, 1)
    assert queue.refusals("night") == [
        ("reminder-700", "payload is 2000 bytes, and at most 1000 are allowed (option maxPayload)")
    ]


# Streams


@pytest.fixture
def arriving(spark, reminders, tmp_path):
    """A stream of five files of 200 messages, one per micro-batch."""
    reminders.repartition(5, F.expr("cast(substr(id, 10) as int) % 5")).write.parquet(str(tmp_path / "in"))
    return spark.readStream.schema(reminders.schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))


def sink(stream, url, checkpoint, **options):
    query = (
        stream.writeStream.format("delayq")
        .options(url=url, **options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start("q")
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


def test_stream_is_written_and_continues_after_a_restart(redis_url, queue, reminders, arriving, tmp_path):
    sink(arriving, redis_url, tmp_path / "checkpoint")
    (run,) = queue.runs()
    assert (run.state, run.new, run.exists) == ("committed", 1000, 0)
    assert run.run.startswith("stream-")

    more = reminders.withColumn("id", F.concat(F.lit("more-"), "id")).limit(10)
    more.coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
    sink(arriving, redis_url, tmp_path / "checkpoint")
    (run,) = queue.runs()
    assert (run.new, run.exists) == (1010, 0), "the same run, and nothing was read twice"


def test_refused_rows_are_added_up_over_micro_batches(redis_url, queue, arriving, tmp_path):
    half = arriving.withColumn("payload", F.expr("if(cast(substr(id, 10) as int) % 2 = 0, payload, null)"))
    sink(half, redis_url, tmp_path / "checkpoint", runId="night", onError="collect")
    (run,) = queue.runs()
    assert (run.run, run.new, run.refused, run.state) == ("night", 500, 500, "committed")


def test_stream_fails_with_a_short_error(redis_url, arriving, tmp_path):
    with pytest.raises(StreamingQueryException) as failed:
        sink(arriving, redis_url, tmp_path / "checkpoint", onConflict="maybe")
    assert reason_of(failed.value) == "onConflict must be skip, replace or fail, not 'maybe'"


def test_stream_without_a_checkpoint_location_needs_a_run_id(redis_url, queue, arriving):
    writer = arriving.writeStream.format("delayq").option("url", redis_url).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException) as failed:
        writer.start("q").awaitTermination()
    assert "set the option runId or checkpointLocation" in reason_of(failed.value)
    writer.option("runId", "night").start("q").awaitTermination()
    assert queue.runs()[0].new == 1000


# Spark Connect

CLIENT = """
import sys
from pyspark.sql import SparkSession, functions as F
from delayq.spark import register
from delayq.spark.pipelines.load import load
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
register(spark)
table = spark.range(1000).select(
    F.col("id").cast("string").alias("id"), F.expr("current_timestamp() + make_dt_interval(1)").alias("due"),
    F.to_json(F.struct("id")).alias("payload"))
table.where("id < 500").write.format("delayq").mode("append").options(url=sys.argv[2], runId="first").save("q")
plan = table.withColumn("action", F.expr("if(id < 10, 'cancel', 'new')"))
print(load(plan, "q", url=sys.argv[2], run="second", start="now", until="+2d").told())
try:
    load(table.withColumn("id", F.lit(None).cast("string")), "q", url=sys.argv[2], run="third")
except Exception as error:
    print(type(error).__name__, error)
columns = "(id STRING, due TIMESTAMP, payload STRING)"
spark.sql(f"CREATE TEMPORARY VIEW sent {columns} USING delayq OPTIONS (queue 'q', url '{sys.argv[2]}', runId 'fourth')")
spark.sql("INSERT INTO sent (ID, due, payload) SELECT 'inserted', current_timestamp() + INTERVAL 1 DAY, '1'")
spark.stop()
"""


def test_write_and_load_over_spark_connect(connect_url, redis_url, queue):
    client = run(
        [sys.executable, "-W", "ignore", "-c", CLIENT, connect_url, redis_url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert client.returncode == 0, client.stderr
    loaded, failed = client.stdout.splitlines()
    assert loaded == "run second: 500 new, 490 already there, 10 cancelled"
    assert failed.startswith("ConfigurationError row 1 of the task: id is null; ")
    assert {run.run: run.state for run in queue.runs()} == {
        "first": "committed",
        "second": "committed",
        "third": "aborted",
        "fourth": "committed",
    }
    assert queue.counts().pending == 991


UNREGISTERED = """
import sys
from delayq.spark import read_messages, session
spark = session(master="local[1]", **{"spark.driver.extraJavaOptions": sys.argv[2]})
table = spark.sql("SELECT 'a' AS id, now() + INTERVAL 1 DAY AS due, '1' AS payload")
table.write.format("delayq").mode("append").option("url", sys.argv[1]).save("q")
print(read_messages(spark, "q", url=sys.argv[1]).count())
"""


@pytest.mark.long
def test_source_of_a_module_is_registered_by_spark_itself(redis_url, queue, tmp_path):
    (module,) = re.findall(
        r"^```python\n(from delayq\.spark\.datasource.*?)^```$", RECIPES.read_text(), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "pyspark_delayq.py").write_text(module)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    program = [sys.executable, "-W", "ignore", "-c", UNREGISTERED, redis_url, JAVA_OPTIONS]
    done = run(program, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert queue.counts().pending == 1
