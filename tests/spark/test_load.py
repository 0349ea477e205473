"""Loading tables and plans into a queue for a horizon, repeatedly."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as F

from delayq import DelayQueue, NewMessage
from delayq.errors import ConfigurationError, DelayqError, OutcomeUnknown, PayloadError, UnavailableError
from delayq.spark.pipelines.load import load
from delayq.spark.spark_errors import error_of, reason_of

NOON = datetime(2100, 1, 31, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def ms(at):
    return round(at.timestamp() * 1000)


# Short messages for errors of Spark

WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/work/delayq/spark/writer.py", line 179, in write
    sending.send(batch)
"""


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        (f"{WORKER}delayq.errors.PayloadError: payload is null\n", PayloadError, "payload is null"),
        (
            (
                "[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: "
                f"{WORKER}delayq.errors.ConfigurationError: unknown option: 'a'\n SQLSTATE: 38000"
            ),
            ConfigurationError,
            "unknown option: 'a'",
        ),
        (
            (
                f"{WORKER}delayq.errors.UnavailableError: gone\n\nThe above exception was the direct cause of the"
                f" following exception:\n\n{WORKER}delayq.errors.OutcomeUnknown: who knows\n\tat org.apache.spark\n"
            ),
            OutcomeUnknown,
            "who knows",
        ),
        (
            (
                f"{WORKER}delayq.errors.PayloadError: the first\n\tSuppressed: {WORKER}"
                "delayq.errors.UnavailableError: met while aborting\n"
            ),
            PayloadError,
            "the first",
        ),
    ],
)
def test_delayq_error_is_extracted_from_a_spark_error(text, kind, reason):
    error = RuntimeError(text)
    assert type(error_of(error)) is kind
    assert reason_of(error) == reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError(f"{WORKER}ValueError: out of cheese\n"), "ValueError: out of cheese"),
        (
            RuntimeError(
                "[TABLE_OR_VIEW_NOT_FOUND] The table `t` cannot be found. Verify it. SQLSTATE: 42P01;\n'Unres"
            ),
            "The table `t` cannot be found. Verify it.",
        ),
        (RuntimeError(), "RuntimeError"),
        (ConfigurationError("as it is"), "as it is"),
    ],
)
def test_other_error_becomes_one_line(error, reason):
    assert reason_of(error) == reason


def test_other_error_is_not_converted():
    assert error_of(RuntimeError("delayq.errors.NoSuchError: text")) is None
    ours = DelayqError("text")
    assert error_of(ours) is ours


# With Spark


@pytest.fixture
def queue(redis_url):
    with DelayQueue("q", url=redis_url) as queue:
        yield queue


@pytest.fixture
def table(spark):
    """A message for each hour of two days around noon: id 0 is due 24 hours before, id 24 at noon."""
    return spark.range(48).select(
        F.col("id").cast("string").alias("id"),
        F.timestamp_micros(F.lit(ms(NOON - 24 * HOUR) * 1000) + F.col("id") * 3_600_000_000).alias("due"),
        F.to_json(F.struct("id")).alias("payload"),
    )


def counts(info):
    return {name: number for name, number in info.facts().items() if type(number) is int and number}


@pytest.mark.spark
def test_next_load_of_a_table_adds_the_missing_messages(table, redis_url, queue):
    assert counts(load(table, "q", url=redis_url, start=NOON, until="+6h", run="a")) == {
        "new": 6,
        "past": 24,
        "later": 18,
    }
    assert queue.get("24").due == NOON
    assert queue.get("30") is None
    assert counts(load(table, "q", url=redis_url, start=NOON, until="+8h")) == {
        "new": 2,
        "exists": 6,
        "past": 24,
        "later": 16,
    }
    again = load(table, "q", url=redis_url, start=NOON, until="+9h", run="a")
    assert counts(again) == {"new": 7, "exists": 8, "past": 24, "later": 15}, "what is sent under one name is added up"
    assert (again.run, again.state) == ("a", "committed")
    assert queue.counts().pending == 9


@pytest.mark.spark
def test_options_of_a_send_are_columns(table, redis_url, queue):
    columns = {
        "name": F.lit("mail"),
        "PRIORITY": F.lit(5),
        "timeout": F.lit("90s"),
        "expires": F.expr("due + INTERVAL 1 HOUR"),
    }
    load(table.withColumns(columns).withColumn("hours", F.lit(None)), "q", url=redis_url)
    found = queue.get("24")
    assert (found.name, found.priority, found.timeout, found.hours) == ("mail", 5, 90, "")
    assert found.expires == NOON + HOUR
    with pytest.raises(ConfigurationError, match=r"priority must be .*, not 101"):
        load(table.withColumn("priority", F.lit(101)), "other", url=redis_url)


@pytest.mark.spark
def test_horizon_of_a_load_is_in_the_run_ledger(table, redis_url, queue):
    load(table, "q", url=redis_url, start=NOON, until="+6h", run="a")
    load(table, "q", url=redis_url, start="2100-01-31T13:00:00Z", until="+9h", run="a")
    load(table, "q", url=redis_url, run="all")
    all_of_it, first = queue.runs()
    assert (first.start, first.until, first.source) == (NOON, NOON + 10 * HOUR, "-"), "it spans both loads"
    assert (all_of_it.start, all_of_it.until) == (None, None)
    queue.send_many([NewMessage("x")], run="by-hand")
    assert queue.runs()[0].source is None


@pytest.mark.spark
def test_load_resumes_the_unfinished_run_of_the_same_files(spark, table, redis_url, queue, tmp_path):
    for name in ("plan", "other"):
        table.repartition(2).write.parquet(str(tmp_path / name))
    plan, other = (spark.read.parquet(str(tmp_path / name)) for name in ("plan", "other"))
    broken = plan.withColumn("payload", F.expr("if(id = '7', null, payload)"))
    with pytest.raises(PayloadError):
        load(broken, "q", url=redis_url, until=NOON)
    (failed,) = queue.runs()
    assert failed.state == "aborted"
    assert load(other, "q", url=redis_url, until=NOON - 20 * HOUR).run != failed.run
    resumed = load(plan, "q", url=redis_url, until=NOON + HOUR)
    assert (resumed.run, resumed.state, resumed.until) == (failed.run, "committed", NOON + HOUR)
    assert sum(info.new for info in queue.runs()) == queue.counts().pending == 25
    assert load(plan, "q", url=redis_url).run != failed.run, "it has ended"


@pytest.mark.spark
def test_past_rows_are_counted_but_not_loaded(spark, redis_url, queue):
    now = F.current_timestamp()
    table = spark.range(3).select(
        F.col("id").cast("string").alias("id"),
        F.when(F.col("id") == 0, now - F.expr("INTERVAL 1 HOUR"))
        .when(F.col("id") == 1, now + F.expr("INTERVAL 1 HOUR"))
        .alias("due"),
        F.lit("1").alias("payload"),
    )
    assert counts(load(table, "q", url=redis_url, start="now", until="+2h")) == {"new": 2, "past": 1}
    assert queue.get("0") is None
    assert queue.get("2"), "a row without a time is due at once"
    assert counts(load(table, "q", url=redis_url)) == {"new": 1, "exists": 2}


@pytest.mark.spark
def test_load_of_a_plan_sends_new_and_cancels_removed_reminders(table, redis_url, queue):
    load(table, "q", url=redis_url)
    action = F.expr("CASE WHEN cast(id AS INT) < 10 THEN 'cancel' WHEN id = '47' THEN 'new' ELSE 'keep' END")
    plan = table.withColumns(
        {"source": F.lit("s"), "rule": F.lit("r"), "occurrence": F.lit(0), "revision": F.lit(0), "action": action}
    )
    with queue.lease(n=1) as nothing:
        assert nothing == []
    loaded = load(plan, "q", url=redis_url, start=NOON)
    assert counts(loaded) == {"exists": 24, "past": 14, "cancelled": 10}
    assert loaded.told().endswith("0 new, 24 already there, 14 past, 10 cancelled")
    again = load(plan, "q", url=redis_url)
    assert counts(again) == {"exists": 38}, "what was cancelled is not cancelled again"
    assert queue.counts().pending == 38


@pytest.mark.spark
def test_message_in_flight_is_reported_as_cancelled_too_late(spark, redis_url, queue):
    queue.send_delay_msg("x", id="running")
    (held,) = queue.lease(n=1)
    plan = spark.sql("SELECT 'running' AS id, now() AS due, '1' AS payload, 'cancel' AS action")
    assert counts(load(plan, "q", url=redis_url)) == {"too_late": 1}
    assert held.ack()


@pytest.mark.spark
def test_load_of_an_empty_table_is_a_run(table, redis_url, queue):
    assert counts(load(table.where("false"), "q", url=redis_url, start=NOON)) == {}
    assert [run.state for run in queue.runs()] == ["committed"]


@pytest.mark.spark
def test_options_are_passed_to_the_writer(table, redis_url, queue):
    bad = table.withColumn("payload", F.expr("if(id = '7', repeat('x', 2000), payload)"))
    loaded = load(
        bad,
        "q",
        url=redis_url,
        prefix="app",
        on_error="collect",
        on_conflict="replace",
        batch_size=7,
        max_rows_per_second=100_000,
        default_retries=1,
        max_payload=1000,
        dedupe_window="2h",
    )
    assert counts(loaded) == {"new": 47, "refused": 1}
    with DelayQueue("q", url=redis_url, prefix="app") as other:
        assert other.get("8").retries_left == 1
        assert [id for id, _ in other.refusals(loaded.run)] == ["7"]
        assert other.executor.call(other.context.calls.configure(events=None, dedupe_window=None, dedupe_max=1))
    assert queue.counts().living == 0


@pytest.mark.spark
def test_failed_load_raises_a_delayq_error(table, redis_url, queue):
    bad = table.withColumn("payload", F.expr("if(id = '7', null, payload)"))
    with pytest.raises(PayloadError, match=r"^row \d+ of the task \(id '7'\): payload is null;") as failed:
        load(bad, "q", url=redis_url, run="night")
    assert failed.value.__cause__
    assert queue.runs()[0].state == "aborted"
    assert counts(load(table, "q", url=redis_url))["new"] + queue.runs()[1].new == 48


@pytest.mark.spark
def test_invalid_arguments_are_refused_before_any_send(table, redis_url, queue):
    with pytest.raises(ConfigurationError, match="unknown column 'gate'"):
        load(table.withColumn("gate", F.lit("A")), "q", url=redis_url)
    with pytest.raises(ConfigurationError, match="start and until need a column due, which the table does not have"):
        load(table.drop("due"), "q", url=redis_url, until="+1d")
    with pytest.raises(ConfigurationError, match="onConflict must be skip, replace or fail"):
        load(table, "q", url=redis_url, on_conflict="maybe")
    with pytest.raises(ConfigurationError, match="queue must be 1 to 128"):
        load(table, "two words", url=redis_url)
    with pytest.raises(UnavailableError, match="Redis cannot be reached"):
        load(table, "q", url="redis://localhost:1")
    assert queue.runs() == []


@pytest.mark.spark
def test_spark_error_is_not_converted(table, redis_url, queue):
    broken = table.withColumn("payload", F.expr("if(id = '7', raise_error('out of cheese'), payload)"))
    with pytest.raises(Exception, match="out of cheese") as failed:
        load(broken, "q", url=redis_url)
    assert not isinstance(failed.value, DelayqError)
    assert "out of cheese" in reason_of(failed.value)
    assert queue.runs()[0].state == "aborted"


@pytest.mark.spark
def test_load_result_as_facts_and_text(table, redis_url):
    loaded = load(table, "q", url=redis_url, until=NOON)
    facts = json.loads(json.dumps(loaded.facts()))
    assert facts["run"] == loaded.run
    assert (facts["new"], facts["later"], facts["state"]) == (24, 24, "committed")
    assert datetime.fromisoformat(facts["started"]) == loaded.started
    assert loaded.told() == f"run {loaded.run}: 24 new, 24 later"
