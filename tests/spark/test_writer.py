"""The writers in plain Python: from Arrow batches to a real Redis, without a JVM."""

import pickle
import threading
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from delayq import DelayQueue
from delayq.broker.requests import Failure
from delayq.bulk import connection
from delayq.bulk.connection import connect
from delayq.bulk.table_sender import RateLimiter
from delayq.errors import (
    ConfigurationError,
    DelayqError,
    PayloadError,
    PayloadTooLargeError,
    QueueFullError,
    UnavailableError,
)
from delayq.spark.datasource.source_options import write_options
from delayq.spark.datasource.writer import BatchWriter, StreamWriter, TaskResult

ID, DUE, PAYLOAD = ("id", StringType()), ("due", TimestampType()), ("payload", StringType())
LATER = datetime(2100, 1, 31, 9, 0, tzinfo=UTC)
INSTANT = pa.timestamp("us", "UTC")


def schema(*columns):
    return StructType([StructField(name, kind) for name, kind in columns or (ID, DUE, PAYLOAD)])


def batch(ids, **columns):
    ids = list(ids)
    columns = {"due": [LATER] * len(ids), "payload": [f'"{id}"' for id in ids], **columns}
    kinds = {
        "due": INSTANT,
        "payload": pa.string(),
        "retries": pa.int32(),
        "headers": pa.map_(pa.string(), pa.string()),
    }
    arrays = {"id": pa.array(ids, pa.string())}
    arrays |= {
        name: cells if isinstance(cells, pa.Array) else pa.array(cells, kinds[name])
        for name, cells in columns.items()
        if cells is not None
    }
    return pa.record_batch(arrays)


@pytest.fixture
def write(redis_url):
    """Write batches as the only task of a run; returns the result for the driver."""

    def write(*batches, **options):
        return make(redis_url, **options).write(iter(batches))

    return write


def make(url, *columns, **options):
    return BatchWriter(write_options({"queue": "q", "url": url, **options}), schema(*columns))


@pytest.fixture
def queue(redis_url):
    with DelayQueue("q", url=redis_url, codec="bytes") as queue:
        yield queue


@pytest.fixture
def run(queue):
    """The record of the run `night` in the ledger."""
    return lambda: next(info for info in queue.runs() if info.run == "night")


# Stored messages


def test_rows_become_messages(write, queue):
    assert write(batch(["a", "b"]), batch(["c"])).rows == 3
    assert queue.counts().pending == 3
    info = queue.get("b")
    assert (info.due, info.payload, info.retries_left) == (LATER, b'"b"', 3)


def test_every_column_is_written(write, queue):
    rows = batch(["a"], retries=[7], headers=[{"trace": "1"}], payload=pa.array([b"\x00\xff"], pa.binary()))
    write(rows)
    info = queue.get("a")
    assert (info.retries_left, info.headers, info.payload) == (7, {"trace": "1"}, b"\x00\xff")


def test_options_of_a_send_are_columns(redis_url, queue):
    columns = [ID, PAYLOAD, ("Name", StringType()), ("priority", IntegerType()), ("timeout", DayTimeIntervalType())]
    rows = pa.record_batch(
        {
            "id": ["a", "b"],
            "payload": ["1", "2"],
            "Name": ["remind", None],
            "priority": pa.array([5, 500], pa.int32()),
            "timeout": pa.array([timedelta(seconds=90), None], pa.duration("us")),
        }
    )
    with pytest.raises(ConfigurationError, match=r"row 2 of the task \(id 'b'\): priority must be a whole number"):
        make(redis_url, *columns).write(iter([rows]))
    assert make(redis_url, *columns, onError="collect").write(iter([rows])).refused == 1
    info = queue.get("a")
    assert (info.name, info.priority, info.timeout) == ("remind", 5, 90)


def test_names_of_columns_match_in_any_case(redis_url, queue):
    writer = make(redis_url, ("ID", StringType()), ("Due", TimestampType()), ("PAYLOAD", StringType()))
    assert writer.write(iter([batch(["a"]).rename_columns(["ID", "Due", "PAYLOAD"])])).rows == 1
    info = queue.get("a")
    assert (info.due, info.payload) == (LATER, b'"a"')


def test_missing_values_have_defaults(write, queue):
    write(batch(["a", "b"], due=[None, LATER], retries=[None, 1], headers=[None, {}]), defaultRetries="9")
    write(batch(["c"], due=None))
    assert queue.get("a").retries_left == 9
    assert queue.get("b").headers == {}
    assert {message.id for message in queue.lease(n=10)} == {"a", "c"}


def test_due_time_is_rounded_up_to_milliseconds(write, queue):
    write(batch(["a", "b", "c"], due=[LATER + timedelta(microseconds=micros) for micros in (0, 1, 1000)]))
    assert [queue.get(id).due - LATER for id in "abc"] == [timedelta(milliseconds=ms) for ms in (0, 1, 1)]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "+05:30"])
def test_session_time_zone_does_not_change_due_times(write, queue, zone):
    write(batch(["a"], due=pa.array([LATER], pa.timestamp("us", zone))))
    assert queue.get("a").due == LATER


def test_large_arrow_types_are_accepted(write, queue):
    rows = pa.record_batch(
        {"id": pa.array(["a"], pa.large_string()), "payload": pa.array(["x"], pa.large_string())},
    )
    write(rows)
    assert queue.get("a").payload == b"x"


def test_empty_batch_sends_nothing(write, queue):
    assert write(batch([])) == TaskResult()
    assert write() == TaskResult()
    assert queue.counts().living == 0


def test_writer_can_be_pickled(redis_url, queue):
    pickle.loads(pickle.dumps(make(redis_url))).write(iter([batch(["a"])]))
    assert queue.counts().pending == 1


# Batches and rate limit


def test_rows_are_sent_in_batches(write, redis_client):
    write(batch(["warm"]))
    redis_client.config_resetstat()
    write(batch(f"id-{n}" for n in range(450)), batchSize="100")
    assert redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] == 5


class Clock:
    """Time that passes only in sleep."""

    def __init__(self):
        self.now = 100.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def test_rate_limiter_waits_between_batches():
    clock = Clock()
    limiter = RateLimiter(200, clock=clock, sleep=clock.sleep)
    for _ in range(5):
        limiter.wait(100)
    assert clock.slept == [0.5] * 4


def test_rate_limiter_does_not_catch_up_after_a_pause():
    clock = Clock()
    limiter = RateLimiter(200, clock=clock, sleep=clock.sleep)
    limiter.wait(100)
    clock.now += 60
    limiter.wait(100)
    limiter.wait(100)
    assert clock.slept == [0.5]


def test_writer_respects_the_rate_limit(redis_url, queue, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(
        "delayq.bulk.table_sender.RateLimiter", lambda rate: RateLimiter(rate, clock=clock, sleep=clock.sleep)
    )
    make(redis_url, maxRowsPerSecond="50").write(iter([batch(f"id-{n}" for n in range(200))]))
    assert clock.slept == [1.0] * 3
    assert queue.counts().pending == 200


# Columns, checked before any send


@pytest.mark.table(
    ("columns", "message"),
    [
        ([ID, DUE], "column payload (STRING or BINARY) is missing; the table has id, due"),
        ([PAYLOAD], "column id (STRING) is missing"),
        ([ID, PAYLOAD, ("retry", IntegerType())], "unknown column 'retry'"),
        ([ID, PAYLOAD, ("retry", IntegerType())], "did you mean 'retries'?"),
        (
            [ID, PAYLOAD, ("gate", StringType())],
            "a message has id, due, payload, retries, headers and the options of a send",
        ),
        ([ID, PAYLOAD, ("piority", IntegerType())], "unknown column 'piority': did you mean 'priority'?"),
        ([ID, PAYLOAD, ("priority", BooleanType())], "column priority must be INT, not BOOLEAN"),
        ([ID, PAYLOAD, ("expires", TimestampNTZType())], "column expires is TIMESTAMP_NTZ"),
        ([ID, PAYLOAD, ("replace", BooleanType())], "the option 'replace' cannot be a column"),
        ([ID, ID, PAYLOAD], "column id exists 2 times: keep one"),
        ([ID, ("ID", StringType()), PAYLOAD], "column id exists 2 times: keep one"),
        ([("id", LongType()), PAYLOAD], "column id must be STRING, not BIGINT: cast it to STRING"),
        ([ID, ("due", TimestampNTZType()), PAYLOAD], "column due is TIMESTAMP_NTZ"),
        ([ID, ("due", TimestampNTZType()), PAYLOAD], "to_timestamp_ltz(due || ' Europe/Berlin')"),
        ([ID, ("due", DateType()), PAYLOAD], "column due must be TIMESTAMP, not DATE: a date has no time of day"),
        (
            [ID, ("due", LongType()), PAYLOAD],
            "column due must be TIMESTAMP, not BIGINT: convert it with timestamp_millis",
        ),
        ([ID, ("due", StringType()), PAYLOAD], "column due must be TIMESTAMP, not STRING: a text needs its zone"),
        ([ID, ("payload", StructType([]))], "convert it with to_json(payload)"),
        ([ID, ("payload", NullType())], "column payload must be STRING or BINARY, not VOID"),
        ([ID, PAYLOAD, ("retries", StringType())], "column retries must be INT, not STRING"),
        ([ID, PAYLOAD, ("headers", ArrayType(StringType()))], "column headers must be MAP<STRING,STRING>, not ARRAY"),
        ([ID, PAYLOAD, ("headers", MapType(StringType(), LongType()))], "column headers must be MAP<STRING,STRING>"),
    ],
)
def test_invalid_columns_are_refused(columns, message):
    with pytest.raises(ConfigurationError) as refused:
        make("redis://nowhere", *columns)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "columns",
    [
        [ID, PAYLOAD],
        [("payload", BinaryType()), ID],
        [ID, DUE, PAYLOAD, ("retries", ShortType()), ("headers", MapType(StringType(), StringType()))],
        [ID, PAYLOAD, ("Name", StringType()), ("PRIORITY", ShortType()), ("timeout", DayTimeIntervalType())],
        [ID, PAYLOAD, ("expires", TimestampType()), ("unique_for", LongType()), ("key", NullType())],
    ],
)
def test_valid_columns_are_accepted(columns):
    make("redis://nowhere", *columns)


# Invalid rows

BAD = [
    ({"ids": ["a", None, "c"]}, 2, "", "id is null", ConfigurationError),
    ({"ids": ["a", "b b", "c"]}, 2, "b b", "id must be 1 to 128 of", ConfigurationError),
    ({"ids": ["a", "b" * 129, "c"]}, 2, "b" * 129, "id must be 1 to 128 of", ConfigurationError),
    ({"ids": ["a", "", "c"]}, 2, "", "id must be 1 to 128 of", ConfigurationError),
    ({"ids": ["a", "b\n", "c"]}, 2, "b\n", "id must be 1 to 128 of", ConfigurationError),
    ({"payload": ["x", None, "x"]}, 2, "b", "payload is null", PayloadError),
    ({"payload": ["x", "x", "é" * 51]}, 3, "c", "payload is 102 bytes, and at most 100", PayloadTooLargeError),
    (
        {"due": [LATER, LATER, datetime(1969, 1, 1, tzinfo=UTC)]},
        3,
        "c",
        "due must lie between 1970 and",
        ConfigurationError,
    ),
    (
        {"due": [datetime(2200, 1, 1, tzinfo=UTC), LATER, LATER]},
        1,
        "a",
        "due must lie between 1970 and",
        ConfigurationError,
    ),
    ({"due": pa.array([1, 2, 10**18], pa.int64()).cast(INSTANT)}, 3, "c", "which is out of range", ConfigurationError),
    ({"retries": [1, -1, 1]}, 2, "b", "retries must be a whole number from 0 to 1000000, not -1", ConfigurationError),
    ({"retries": [1_000_001, 1, 1]}, 1, "a", "retries must be a whole number", ConfigurationError),
    ({"headers": [{}, {"k": None}, None]}, 2, "b", "headers must map str to str", ConfigurationError),
    ({"headers": [{}, {"k": "x" * 20_000}, None]}, 2, "b", "headers take 20008 bytes", ConfigurationError),
]


@pytest.mark.parametrize("case", BAD)
def test_invalid_row_fails_the_task_and_its_batch_is_not_sent(queue, write, case):
    cells, row, id, message, kind = case
    good = batch(["first", "second"])
    bad = batch(**{"ids": ["a", "b", "c"], **cells})
    with pytest.raises(kind) as failed:
        write(good, bad, maxPayload="100", batchSize="1")
    text = str(failed.value)
    assert text.startswith(f"row {row + 2} of the task")
    assert message in text
    assert (f"(id {id!r}" in text) == bool(id)
    assert queue.counts().pending == 2


@pytest.mark.parametrize("case", BAD)
def test_invalid_row_is_collected(redis_url, queue, run, case):
    cells, _, id, message, _ = case
    writer = make(redis_url, maxPayload="100", onError="collect", runId="night")
    written = writer.write(iter([batch(**{"ids": ["a", "b", "c"], **cells})]))
    assert (written.rows, written.refused) == (2, 1)
    ((refused, reason),) = written.refusals
    assert refused == id
    assert message in reason
    writer.commit([pickle.loads(pickle.dumps(written)), None])
    assert (run().new, run().refused, run().state) == (2, 1, "committed")
    assert queue.refusals("night") == [(id, reason)]


def test_row_with_several_errors_is_refused_once(write):
    written = write(batch([None, "b"], payload=[None, "x"], retries=[-1, 1]), onError="collect")
    assert (written.rows, written.refused) == (1, 1)
    assert written.refusals == [("", "id is null")]


def test_all_refused_rows_are_counted_but_only_some_listed(redis_url, run):
    writer = make(redis_url, onError="collect", runId="night")
    tasks = [writer.write(iter([batch([None] * 700), batch([None] * 700 + [f"task-{n}"])])) for n in range(2)]
    assert [len(written.refusals) for written in tasks] == [1000, 1000]
    writer.commit(tasks)
    assert (run().refused, run().new) == (2800, 2)


def test_error_counts_further_invalid_rows_of_the_batch(write):
    with pytest.raises(ConfigurationError, match=r"id is null; 2 more in its batch; no row of this batch was sent"):
        write(batch([None, "a", None, None]))


# Existing ids


def test_second_write_adds_only_missing_messages(redis_url, queue, run):
    for ids in (["a", "b"], ["a", "b", "c", "c"]):
        writer = make(redis_url, runId="night")
        writer.commit([writer.write(iter([batch(ids)]))])
    assert (run().new, run().exists, run().state) == (3, 3, "committed")
    assert queue.counts().pending == 3


def test_pending_message_is_replaced_on_request(redis_url, write, queue, run):
    write(batch(["a"], due=[None]))
    (held,) = queue.lease(n=1)
    write(batch(["b"]))
    write(batch(["a", "b", "c"], payload=["x", "y", "z"]), onConflict="replace", runId="night")
    assert held.ack()
    assert (run().new, run().replaced, run().running) == (1, 1, 1)
    assert queue.get("b").payload == b"y"


def test_on_conflict_fail_refuses_an_existing_id(write, queue):
    write(batch(["b"]))
    with pytest.raises(DelayqError, match=r"'b' already exists in queue q, .*; messages stored so far stay") as failed:
        write(batch(["a", "b", "c"]), onConflict="fail", runId="night")
    assert not isinstance(failed.value, ConfigurationError), "which says that nothing was stored"
    assert queue.counts().pending == 3
    assert write(batch(["a", "b", "c", "d"]), runId="night").rows == 4
    assert queue.counts().pending == 4


def test_on_conflict_fail_refuses_a_duplicate_id(write):
    with pytest.raises(DelayqError, match="'a' already exists in queue q"):
        write(batch(["a", "a"]), onConflict="fail")


def test_id_in_garbage_can_be_sent_again(redis_url, queue, run):
    for id in ("a", "dead-before"):
        queue.send_delay_msg(b"old", id=id, retries=0)
    spent, dead = sorted(queue.lease(n=2), key=lambda message: message.id)
    dead.reject("no")
    queue.executor.call(queue.context.calls.nack([Failure(spent.id, spent.token, 0, "boom")]))
    assert queue.counts().garbage == 1
    written = make(redis_url, runId="night").write(iter([batch(["before", "a", "behind"])]))
    assert written.rows == 3
    assert run().new == 3
    assert queue.get("a").payload == b'"a"'
    assert queue.counts().dead == 2


def test_id_in_garbage_is_settled_within_the_dedupe_window(redis_url, queue, run):
    writer = make(redis_url, runId="night")
    writer.opened()
    queue.send_delay_msg(b"old", id="a", retries=0)
    (spent,) = queue.lease(n=1)
    queue.executor.call(queue.context.calls.nack([Failure(spent.id, spent.token, 0, "boom")]))
    writer.write(iter([batch(["before", "a"])]))
    assert (run().new, run().settled) == (1, 1)


# Repeated tasks


def failing(*batches):
    yield from batches
    raise OSError("the executor is gone")


def test_repeated_task_loses_nothing_and_counts_nothing_twice(redis_url, queue, run):
    writer = make(redis_url, runId="night")
    first, second = batch(f"a-{n}" for n in range(300)), batch(f"b-{n}" for n in range(300))
    with pytest.raises(OSError, match="gone"):
        writer.write(failing(first))
    writer.commit([writer.write(iter([first, second]))])
    assert (run().new, run().exists, run().state) == (600, 300, "committed")
    assert queue.counts().pending == 600


def test_two_concurrent_writers_of_the_same_rows_store_each_once(redis_url, queue, run):
    batches = [batch(f"{n}-{m}" for m in range(500)) for n in range(8)]
    gate = threading.Barrier(2)
    failures = []

    def task():
        gate.wait()
        try:
            make(redis_url, runId="night").write(iter(batches))
        except DelayqError as error:
            failures.append(error)

    threads = [threading.Thread(target=task) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert (run().new, run().exists) == (4000, 4000)
    assert queue.counts().pending == 4000


def test_late_retry_does_not_send_settled_messages_again(redis_url, queue, run):
    writer = make(redis_url, runId="night")
    writer.opened()
    rows = batch((f"id-{n}" for n in range(300)), due=[None] * 300)
    writer.write(iter([rows]))
    settled = 0
    while settled < 300:
        with queue.lease(n=100) as messages:
            settled += len(messages)
    writer.write(iter([rows]))
    assert queue.counts().living == 0
    assert (run().new, run().settled) == (300, 300)


def test_on_conflict_fail_refuses_a_settled_id(redis_url, queue):
    writer = make(redis_url, onConflict="fail")
    writer.opened()
    writer.write(iter([batch(["a"])]))
    queue.cancel("a")
    with pytest.raises(DelayqError, match="'a' was settled within the dedupe window of queue q"):
        writer.write(iter([batch(["a"])]))


# The driver


def dedupe(client):
    return client.hget("delayq:{q}:meta", "dedupe")


def test_default_dedupe_window_is_one_day(redis_url, redis_client):
    make(redis_url).opened()
    assert dedupe(redis_client) == b"86400000 1000000"
    assert redis_client.smembers("delayq:queues") == {b"q"}


def test_dedupe_window_of_the_queue_is_kept(redis_url, redis_client):
    with DelayQueue("q", url=redis_url, dedupe_window="2h", dedupe_max=5) as queue:
        queue.open()
    make(redis_url).opened()
    assert dedupe(redis_client) == b"7200000 5"


def test_dedupe_window_option_sets_or_disables_it(redis_url, redis_client):
    make(redis_url, dedupeWindow="1h").opened()
    assert dedupe(redis_client) == b"3600000 1000000"
    make(redis_url, dedupeWindow="0").opened()
    assert dedupe(redis_client) is None


def test_run_without_a_name_gets_a_unique_one(redis_url):
    assert len({make(redis_url).run for _ in range(3)}) == 3
    assert make(redis_url, runId="night").run == "night"


def test_aborted_run_keeps_sent_messages(redis_url, queue, run):
    writer = make(redis_url, runId="night")
    written = writer.write(iter([batch(["a"])]))
    writer.abort([written, None])
    assert (run().state, run().new) == ("aborted", 1)
    assert queue.counts().pending == 1


def test_open_fails_if_redis_is_unreachable(monkeypatch):
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", 0.0)
    with pytest.raises(UnavailableError, match="Redis cannot be reached"):
        make("redis://localhost:1").opened()


def test_every_open_checks_redis(start_redis, monkeypatch):
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", 0.0)
    server = start_redis()
    make(server.url).opened()
    server.stop()
    with pytest.raises(UnavailableError, match="Redis cannot be reached"):
        make(server.url).opened()


def test_task_continues_after_redis_was_down(start_redis):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    writer = make(server.url, runId="night")

    def rows():
        yield batch(["a"])
        server.kill()
        threading.Timer(0.2, server.start).start()
        yield batch(["b"])

    writer.commit([writer.write(rows())])
    with DelayQueue("q", url=server.url) as queue:
        (info,) = queue.runs()
        assert (info.new, info.exists, info.state) == (2, 0, "committed")


def test_full_redis_stores_whole_batches_only(start_redis, monkeypatch):
    server = start_redis("--maxmemory", "4mb")
    target = make(server.url).options.target
    monkeypatch.setattr(connect(target).protocol, "deadline", 0.0)
    rows = batch((f"id-{n}" for n in range(5000)), payload=["x" * 2000] * 5000)
    with pytest.raises(QueueFullError, match="out of memory"):
        make(server.url).write(iter([rows]))
    with DelayQueue("q", url=server.url) as queue:
        stored = queue.counts().pending
    assert 0 < stored < 5000
    assert stored % 200 == 0


# Streams


def stream(url, **options):
    return StreamWriter(write_options({"queue": "q", "url": url, **options}), schema())


def test_stream_has_the_same_run_after_a_restart(redis_url):
    runs = {stream(redis_url, checkpointLocation=place).run for place in ("/data/ck", "/data/ck/", "/data/other")}
    assert len(runs) == 2
    assert stream(redis_url, checkpointLocation="/data/ck", runId="night").run == "night"
    with pytest.raises(ConfigurationError, match="set the option runId or checkpointLocation"):
        stream(redis_url)


def test_micro_batch_committed_twice_is_counted_once(redis_url, run):
    writer = stream(redis_url, runId="night", onError="collect")
    for epoch, ids in [(0, ["a", None]), (1, ["b", None]), (1, ["b", None]), (2, ["c"])]:
        writer.commit([writer.write(iter([batch(ids)]))], epoch)
    assert (run().new, run().exists, run().refused, run().state) == (3, 1, 2, "committed")


def test_aborted_micro_batch_is_counted_at_its_commit(redis_url, run):
    writer = stream(redis_url, runId="night", onError="collect")
    writer.commit([writer.write(iter([batch([None])]))], 0)
    written = writer.write(iter([batch(["b", None])]))
    writer.abort([written, None], 1)
    assert (run().state, run().refused) == ("aborted", 1)
    writer.commit([written], 0)
    assert run().refused == 1, "an abort does not make it forget what was counted"
    writer.commit([writer.write(iter([batch(["b", None])]))], 1)
    assert (run().state, run().new, run().exists, run().refused) == ("committed", 1, 1, 2)


def test_tasks_share_a_connection(redis_url):
    one, other = (write_options({"queue": queue, "url": redis_url}) for queue in ("q", "r"))
    assert connect(one.target) is connect(other.target)
