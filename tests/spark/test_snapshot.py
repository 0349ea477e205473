"""Reading the messages of a queue."""

import pickle
import random
import time
from binascii import crc_hqx
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from delayq import ConfigurationError, DelayQueue, NewMessage, ServerError, UnavailableError
from delayq.broker.calls import Calls
from delayq.broker.keys import Keys
from delayq.broker.requests import Failure, Receipt
from delayq.broker.transport.executor import open_executor
from delayq.bulk.reading import snapshot, snapshot_rows
from delayq.options import read_settings
from delayq.queue.control.limit_calls import limit_call
from delayq.spark.datasource.snapshot_reader import SnapshotReader
from delayq.spark.datasource.source import read_messages, register
from delayq.spark.datasource.source_options import snapshot_options

HOUR = timedelta(hours=1)
MAX_TIME = (1 << 53) - 1


@pytest.fixture
def queue(redis_url):
    with DelayQueue("letters", url=redis_url) as queue:
        yield queue


@pytest.fixture
def executor(redis_url):
    opened = open_executor({"url": redis_url}, read_settings({}))
    yield opened
    opened.close()


CALLS = Calls(Keys.of("delayq", "letters"))


def in_(seconds):
    """Return calls whose clock is some seconds ahead, to which waits of that length have ended."""
    return Calls(CALLS.keys, clock=lambda: int((time.time() + seconds) * 1000))


@pytest.fixture
def reader(redis_url):
    def made(**options):
        raw = {"queue": "letters", "url": redis_url} | {name: str(value) for name, value in options.items()}
        return SnapshotReader(snapshot_options(raw))

    return made


def rows(reader):
    """Return the rows of all partitions; like Spark, pickle the reader first."""
    found = []
    for partition in pickle.loads(pickle.dumps(reader.partitions())):
        for batch in pickle.loads(pickle.dumps(reader)).read(partition):
            assert batch.schema.equals(snapshot_rows.SCHEMA)
            found += batch.to_pylist()
    return found


def by_id(reader):
    found = rows(reader)
    unique = {row["id"]: {name: value for name, value in row.items() if value is not None} for row in found}
    assert len(unique) == len(found)
    return unique


def in_every_state(queue, executor):
    """Bring a message into each state; its id is the name of the state."""
    lease = {"lease": 60_000, "consumer_id": "me"}

    def make_active(id, retries=3):
        queue.send_delay_msg("p" * 8, 0, id=id, retries=retries, headers={"trace": id})
        executor.call(CALLS.pending_to_ready())
        (delivery,) = executor.call(CALLS.ready_to_unack(1, **lease)).messages
        return delivery

    dead = make_active("dead")
    executor.call(CALLS.reject([(dead.id, dead.token, "no such address", "")]))
    garbage = make_active("garbage", retries=0)
    executor.call(CALLS.nack([Failure(garbage.id, garbage.token, 0, "boom")]))
    executor.call(limit_call(CALLS, "held", paused="0"))
    queue.send_delay_msg("p" * 8, 0, id="throttled", name="held")
    executor.call(CALLS.pending_to_ready())
    assert executor.call(CALLS.ready_to_unack(1, **lease)).messages == []
    retry = make_active("retry")
    executor.call(CALLS.nack([Failure(retry.id, retry.token, 0, "boom")]))
    backoff = make_active("backoff")
    executor.call(CALLS.nack([Failure(backoff.id, backoff.token, 3_600_000, "boom")]))
    active = make_active("active")
    executor.call(in_(1).unack_to_retry())
    queue.send_delay_msg("p" * 8, 0, id="ready")
    executor.call(CALLS.pending_to_ready())
    queue.send_delay_msg("p" * 8, "1h", id="pending")
    return {one.id: one.token for one in (dead, garbage, retry, backoff, active)}


STATES = ["pending", "ready", "active", "backoff", "retry", "throttled", "garbage", "dead"]


# Columns of a message


def test_row_of_each_state_has_its_columns(queue, executor, reader):
    tokens = in_every_state(queue, executor)
    found = by_id(reader())
    now = datetime.now(UTC)
    assert {id: row["state"] for id, row in found.items()} == dict(zip(STATES, STATES, strict=True))
    for row in found.values():
        assert row.pop("payload_size") == 10  # quotes included
        due = row.pop("due")
        assert abs(due - now - (HOUR if row["state"] == "pending" else timedelta())) < timedelta(minutes=1)
    assert found["pending"] == {"id": "pending", "state": "pending", "attempt": 0, "retries_left": 3}
    assert found["ready"] == {"id": "ready", "state": "ready", "attempt": 0, "retries_left": 3}
    throttled = {"id": "throttled", "state": "throttled", "attempt": 0, "retries_left": 3}
    assert found["throttled"] == throttled
    active = found["active"]
    assert timedelta() < active.pop("deadline") - now <= timedelta(minutes=1)
    assert active == delivered("active", tokens, 3)
    backoff = found["backoff"]
    assert timedelta(minutes=58) < backoff.pop("deadline") - now <= HOUR
    assert backoff == delivered("backoff", tokens, 2, error="boom")
    assert found["retry"] == delivered("retry", tokens, 2, error="boom")
    assert found["garbage"] == delivered("garbage", tokens, 0, error="boom")
    dead = found["dead"]
    assert abs(dead.pop("died") - now) < timedelta(minutes=1)
    del (expected := delivered("dead", tokens, 0, reason="no such address"))["holder"]
    assert dead == expected


def delivered(id, tokens, retries_left, **more):
    return {
        "id": id,
        "state": id,
        "attempt": 1,
        "token": tokens[id],
        "retries_left": retries_left,
        "holder": "me",
        "headers": [("trace", id)],
    } | more


def test_payloads_are_read_on_request(queue, executor, reader):
    in_every_state(queue, executor)
    assert {row["payload"] for row in rows(reader(includePayload=True))} == {b'"pppppppp"'}
    assert {row["payload"] for row in rows(reader())} == {None}


def test_rescheduled_message_is_pending_and_keeps_its_attempts(queue, executor, reader):
    tokens = in_every_state(queue, executor)
    queue.reschedule("retry", "2h")
    row = by_id(reader())["retry"]
    assert (row["state"], row["attempt"], row["token"], row["holder"]) == ("pending", 1, tokens["retry"], "me")
    assert row["due"] - datetime.now(UTC) > HOUR
    assert by_id(reader())["pending"]["attempt"] == 0


def test_each_dead_message_of_an_id_has_its_own_row(queue, executor, reader):
    in_every_state(queue, executor)
    for _ in range(2):
        queue.send_delay_msg("again", id="dead")
        executor.call(CALLS.pending_to_ready())
        queue.lease(n=10).messages.pop().reject("again")
    queue.send_delay_msg("again", "1h", id="dead")
    found = [row for row in rows(reader()) if row["id"] == "dead"]
    assert Counter(row["state"] for row in found) == {"dead": 3, "pending": 1}
    assert len({row["token"] for row in found}) == 4


def test_error_that_is_not_utf_8_has_replacement_characters(queue, redis_client, reader):
    queue.send_delay_msg(1, "1h", id="a")
    redis_client.hset(CALLS.keys.errors, "a", b"caf\xe9")
    assert by_id(reader())["a"]["error"] == "caf�"


def test_message_without_a_payload_is_left_out(queue, redis_client, reader):
    queue.send_many([NewMessage(n, delay="1h", id=f"m{n}") for n in range(3)])
    redis_client.hdel(CALLS.keys.messages, "m1")
    redis_client.hset(CALLS.keys.messages, "m2", b"")
    assert {id: row["payload_size"] for id, row in by_id(reader()).items()} == {"m0": 1, "m2": 0}


# Selected messages


@pytest.mark.parametrize(
    "states", [["pending"], ["ready"], ["active", "backoff"], ["retry", "dead"], ["throttled"], ["garbage"]]
)
def test_states_option_selects_the_states(queue, executor, reader, states):
    in_every_state(queue, executor)
    assert sorted(by_id(reader(states=",".join(states)))) == sorted(states)


def test_empty_queue_has_no_rows(queue, reader):
    queue.purge()  # which opens it
    assert rows(reader()) == []


@pytest.mark.parametrize("count", [1, 2, 3, 10, 57])
@pytest.mark.parametrize("partitions", [1, 2, 4, 20])
@pytest.mark.parametrize("dues", [1, 5, 1000], ids="{} due times".format)
def test_each_message_is_in_one_partition(queue, reader, monkeypatch, *, count, partitions, dues):
    monkeypatch.setattr(snapshot, "PAGE", 4)
    base = datetime.now(UTC) + HOUR
    queue.send_many([NewMessage(n, at=base + timedelta(seconds=n % dues), id=f"m{n}") for n in range(count)])
    divided = reader(partitions=partitions)
    living = [one for one in divided.partitions() if not one.part.is_dead_letter]
    sizes = [sum(batch.num_rows for batch in divided.read(one)) for one in living]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1  # by the quantiles of the due time, ties by id
    assert len(sizes) == min(partitions, count)
    assert sorted(by_id(divided)) == sorted(f"m{n}" for n in range(count))


def test_due_period_selects_messages_by_due_time(queue, executor, reader):
    base = datetime(2030, 1, 1, tzinfo=UTC)
    queue.send_many([NewMessage(n, at=base + timedelta(milliseconds=n), id=f"m{n}") for n in range(10)])
    queue.send_delay_msg(1, id="now")
    executor.call(CALLS.pending_to_ready())
    period = {"dueFrom": (base + timedelta(milliseconds=3)).isoformat(), "partitions": 3}
    assert sorted(by_id(reader(**period))) == [f"m{n}" for n in range(3, 10)]
    period["dueTo"] = (base + timedelta(milliseconds=7)).isoformat()
    assert sorted(by_id(reader(**period))) == [f"m{n}" for n in range(3, 7)]
    assert sorted(by_id(reader(dueTo=base.isoformat()))) == ["now"]


@pytest.mark.parametrize("state", STATES[1:])
def test_due_period_applies_to_every_state(queue, executor, reader, state):
    in_every_state(queue, executor)
    due = by_id(reader(states=state))[state]["due"]
    inside = {"states": state, "dueFrom": due.isoformat(), "dueTo": (due + timedelta(milliseconds=1)).isoformat()}
    assert sorted(by_id(reader(**inside))) == [state]
    assert rows(reader(states=state, dueTo=due.isoformat())) == []
    assert rows(reader(states=state, dueFrom=(due + timedelta(milliseconds=1)).isoformat())) == []


# Batches and pages


def test_partition_is_read_in_batches(queue, reader, monkeypatch):
    monkeypatch.setattr(snapshot_rows, "BATCH_ROWS", 20)
    monkeypatch.setattr(snapshot, "PAGE", 10)
    queue.send_many([NewMessage(n, delay="1h") for n in range(55)])
    divided = reader(partitions=1)
    sizes = [batch.num_rows for batch in divided.read(divided.partitions()[0])]
    assert sizes == [20, 20, 15]


def test_large_payloads_are_read_in_small_pages(queue, redis_client, reader):
    queue.send_many([NewMessage("x" * 300_000, delay=3600 + n, id=f"m{n}") for n in range(20)])
    pending = reader(includePayload=True, partitions=1, states="pending")
    rows(pending)  # the server knows the script from now on
    redis_client.config_resetstat()
    assert {len(row["payload"]) for row in by_id(pending).values()} == {300_002}
    # A page is full when it holds a MiB, which is after four of these; the last one is empty.
    assert redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] == 6


def test_paging_continues_within_one_due_time(queue, reader, monkeypatch):
    monkeypatch.setattr(snapshot, "PAGE", 3)
    at = datetime(2030, 1, 1, tzinfo=UTC)
    queue.send_many([NewMessage(n, at=at, id=f"m{n}") for n in range(10)])
    assert sorted(by_id(reader())) == sorted(f"m{n}" for n in range(10))


def test_paging_repeats_nothing_if_the_last_message_is_cancelled(queue, reader, monkeypatch):
    monkeypatch.setattr(snapshot, "PAGE", 3)
    monkeypatch.setattr(snapshot_rows, "BATCH_ROWS", 1)
    at = datetime(2030, 1, 1, tzinfo=UTC)
    queue.send_many([NewMessage(n, at=at, id=f"m{n}") for n in range(10)])
    divided = reader(partitions=1, states="pending")
    (division,) = divided.partitions()
    batches = divided.read(division)
    first = next(batches).column("id").to_pylist()
    assert first == ["m0", "m1", "m2"]
    queue.cancel("m2")  # the next page would start after it
    rest = pa.Table.from_batches(list(batches)).column("id").to_pylist()
    assert rest == [f"m{n}" for n in range(3, 10)]


# Changes during the reading


def test_message_promoted_during_the_reading_is_listed_once(queue, executor, reader, monkeypatch):
    monkeypatch.setattr(snapshot, "PAGE", 2)
    monkeypatch.setattr(snapshot_rows, "BATCH_ROWS", 1)
    queue.send_many([NewMessage(n, id=f"m{n}") for n in range(6)])
    divided = reader(partitions=1)
    living, _ = divided.partitions()
    batches = divided.read(living)
    found = next(batches).to_pylist()
    executor.call(CALLS.pending_to_ready(4))
    found += [row for batch in batches for row in batch.to_pylist()]
    states = {row["id"]: row["state"] for row in found}
    assert len(found) == len(states) == 6
    assert set(states.values()) == {"ready"}


def test_message_that_dies_during_the_reading_is_listed(queue, executor, reader, monkeypatch):
    queue.send_many([NewMessage(n, id=f"m{n}") for n in range(3)])
    divided = reader(partitions=1)
    living, dead = divided.partitions()
    executor.call(CALLS.pending_to_ready())
    queue.lease(n=3).messages[0].reject("no")
    # By the server's clock, the message died after the planning.
    later_than_planned = [row for batch in divided.read(dead) for row in batch.to_pylist()]
    found = [row for batch in divided.read(living) for row in batch.to_pylist()]
    assert sorted(row["id"] for row in later_than_planned + found) == ["m0", "m1", "m2"]
    assert Counter(row["state"] for row in later_than_planned + found) == {"active": 2, "dead": 1}


@pytest.mark.parametrize("seed", range(12))
def test_random_changes_lose_or_repeat_no_remaining_message(queue, executor, reader, monkeypatch, seed):
    monkeypatch.setattr(snapshot, "PAGE", 5)
    monkeypatch.setattr(snapshot_rows, "BATCH_ROWS", 1)
    chosen = random.Random(seed)
    ids = {f"m{n:02}" for n in range(60)}
    queue.send_many([NewMessage(1, delay=chosen.choice([0, 0, 0, "1h"]), id=id, retries=1) for id in sorted(ids)])
    life = Life(executor, chosen)
    for _ in range(chosen.randrange(20)):
        life.go_on()
    before = set(life.gone)
    divided = reader(partitions=chosen.randrange(1, 5))
    reading = [divided.read(division) for division in divided.partitions()]
    found = []
    while reading:
        one = chosen.choice(reading)
        batch = next(one, None)
        if batch is None:
            reading.remove(one)
        else:
            found += batch.to_pylist()
        for _ in range(chosen.randrange(4)):
            life.go_on()
    listed = Counter(row["id"] for row in found)
    assert max(listed.values()) == 1
    assert ids - life.gone <= set(listed) <= ids - before


class Life:
    """Random steps of consumers."""

    def __init__(self, executor, chosen):
        self.call, self.chosen = executor.call, chosen
        self.held, self.gone = [], set()

    def go_on(self):
        self.chosen.choice([self.promote, self.claim, self.fail, self.settle, self.expire, self.bury])()

    def promote(self):
        self.call(CALLS.pending_to_ready(self.chosen.randrange(1, 15)))

    def claim(self):
        claimed = self.call(CALLS.ready_to_unack(self.chosen.randrange(1, 9), lease=60_000, consumer_id="me"))
        self.held += claimed.messages

    def one_held(self):
        self.chosen.shuffle(self.held)
        return [self.held.pop()] if self.held else []

    def fail(self):
        for one in self.one_held():
            self.call(CALLS.nack([Failure(one.id, one.token, 3_600_000, "boom")]))

    def settle(self):
        for one in self.one_held():
            if self.call(CALLS.ack([Receipt(one.id, one.token)])) == "1":
                self.gone.add(one.id)

    def expire(self):
        self.call(in_(7200).unack_to_retry(self.chosen.randrange(1, 5)))

    def bury(self):
        self.call(CALLS.collect_garbage(limit=3, dead_max=1000, dead_ttl=1 << 40, slot_ttl=1 << 40))


# Filter pushdown


@pytest.mark.parametrize(
    ("filters", "states", "period"),
    [
        ([], STATES, (None, None)),
        ([IsNotNull(("state",))], STATES, (None, None)),
        ([EqualTo(("state",), "dead")], ["dead"], (None, None)),
        ([In(("state",), ("ready", "retry", "other"))], ["ready", "retry"], (None, None)),
        ([In(("state",), ("ready", "retry")), EqualTo(("state",), "dead")], [], (None, None)),
        ([EqualTo(("id",), "dead")], STATES, (None, None)),
        ([GreaterThan(("due",), datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC))], STATES, (4999, None)),
        ([GreaterThanOrEqual(("due",), datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC))], STATES, (4999, None)),
        ([LessThan(("due",), datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC))], STATES, (None, 5001)),
        ([LessThanOrEqual(("due",), datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC))], STATES, (None, 5001)),
        ([EqualTo(("due",), datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC))], STATES, (4999, 5001)),
        ([GreaterThan(("due",), datetime(1, 1, 1, tzinfo=UTC))], STATES, (None, None)),
        ([GreaterThan(("due",), datetime(2030, 1, 1))], STATES, (None, None)),  # noqa: DTZ001 - of no zone
        ([GreaterThan(("died",), datetime(2030, 1, 1, tzinfo=UTC))], STATES, (None, None)),
    ],
    ids=str,
)
def test_filters_narrow_states_and_period(reader, filters, states, period):
    filtered = reader(pushdown=True)
    assert filtered.pushFilters(filters) is filters  # Spark applies all of them again
    assert filtered._options.states == tuple(states)
    assert (filtered._options.due_from, filtered._options.due_to) == period


def test_filters_do_not_widen_the_period_options(reader):
    period = {"dueFrom": "2030-01-01T00:00:00+00:00", "dueTo": "2031-01-01T00:00:00+00:00"}
    filtered, plain = reader(pushdown=True, **period), reader(**period)
    filtered.pushFilters(
        [GreaterThan(("due",), datetime(2020, 1, 1, tzinfo=UTC)), LessThan(("due",), datetime(2040, 1, 1, tzinfo=UTC))]
    )
    assert filtered._options.due_from == plain._options.due_from
    assert filtered._options.due_to == plain._options.due_to


def test_reader_takes_filters_only_with_pushdown(reader):
    from pyspark.sql.datasource import DataSourceReader

    assert type(reader()).pushFilters is DataSourceReader.pushFilters
    assert type(reader(pushdown=True)).pushFilters is not DataSourceReader.pushFilters


def test_contradictory_filters_read_nothing(queue, executor, reader):
    in_every_state(queue, executor)
    filtered = reader(pushdown=True)
    filtered.pushFilters([EqualTo(("state",), "none")])
    assert filtered.partitions() == []
    assert list(filtered.read(InputPartition(None))) == []  # as Spark goes on then


# Errors


def test_missing_queue_is_an_error_that_suggests_another(queue, redis_url):
    queue.purge()  # which opens it
    reader = SnapshotReader(snapshot_options({"queue": "leters", "url": redis_url}))
    with pytest.raises(ConfigurationError, match="there is no queue 'leters' under the prefix 'delayq', did you mean"):
        reader.partitions()


def test_unregistered_queue_with_messages_is_read(queue, redis_client, reader):
    queue.send_delay_msg(1, "1h")
    redis_client.delete("delayq:queues")
    assert len(rows(reader())) == 1


def test_key_of_another_type_is_an_error(queue, redis_client, reader):
    queue.send_delay_msg(1, "1h")
    redis_client.delete(CALLS.keys.pending)
    redis_client.set(CALLS.keys.pending, "a text")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        reader().partitions()


def test_dead_letter_entry_without_its_message_is_left_out(queue, executor, redis_client, reader):
    in_every_state(queue, executor)
    redis_client.delete(CALLS.keys.dead_messages)
    assert "dead" not in by_id(reader())


def test_unreachable_redis_is_an_error(monkeypatch):
    monkeypatch.setattr("delayq.bulk.connection._EXECUTORS", {})
    monkeypatch.setattr(
        "delayq.bulk.connection.read_settings", lambda options: read_settings({**options, "deadline": 0.05})
    )
    reader = SnapshotReader(snapshot_options({"queue": "letters", "url": "unix:///nowhere.sock"}))
    with pytest.raises(UnavailableError, match="cannot be reached"):
        reader.partitions()


# In Spark


@pytest.mark.spark
def test_spark_reads_a_snapshot_as_a_table(spark, queue, executor, redis_url):
    in_every_state(queue, executor)
    queue.send_many([NewMessage(n, delay="1h", headers={"n": str(n)}) for n in range(500)])
    table = read_messages(spark, "letters", url=redis_url, include_payload=True)
    counts = {row["state"]: row["count"] for row in table.groupBy("state").count().collect()}
    assert counts == dict.fromkeys(STATES, 1) | {"pending": 501}
    (row,) = table.where("state = 'backoff'").collect()
    assert (row["error"], row["payload"], row["headers"]) == ("boom", b'"pppppppp"', {"trace": "backoff"})
    assert table.where("headers['n'] = '77'").count() == 1


@pytest.mark.spark
def test_columns_match_the_schema(spark, queue, redis_url):
    from pyspark.sql.pandas.types import to_arrow_schema

    table = read_messages(spark, "letters", url=redis_url)
    assert to_arrow_schema(table.schema, timezone="UTC").equals(snapshot_rows.SCHEMA)


@pytest.mark.spark
def test_session_time_zone_does_not_change_times(spark, queue, redis_url):
    at = datetime(2030, 3, 31, 0, 59, 59, 1000, tzinfo=UTC)
    queue.send_schedule_msg(1, at, id="a")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        period = {"due_from": at, "due_to": at + timedelta(milliseconds=1)}
        table = read_messages(spark, "letters", url=redis_url, **period)
        assert [row[0] for row in table.selectExpr("unix_millis(due)").collect()] == [at.timestamp() * 1000]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.spark
def test_spark_pushes_filters_when_enabled(spark, queue, executor, redis_url):
    in_every_state(queue, executor)
    register(spark)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        table = spark.read.format("delayq").options(url=redis_url, pushdown="true").load("letters")
        assert [row["id"] for row in table.where("state = 'retry' and due > '2020-01-01'").collect()] == ["retry"]
        assert table.where("state in ('ready', 'dead')").count() == 2
        assert table.where("due < '2020-01-01'").count() == 0
        assert table.where("state = 'none'").count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.spark
def test_missing_queue_is_an_error_of_spark(spark, redis_url):
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="there is no queue 'letters' under the prefix 'delayq'"):
        read_messages(spark, "letters", url=redis_url).count()


@pytest.mark.spark
def test_invalid_options_are_refused_before_spark_reads(spark, redis_url):
    with pytest.raises(ConfigurationError, match="states must be among"):
        read_messages(spark, "letters", url=redis_url, states=["lost"])
    with pytest.raises(ConfigurationError, match="naive"):
        read_messages(spark, "letters", url=redis_url, due_from=datetime(2030, 1, 1))  # noqa: DTZ001 - which is wrong


# Partitions


def test_all_partitions_of_a_queue_are_read(redis_url, spark):
    with DelayQueue("letters", url=redis_url, partitions=5) as queue:
        queue.send_many([NewMessage("x", id=f"m{n}", delay=HOUR) for n in range(60)])
        queue.send_many([NewMessage("x", id=f"d{n}") for n in range(10)])
        with queue.lease(n=10) as leased:
            for message in leased:
                message.reject("no such user")
    for partitions in (1, 12):
        rows = read_messages(spark, "letters", url=redis_url, partitions=partitions, include_payload=True).collect()
        states = {row.id: row.state for row in rows}
        assert states == {f"m{n}": "pending" for n in range(60)} | {f"d{n}": "dead" for n in range(10)}
        assert len(rows) == 70
    assert read_messages(spark, "letters#3", url=redis_url).count() == sum(
        crc_hqx(i.encode(), 0) % 5 == 3 for i in states
    )
