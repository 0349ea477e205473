"""What a user of the commands reads when something goes wrong: one line, true, and with what to do."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F

from delayq.spark.spark_errors import reason_of

pytestmark = pytest.mark.spark

BERLIN = "Europe/Berlin"
SPARK = ("spark", "--conf", "spark.driver.memory=700m")
RULE = '[rules.r]\noffset = "-1d"\n'


def line_of(ended, code=1):
    """Return the one line of a command that failed."""
    assert ended.exit_code == code, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert line.startswith("delayq: ")
    return line.removeprefix("delayq: ")


@pytest.fixture
def in_zone(spark) -> Iterator[object]:
    """Change the time zone of the session."""
    before = spark.conf.get("spark.sql.session.timeZone")
    yield lambda zone: spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.session.timeZone", before)


LOCAL_TIMES = ["2030-01-31 09:00:00.25", "2030-03-31 02:30:00", "2030-10-27 02:30:00", "2030-03-10 02:30:00"]
"""An ordinary time, and times that are skipped or repeated in Berlin, or skipped in New York."""


def test_advice_for_a_local_time_is_right_in_any_session(spark, cli, visits, in_zone, tmp_path):
    rows = ", ".join(f"('{text}', TIMESTAMP_NTZ '{text}', 'x')" for text in LOCAL_TIMES)
    local = spark.sql(f"SELECT replace(text, ' ', 'T') AS id, due, payload FROM VALUES {rows} AS t(text, due, payload)")
    local.write.parquet(f"{tmp_path}/local")
    line = line_of(cli("spark", "load", "@local", "visits"), 2)
    assert line.startswith("column due is TIMESTAMP_NTZ, a local time without a zone; convert it to an instant: ")
    advice = line.rpartition("instant: ")[2]
    instants = {
        text.replace(" ", "T"): datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(BERLIN)).astimezone(UTC)
        for text in LOCAL_TIMES
    }
    for zone in ("UTC", BERLIN, "America/New_York", "Asia/Kathmandu"):
        in_zone(zone)
        table = spark.read.parquet(f"{tmp_path}/local").withColumn("due", F.expr(advice))
        micros = {row.id: row.due for row in table.select("id", F.unix_micros("due").alias("due")).collect()}
        assert micros == {id: round(due.timestamp() * 1_000_000) for id, due in instants.items()}, zone
    table.write.parquet(f"{tmp_path}/instants")
    assert cli("spark", "load", "@instants", "visits").exit_code == 0
    assert {row.id: row.due for row in visits.list("pending").messages} == instants


def test_text_without_a_zone_is_told_when_it_is_read_as_an_instant(cli, visits, in_zone, tmp_path):
    (tmp_path / "naive.csv").write_text(
        "id,due,payload\na,2030-01-31T09:00:00+01:00,1\nb,2030-01-31 09:00,1\nc,2030-01-31,1\n"
    )
    (tmp_path / "aware.csv").write_text("id,due,payload\nd,2030-01-31T09:00:00+01:00,1\ne,2030-01-31T09:00:00Z,1\n")
    in_zone("Asia/Kathmandu")
    schema = ("--schema", "id STRING, due TIMESTAMP, payload STRING")
    noted = cli("spark", "load", "@naive.csv", "visits", *schema).stderr.splitlines()
    assert noted[0] == (
        f"{tmp_path}/naive.csv: due has times without a zone, such as '2030-01-31 09:00', which are read as"
        " Asia/Kathmandu; for another zone, write the offset after each time: +01:00"
    )
    assert len(noted) == 2
    assert visits.get("b").due == datetime(2030, 1, 31, 3, 15, tzinfo=UTC)
    assert visits.get("a").due == datetime(2030, 1, 31, 8, tzinfo=UTC)
    (only,) = cli("spark", "load", "@aware.csv", "visits", *schema).stderr.splitlines()
    assert only.startswith("run ")
    refused = line_of(cli("spark", "load", "@naive.csv", "visits"), 2)
    assert refused.startswith("column due must be TIMESTAMP, not STRING: a text needs its zone")


def test_failed_load_tells_what_is_stored_and_what_to_do(spark, cli, visits, tmp_path):
    rows = 11_000  # more than Spark hands over at a time
    table = spark.range(0, rows, 1, 1).selectExpr(
        "cast(id AS STRING) AS id", "now() + INTERVAL 1 HOUR AS due", f"if(id = {rows - 1}, NULL, '1') AS payload"
    )
    table.write.parquet(f"{tmp_path}/table")
    load = ("spark", "load", "@table", "visits", "--run")
    line = line_of(cli(*load, "night"), 2)
    stored = visits.counts().pending
    assert 0 < stored < rows
    assert "payload is null" in line
    assert line.endswith(f"; run night has stored {stored:,} messages, which stay: load again to add the rest")
    again = cli(*load, "next", "--on-error", "collect")
    assert f"run next: {rows - 1 - stored:,} new, {stored:,} already there, 1 refused" in again.stderr
    assert line_of(cli(*load, "small", "--max-rows-per-second", "5", "--on-conflict", "fail")).endswith(
        "; run small has stored nothing"
    )


def test_innermost_cause_of_a_java_error_is_the_reason(spark, cli, visits):
    line = line_of(cli("spark", "load", "s3a://bucket/t.parquet", "visits"))
    assert line == "ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"


def test_delta_or_iceberg_table_is_not_read_as_parquet(spark, cli, visits, tmp_path):
    """The folder keeps the files of former versions, with rows that were deleted."""
    rows = spark.sql("SELECT 'deleted' AS id, now() + INTERVAL 1 HOUR AS due, '1' AS payload")
    rows.write.parquet(f"{tmp_path}/table")
    (tmp_path / "table" / "_delta_log").mkdir()
    (tmp_path / "table" / "_delta_log" / "0.json").write_text("{}")
    for table in ("@table", (tmp_path / "table").as_uri()):
        line = line_of(cli("spark", "load", table, "visits"), 2)
        assert "/table is a Delta table, and Spark has no Java packages for it: add --packages" in line
    (tmp_path / "table" / "_delta_log").rename(tmp_path / "table" / "metadata")
    (tmp_path / "table" / "metadata" / "0.json").rename(tmp_path / "table" / "metadata" / "v1.metadata.json")
    assert "/table is an Iceberg table, whose files have deleted" in line_of(
        cli("spark", "load", "@table", "visits"), 2
    )
    assert visits.counts().living == 0
    rows.write.parquet(f"{tmp_path}/plain")
    assert "1 new" in cli("spark", "load", (tmp_path / "plain").as_uri(), "visits").stderr
    assert "does not exist" in line_of(cli("spark", "load", f"file://{tmp_path}/none", "visits"))


def test_zone_that_java_does_not_know_is_planned(spark, cli, tmp_path):
    (tmp_path / "rules.toml").write_text(RULE)
    (tmp_path / "things.csv").write_text("id,time,zone\na,2030-01-31 09:00,Factory\n")
    planned = cli("spark", "plan", "@things.csv", "@plan", "--rules", "@rules.toml")
    assert (planned.exit_code, planned.stderr) == (0, f"planned {tmp_path}/plan: 1 new, 0 keep, 0 cancel\n")
    (row,) = spark.read.parquet(f"{tmp_path}/plan").collect()
    assert row["due"].astimezone(UTC) == datetime(2030, 1, 30, 9, tzinfo=UTC)


def test_other_connection_error_is_not_taken_for_the_end_of_java():
    assert reason_of(ConnectionRefusedError("no mail today")) == "no mail today"


def die(batches):
    os.kill(os.getpid(), signal.SIGKILL)
    yield from batches


def test_killed_python_worker_is_told_in_one_sentence(spark):
    with pytest.raises(Py4JJavaError) as failed:
        spark.range(1).mapInArrow(die, "id LONG").collect()
    assert reason_of(failed.value).startswith("a Python worker of Spark was killed, or ran out of memory (")
