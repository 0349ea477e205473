"""Reading a queue as it is."""

import pickle
import random
import time
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
from delayq.calls import Calls
from delayq.config import read_settings
from delayq.executor import open_executor
from delayq.keys import Keys
from delayq.spark import snapshot, snapshot_rows
from delayq.spark.options import snapshot_options
from delayq.spark.snapshot import SnapshotReader, read_messages
from delayq.spark.source import register
from delayq.values import Receipt

HOUR = timedelta(hours=1)
MOST = (1 << 53) - 1


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
    """Return the calls as of so many seconds later: what waits no longer than that is over by then."""
    return Calls(CALLS.keys, clock=lambda: int((time.time() + seconds) * 1000))


@pytest.fixture
def reader(redis_url):
    def made(**options):
        given = {"queue": "letters", "url": redis_url} | {name: str(value) for name, value in options.items()}
        return SnapshotReader(snapshot_options(given))

    return made


def rows(reader):
    """Return what a reader reads, in all of its partitions, as Spark would: by way of a pickle."""
    found = []
    for partition in pickle.loads(pickle.dumps(reader.partitions())):
        for batch in pickle.loads(pickle.dumps(reader)).read(partition):
            assert batch.schema.equals(snapshot_rows.SCHEMA)
            found += batch.to_pylist()
    return found


def by_id(reader):
    found = rows(reader)
    told = {row["id"]: {name: value for name, value in row.items() if value is not None} for row in found}
    assert len(told) == len(found)
    return told


def in_every_state(queue, executor):
    """Bring a message into each state; its id is the name of that."""
    lease = {"lease": 60_000, "holder": "me"}

    def brought(id, retries=3):
        queue.send_delay_msg("p" * 8, 0, id=id, retries=retries, headers={"trace": id})
        executor.call(CALLS.pending_to_ready())
        (delivery,) = executor.call(CALLS.ready_to_unack(1, **lease)).deliveries
        return delivery

    dead = brought("dead")
    executor.call(CALLS.reject([(dead.id, dead.token, "no such address", "")]))
    garbage = brought("garbage", retries=0)
    executor.call(CALLS.nack([(garbage.id, garbage.token, 0, "boom")]))
    retry = brought("retry")
    executor.call(CALLS.nack([(retry.id, retry.token, 0, "boom")]))
    backoff = brought("backoff")
    executor.call(CALLS.nack([(backoff.id, backoff.token, 3_600_000, "boom")]))
    active = brought("active")
    executor.call(in_(1).unack_to_retry())
    queue.send_delay_msg("p" * 8, 0, id="ready")
    executor.call(CALLS.pending_to_ready())
    queue.send_delay_msg("p" * 8, "1h", id="pending")
    return {one.id: one.token for one in (dead, garbage, retry, backoff, active)}


STATES = ["pending", "ready", "active", "backoff", "retry", "garbage", "dead"]


# What is told of a message


def test_each_state_tells_what_is_known(queue, executor, reader):
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


def test_payloads_are_read_when_asked_for(queue, executor, reader):
    in_every_state(queue, executor)
    assert {row["payload"] for row in rows(reader(includePayload=True))} == {b'"pppppppp"'}
    assert {row["payload"] for row in rows(reader())} == {None}


def test_a_rescheduled_message_is_pending_with_its_past(queue, executor, reader):
    tokens = in_every_state(queue, executor)
    queue.reschedule("retry", "2h")
    row = by_id(reader())["retry"]
    assert (row["state"], row["attempt"], row["token"], row["holder"]) == ("pending", 1, tokens["retry"], "me")
    assert row["due"] - datetime.now(UTC) > HOUR
    assert by_id(reader())["pending"]["attempt"] == 0


def test_two_deaths_of_one_id_are_two_rows_beside_its_new_life(queue, executor, reader):
    in_every_state(queue, executor)
    for _ in range(2):
        queue.send_delay_msg("again", id="dead")
        executor.call(CALLS.pending_to_ready())
        queue.lease(n=10).messages.pop().reject("again")
    queue.send_delay_msg("again", "1h", id="dead")
    found = [row for row in rows(reader()) if row["id"] == "dead"]
    assert Counter(row["state"] for row in found) == {"dead": 3, "pending": 1}
    assert len({row["token"] for row in found}) == 4


def test_errors_that_are_no_text_are_shown_as_well_as_can_be(queue, redis_client, reader):
    queue.send_delay_msg(1, "1h", id="a")
    redis_client.hset(CALLS.keys.errors, "a", b"caf\xe9")
    assert by_id(reader())["a"]["error"] == "caf�"


def test_what_has_no_payload_is_no_message(queue, redis_client, reader):
    queue.send_many([NewMessage(n, delay="1h", id=f"m{n}") for n in range(3)])
    redis_client.hdel(CALLS.keys.messages, "m1")
    redis_client.hset(CALLS.keys.messages, "m2", b"")
    assert {id: row["payload_size"] for id, row in by_id(reader()).items()} == {"m0": 1, "m2": 0}


# Which messages are read


@pytest.mark.parametrize("states", [["pending"], ["ready"], ["active", "backoff"], ["retry", "dead"], ["garbage"]])
def test_only_the_states_that_were_asked_for_are_read(queue, executor, reader, states):
    in_every_state(queue, executor)
    assert sorted(by_id(reader(states=",".join(states)))) == sorted(states)


def test_an_empty_queue_has_no_rows(queue, reader):
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
    sizes = [sum(batch.num_rows for batch in divided.read(one)) for one in divided.partitions() if not one.of_the_dead]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1  # by the quantiles of the due time, ties by id
    assert len(sizes) == min(partitions, count)
    assert sorted(by_id(divided)) == sorted(f"m{n}" for n in range(count))


def test_a_due_window_is_read_in_all_states(queue, executor, reader):
    base = datetime(2030, 1, 1, tzinfo=UTC)
    queue.send_many([NewMessage(n, at=base + timedelta(milliseconds=n), id=f"m{n}") for n in range(10)])
    queue.send_delay_msg(1, id="now")
    executor.call(CALLS.pending_to_ready())
    window = {"dueFrom": (base + timedelta(milliseconds=3)).isoformat(), "partitions": 3}
    assert sorted(by_id(reader(**window))) == [f"m{n}" for n in range(3, 10)]
    window["dueTo"] = (base + timedelta(milliseconds=7)).isoformat()
    assert sorted(by_id(reader(**window))) == [f"m{n}" for n in range(3, 7)]
    assert sorted(by_id(reader(dueTo=base.isoformat()))) == ["now"]


@pytest.mark.parametrize("state", STATES[1:])
def test_the_window_goes_for_every_state(queue, executor, reader, state):
    in_every_state(queue, executor)
    due = by_id(reader(states=state))[state]["due"]
    inside = {"states": state, "dueFrom": due.isoformat(), "dueTo": (due + timedelta(milliseconds=1)).isoformat()}
    assert sorted(by_id(reader(**inside))) == [state]
    assert rows(reader(states=state, dueTo=due.isoformat())) == []
    assert rows(reader(states=state, dueFrom=(due + timedelta(milliseconds=1)).isoformat())) == []


# In portions


def test_a_division_is_read_in_batches(queue, reader, monkeypatch):
    monkeypatch.setattr(snapshot_rows, "ROWS", 20)
    monkeypatch.setattr(snapshot, "PAGE", 10)
    queue.send_many([NewMessage(n, delay="1h") for n in range(55)])
    divided = reader(partitions=1)
    sizes = [batch.num_rows for batch in divided.read(divided.partitions()[0])]
    assert sizes == [20, 20, 15]


def test_large_payloads_are_read_a_few_at_a_time(queue, redis_client, reader):
    queue.send_many([NewMessage("x" * 300_000, delay=3600 + n, id=f"m{n}") for n in range(20)])
    pending = reader(includePayload=True, partitions=1, states="pending")
    rows(pending)  # the server knows the script from now on
    redis_client.config_resetstat()
    assert {len(row["payload"]) for row in by_id(pending).values()} == {300_002}
    # A page is full when it holds a MiB, which is after four of these; the last one is empty.
    assert redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] == 6


def test_a_page_that_ends_in_the_middle_of_one_due_time_goes_on_behind_it(queue, reader, monkeypatch):
    monkeypatch.setattr(snapshot, "PAGE", 3)
    at = datetime(2030, 1, 1, tzinfo=UTC)
    queue.send_many([NewMessage(n, at=at, id=f"m{n}") for n in range(10)])
    assert sorted(by_id(reader())) == sorted(f"m{n}" for n in range(10))


def test_a_page_whose_beginning_is_gone_begins_with_its_due_time_and_repeats_nothing(queue, reader, monkeypatch):
    monkeypatch.setattr(snapshot, "PAGE", 3)
    monkeypatch.setattr(snapshot_rows, "ROWS", 1)
    at = datetime(2030, 1, 1, tzinfo=UTC)
    queue.send_many([NewMessage(n, at=at, id=f"m{n}") for n in range(10)])
    divided = reader(partitions=1, states="pending")
    (division,) = divided.partitions()
    batches = divided.read(division)
    first = next(batches).column("id").to_pylist()
    assert first == ["m0", "m1", "m2"]
    queue.cancel("m2")  # behind which the next page would begin
    rest = pa.Table.from_batches(list(batches)).column("id").to_pylist()
    assert rest == [f"m{n}" for n in range(3, 10)]


# While the queue lives on


def test_what_is_promoted_after_its_page_was_read_is_listed_once_and_before_it_not_missed(
    queue, executor, reader, monkeypatch
):
    monkeypatch.setattr(snapshot, "PAGE", 2)
    monkeypatch.setattr(snapshot_rows, "ROWS", 1)
    queue.send_many([NewMessage(n, id=f"m{n}") for n in range(6)])
    divided = reader(partitions=1)
    living, _ = divided.partitions()
    batches = divided.read(living)
    found = next(batches).to_pylist()
    executor.call(CALLS.pending_to_ready(4))
    found += [row for batch in batches for row in batch.to_pylist()]
    states = {row["id"]: row["state"] for row in found}
    assert len(found) == len(states) == 6
    assert Counter(states.values()) == {"pending": 4, "ready": 2}


def test_who_dies_meanwhile_is_not_missed_either(queue, executor, reader, monkeypatch):
    queue.send_many([NewMessage(n, id=f"m{n}") for n in range(3)])
    divided = reader(partitions=1)
    living, dead = divided.partitions()
    executor.call(CALLS.pending_to_ready())
    queue.lease(n=3).messages[0].reject("no")
    # By the clock of the server, death came later than the plan.
    later_than_planned = [row for batch in divided.read(dead) for row in batch.to_pylist()]
    found = [row for batch in divided.read(living) for row in batch.to_pylist()]
    assert sorted(row["id"] for row in later_than_planned + found) == ["m0", "m1", "m2"]
    assert Counter(row["state"] for row in later_than_planned + found) == {"active": 2, "dead": 1}


@pytest.mark.parametrize("seed", range(12))
def test_nothing_that_stays_is_missed_or_listed_twice_whatever_moves_on(queue, executor, reader, monkeypatch, seed):
    monkeypatch.setattr(snapshot, "PAGE", 5)
    monkeypatch.setattr(snapshot_rows, "ROWS", 1)
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
    """What consumers do to a queue, step by step."""

    def __init__(self, executor, chosen):
        self.call, self.chosen = executor.call, chosen
        self.held, self.gone = [], set()

    def go_on(self):
        self.chosen.choice([self.promote, self.claim, self.fail, self.settle, self.expire, self.bury])()

    def promote(self):
        self.call(CALLS.pending_to_ready(self.chosen.randrange(1, 15)))

    def claim(self):
        claimed = self.call(CALLS.ready_to_unack(self.chosen.randrange(1, 9), lease=60_000, holder="me"))
        self.held += claimed.deliveries

    def one_held(self):
        self.chosen.shuffle(self.held)
        return [self.held.pop()] if self.held else []

    def fail(self):
        for one in self.one_held():
            self.call(CALLS.nack([(one.id, one.token, 3_600_000, "boom")]))

    def settle(self):
        for one in self.one_held():
            if self.call(CALLS.ack([Receipt(one.id, one.token)])) == "1":
                self.gone.add(one.id)

    def expire(self):
        self.call(in_(7200).unack_to_retry(self.chosen.randrange(1, 5)))

    def bury(self):
        self.call(CALLS.collect_garbage(limit=3, dead_max=1000, dead_ttl=1 << 40, slot_ttl=1 << 40))


# What a filter of a query says


@pytest.mark.parametrize(
    ("filters", "states", "window"),
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
def test_filters_narrow_down_what_is_read(reader, filters, states, window):
    filtered = reader(pushdown=True)
    assert filtered.pushFilters(filters) is filters  # Spark looks at all of them once more
    assert filtered._options.states == tuple(states)
    assert (filtered._options.due_from, filtered._options.due_to) == window


def test_filters_do_not_widen_the_window_that_was_asked_for(reader):
    given = {"dueFrom": "2030-01-01T00:00:00+00:00", "dueTo": "2031-01-01T00:00:00+00:00"}
    filtered, plain = reader(pushdown=True, **given), reader(**given)
    filtered.pushFilters(
        [GreaterThan(("due",), datetime(2020, 1, 1, tzinfo=UTC)), LessThan(("due",), datetime(2040, 1, 1, tzinfo=UTC))]
    )
    assert filtered._options.due_from == plain._options.due_from
    assert filtered._options.due_to == plain._options.due_to


def test_a_reader_takes_filters_only_if_it_was_asked_to(reader):
    from pyspark.sql.datasource import DataSourceReader

    assert type(reader()).pushFilters is DataSourceReader.pushFilters
    assert type(reader(pushdown=True)).pushFilters is not DataSourceReader.pushFilters


def test_filters_that_leave_nothing_read_nothing(queue, executor, reader):
    in_every_state(queue, executor)
    filtered = reader(pushdown=True)
    filtered.pushFilters([EqualTo(("state",), "none")])
    assert filtered.partitions() == []
    assert list(filtered.read(InputPartition(None))) == []  # as Spark goes on then


# What is wrong


def test_a_queue_that_is_not_there_is_told_with_the_one_that_may_be_meant(queue, redis_url):
    queue.purge()  # which opens it
    reader = SnapshotReader(snapshot_options({"queue": "leters", "url": redis_url}))
    with pytest.raises(ConfigurationError, match="there is no queue 'leters' under the prefix 'delayq', did you mean"):
        reader.partitions()


def test_a_queue_that_nobody_has_opened_here_is_there_if_it_holds_something(queue, redis_client, reader):
    queue.send_delay_msg(1, "1h")
    redis_client.delete("delayq:queues")
    assert len(rows(reader())) == 1


def test_a_key_of_another_type_is_told(queue, redis_client, reader):
    queue.send_delay_msg(1, "1h")
    redis_client.delete(CALLS.keys.pending)
    redis_client.set(CALLS.keys.pending, "a text")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        reader().partitions()


def test_an_entry_of_the_dead_letter_without_its_message_is_left_out(queue, executor, redis_client, reader):
    in_every_state(queue, executor)
    redis_client.delete(CALLS.keys.dead_messages)
    assert "dead" not in by_id(reader())


def test_a_redis_out_of_reach_is_told(monkeypatch):
    monkeypatch.setattr("delayq.spark.connection._EXECUTORS", {})
    monkeypatch.setattr(
        "delayq.spark.connection.read_settings", lambda options: read_settings({**options, "deadline": 0.05})
    )
    reader = SnapshotReader(snapshot_options({"queue": "letters", "url": "unix:///nowhere.sock"}))
    with pytest.raises(UnavailableError, match="cannot be reached"):
        reader.partitions()


# In Spark


@pytest.mark.spark
def test_a_snapshot_is_a_table(spark, queue, executor, redis_url):
    in_every_state(queue, executor)
    queue.send_many([NewMessage(n, delay="1h", headers={"n": str(n)}) for n in range(500)])
    table = read_messages(spark, "letters", url=redis_url, include_payload=True)
    counts = {row["state"]: row["count"] for row in table.groupBy("state").count().collect()}
    assert counts == dict.fromkeys(STATES, 1) | {"pending": 501}
    (row,) = table.where("state = 'backoff'").collect()
    assert (row["error"], row["payload"], row["headers"]) == ("boom", b'"pppppppp"', {"trace": "backoff"})
    assert table.where("headers['n'] = '77'").count() == 1


@pytest.mark.spark
def test_the_columns_are_those_that_are_promised(spark, queue, redis_url):
    from pyspark.sql.pandas.types import to_arrow_schema

    table = read_messages(spark, "letters", url=redis_url)
    assert to_arrow_schema(table.schema, timezone="UTC").equals(snapshot_rows.SCHEMA)


@pytest.mark.spark
def test_times_are_instants_whatever_the_zone_of_the_session(spark, queue, redis_url):
    at = datetime(2030, 3, 31, 0, 59, 59, 1000, tzinfo=UTC)
    queue.send_schedule_msg(1, at, id="a")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        window = {"due_from": at, "due_to": at + timedelta(milliseconds=1)}
        table = read_messages(spark, "letters", url=redis_url, **window)
        assert [row[0] for row in table.selectExpr("unix_millis(due)").collect()] == [at.timestamp() * 1000]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.spark
def test_filters_are_pushed_where_spark_is_set_to(spark, queue, executor, redis_url):
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
def test_a_queue_that_is_not_there_is_told_by_spark_too(spark, redis_url):
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="there is no queue 'letters' under the prefix 'delayq'"):
        read_messages(spark, "letters", url=redis_url).count()


@pytest.mark.spark
def test_wrong_options_are_told_before_spark_is_asked(spark, redis_url):
    with pytest.raises(ConfigurationError, match="states must be of"):
        read_messages(spark, "letters", url=redis_url, states=["lost"])
    with pytest.raises(ConfigurationError, match="naive"):
        read_messages(spark, "letters", url=redis_url, due_from=datetime(2030, 1, 1))  # noqa: DTZ001 - which is wrong
