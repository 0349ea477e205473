"""Spark as a consumer: claims for batches, which can be read again, are acknowledged once, and settle by hand."""

from __future__ import annotations

import json
import pickle
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
import redis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructField, StructType

from delayq import ConfigurationError, DelayQueue, MessagesLostError, NewMessage, PartitionsError
from delayq.broker.keys import Keys
from delayq.broker.staged import read_readers
from delayq.bulk.connection import TargetQueue, calls_of
from delayq.bulk.files.schemas import CLAIMED, columns_of
from delayq.cli.admin.acl import Role, rules
from delayq.queue.repairing.repair_report import FindingKind
from delayq.spark.datasource import source_options
from delayq.spark.datasource.compat import LIMITS_BATCHES, ReadMaxRows
from delayq.spark.datasource.source import DelayqSource, register
from delayq.spark.datasource.staging import message_reader, message_staging
from delayq.spark.datasource.staging.message_reader import MessageStreamReader
from delayq.spark.datasource.staging.settling import settle, settle_rows
from tests.support.waiting import wait_until

KEYS = Keys.of("delayq", "visits")


@pytest.fixture
def queue(redis_url):
    with DelayQueue("visits", url=redis_url, events=True) as queue:
        yield queue


@pytest.fixture
def stream(redis_url, monkeypatch):
    monkeypatch.setattr(message_reader, "IDLE_WAIT", 0)

    def made(**options):
        raw = {"queue": "visits", "url": redis_url, "read": "messages"}
        return MessageStreamReader(
            source_options.message_options(raw | {name: str(one) for name, one in options.items()})
        )

    return made


def rows(reader, start, end):
    """Return the rows of a batch; like Spark, pickle the reader and its partitions first."""
    found = []
    for partition in pickle.loads(pickle.dumps(reader.partitions(start, end))):
        for batch in pickle.loads(pickle.dumps(reader)).read(partition):
            assert batch.schema.equals(message_reader.SCHEMA)
            found += batch.to_pylist()
    return found


def ids(found):
    return [row["id"] for row in found]


def next_batch(reader, start, most=1000):
    end = reader.latestOffset(start, ReadMaxRows(most))
    return end, rows(reader, start, end)


def acked(queue):
    return queue.stats().totals.get("acked", 0)


def fill(queue, count, **options):
    queue.send_many([NewMessage({"n": n}, id=f"m{n:05}", **options) for n in range(count)])


def test_message_is_a_row_with_all_that_it_has(queue, stream):
    queue.send({"a": 1}, id="one", name="visit", headers={"h": "1"}, retries=2, expires="1h")
    reader = stream()
    (row,) = next_batch(reader, reader.initialOffset())[1]
    assert row.pop("token") > 0
    assert (row.pop("expires") - row.pop("due")).total_seconds() == pytest.approx(3600, abs=0.01)
    assert row == {
        "id": "one",
        "name": "visit",
        "payload": b'{"a":1}',
        "headers": [("h", "1")],
        "attempt": 1,
        "retries_left": 2,
    }


def test_same_start_has_the_same_end_and_claims_nothing_twice(queue, stream):
    fill(queue, 20)
    reader = stream()
    start = reader.initialOffset()
    assert reader.initialOffset() == start
    end = reader.latestOffset(start, ReadMaxRows(12))
    assert reader.latestOffset(start, ReadMaxRows(12)) == end
    assert stream().latestOffset(start, ReadMaxRows(20)) == end  # of another process, after a crash
    assert len(rows(stream(), start, end)) == queue.counts().active == 12


def test_batch_has_at_most_as_many_messages_as_its_limit_in_their_order(queue, stream):
    fill(queue, 1203)
    reader = stream()
    position, found = reader.initialOffset(), []
    for size in (1100, 103, 0):
        position, batch = next_batch(reader, position, 1100)
        assert len(batch) == size
        found += ids(batch)
    assert found == [f"m{n:05}" for n in range(1203)]
    assert reader.getDefaultReadLimit() == ReadMaxRows(10_000)


def test_committed_messages_are_acknowledged_once_and_leave_nothing(queue, stream, redis_client):
    fill(queue, 7)
    reader = stream()
    start = reader.initialOffset()
    end, _ = next_batch(reader, start, 5)
    last, _ = next_batch(reader, end, 5)  # which commits the first
    assert (queue.counts().active, redis_client.hlen(KEYS.staged)) == (2, 2)
    reader.commit(end)
    reader.commit(last)
    reader.commit(last)
    counts = queue.counts()
    assert (counts.active, redis_client.hlen(KEYS.messages), redis_client.exists(KEYS.staged)) == (0, 0, 0)
    assert [event.kind for event in queue.events() if event.kind == "acked"] == ["acked"] * 7
    assert acked(queue) == 7


def test_batch_is_equal_after_a_restart_of_redis(start_redis):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    with DelayQueue("visits", url=server.url) as queue:
        fill(queue, 9)
    options = source_options.message_options({"queue": "visits", "url": server.url, "read": "messages"})
    reader = MessageStreamReader(options)
    start = reader.initialOffset()
    end, before = next_batch(reader, start)
    assert len(before) == 9
    server.restart()
    assert rows(MessageStreamReader(options), start, end) == before


def test_last_batch_is_acknowledged_by_the_next_start_and_not_delivered_before(queue, stream, redis_client):
    fill(queue, 4)
    reader = stream()
    reader.prepareForTriggerAvailableNow()
    end, batch = next_batch(reader, reader.initialOffset())
    assert len(batch) == 4  # the query ends here: Spark has committed the batch, and tells nobody
    again = stream()
    again.prepareForTriggerAvailableNow()
    assert queue.counts().active == 4
    with queue.lease(n=10) as leased:
        assert not leased
    assert again.latestOffset(end, ReadMaxRows(10)) == end
    assert (redis_client.hlen(KEYS.messages), acked(queue)) == (0, 4)


def test_available_now_reads_as_many_as_are_due_when_it_starts(queue, stream):
    fill(queue, 6)
    queue.send("later", "1h")
    reader = stream()
    reader.prepareForTriggerAvailableNow()
    fill_late = [NewMessage("x", id=f"x{n}") for n in range(5)]
    queue.send_many(fill_late)
    position, sizes = reader.initialOffset(), []
    for _ in range(4):
        position, batch = next_batch(reader, position, 4)
        sizes.append(len(batch))
    assert sizes == [4, 2, 0, 0]


def test_lease_that_is_over_lets_another_consumer_win(queue, stream, redis_client, caplog):
    fill(queue, 2)
    reader = stream(lease="1s")
    end, batch = next_batch(reader, reader.initialOffset())
    assert len(batch) == 2
    wait_until(lambda: time.time() * 1000 > redis_client.zrange(KEYS.unack, 0, 0, withscores=True)[0][1] + 1, 5)
    with queue.lease(n=2) as leased:
        assert len(leased) == 2
        reader.commit(end)
        assert acked(queue) == 0
        assert "2 messages of queue 'visits' were claimed again" in caplog.text
    assert acked(queue) == 2
    told = [event.kind for event in queue.events() if event.id == "m00000"]
    assert told == ["sent", "promoted", "delivered", "expired", "retried", "delivered", "acked"]


@pytest.mark.parametrize(("how", "kinds"), [("ack", ["acked"]), ("nack", ["nacked"]), ("reject", ["dead"])])
def test_settled_message_is_not_acknowledged_by_the_commit(queue, stream, redis_url, how, kinds):
    target = TargetQueue("visits", redis_url)
    fill(queue, 3)
    reader = stream()
    end, batch = next_batch(reader, reader.initialOffset())
    assert settle_rows(target, how, 0, batch[:1]) == "1"
    assert settle_rows(target, how, 0, batch[:1]) in ("0", "1" if how == "reject" else "0")
    assert settle_rows(target, how, 60_000, [{"id": "none", "token": 1}]) == "0"
    reader.commit(end)
    logged = [event.kind for event in queue.events() if event.id == "m00000"]
    assert [kind for kind in logged if kind in ("acked", "nacked", "dead")] == kinds
    assert acked(queue) == (3 if how == "ack" else 2)


def test_message_without_retries_left_is_dead_after_a_nack(queue, stream, redis_url):
    fill(queue, 1, retries=0)
    reader = stream()
    _, batch = next_batch(reader, reader.initialOffset())
    assert settle_rows(TargetQueue("visits", redis_url), "nack", 0, [batch[0] | {"error": "no such visitor"}]) == "2"
    (dead,) = queue.dead.list().messages
    assert dead.error == "no such visitor"


def test_streams_of_two_checkpoints_share_the_messages(queue, stream):
    fill(queue, 10)
    one, two = stream(), stream()
    found = [ids(next_batch(reader, reader.initialOffset(), 5)[1]) for reader in (one, two)]
    assert sorted(found[0] + found[1]) == [f"m{n:05}" for n in range(10)]


def test_second_query_with_a_checkpoint_ends_the_first(queue, stream):
    fill(queue, 10)
    one, two = stream(), stream()
    end, _ = next_batch(one, one.initialOffset(), 5)
    two.latestOffset(end, ReadMaxRows(2))
    calls = [lambda: one.latestOffset(end, ReadMaxRows(2)), lambda: one.commit(end | {"offset": 2})]
    for call in calls:
        with pytest.raises(ConfigurationError, match="another query consumes queue 'visits' with the same checkpoint"):
            call()
    assert queue.counts().active == 2


def test_claims_that_are_gone_are_reported(queue, stream, redis_client, caplog):
    fill(queue, 3)
    reader = stream()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(5))
    redis_client.delete(KEYS.staged)
    with pytest.raises(MessagesLostError, match=r"Redis has lost 1 claim of a batch of queue 'visits'"):
        rows(reader, start, end)
    assert rows(stream(failOnDataLoss="false"), start, end) == []
    assert "continuing without" in caplog.text
    redis_client.delete(KEYS.readers)  # of a server that has lost more: numbers go on
    queue.send("new")
    assert stream().latestOffset(end, ReadMaxRows(5))["offset"] == 2


def test_replayed_batch_is_leased_anew(queue, stream, redis_client):
    fill(queue, 600)
    reader = stream(lease="1s")
    start = reader.initialOffset()
    end, batch = next_batch(reader, start)
    again = stream(lease="1h")
    assert rows(again, start, end) == batch
    (_, deadline) = redis_client.zrange(KEYS.unack, 0, 0, withscores=True)[0]
    assert deadline > (time.time() + 3000) * 1000
    again.commit(end)
    assert acked(queue) == 600


def test_abandoned_reader_is_forgotten_after_a_week(queue, stream, redis_client):
    fill(queue, 3)
    reader = stream()
    start = reader.initialOffset()
    reader.latestOffset(start, ReadMaxRows(2))
    stream().latestOffset(start | {"reader": "other"}, ReadMaxRows(1))
    assert set(read_all(redis_client)) == {start["reader"], "other"}
    first, last, heard, lease = redis_client.hget(KEYS.readers, start["reader"]).split()
    week_ago = int(heard) - 7 * 86_400_000 - int(lease) - 1
    redis_client.hset(KEYS.readers, start["reader"], b" ".join([first, last, b"%d" % week_ago, lease]))
    stream().latestOffset(start | {"reader": "other"}, ReadMaxRows(1))
    assert set(read_all(redis_client)) == {"other"}
    assert {name.split()[0] for name in redis_client.hkeys(KEYS.staged)} == {b"other"}


def read_all(client):
    return read_readers(calls_of(TargetQueue("visits", ""))).parse(client.hgetall(KEYS.readers))


def test_doctor_tells_of_claims_of_a_query_that_is_gone(queue, stream, redis_client):
    fill(queue, 3)
    reader = stream(lease="1s")
    start = reader.initialOffset()
    reader.latestOffset(start, ReadMaxRows(2))
    found = {finding.kind for finding in queue.examine().findings}
    assert FindingKind.READER not in found
    wait_until(lambda: FindingKind.READER in {finding.kind for finding in queue.examine().findings}, 10)
    (told,) = [finding for finding in queue.examine().findings if finding.kind is FindingKind.READER]
    assert told.text.startswith(f"{start['reader']} was last heard of at 20")
    assert not queue.examine().healthy
    queue.repair()
    assert FindingKind.READER not in {finding.kind for finding in queue.examine().findings}
    assert not redis_client.exists(KEYS.staged, KEYS.readers)
    assert len(next_batch(stream(), stream().initialOffset())[1]) == 3


def test_progress_tells_what_waits(queue, stream):
    fill(queue, 5)
    reader = stream()
    assert reader.reportLatestOffset() is None
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(2))
    told = reader.reportLatestOffset()
    assert (told["waiting"], told["offset"]) == (3, end["offset"])
    assert 0 < told["oldest_due"] <= time.time() * 1000 + 1


def test_paused_queue_gives_no_messages(queue, stream):
    fill(queue, 2)
    queue.pause()
    reader = stream()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(5)) == start
    queue.resume()
    assert len(next_batch(reader, start)[1]) == 2


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (
            {"queue": "other", "reader": "r", "offset": 3},
            "the checkpoint belongs to queue 'other', not to",
        ),
        (
            {"queue": "visits", "offset": 3, "entry": "x"},
            "the checkpoint belongs to a stream of events, not to",
        ),
    ],
)
def test_checkpoint_of_another_stream_is_refused(queue, stream, position, text):
    queue.send("x")
    with pytest.raises(ConfigurationError, match=text):
        stream().latestOffset(position, ReadMaxRows(1))
    with pytest.raises(ConfigurationError, match=text):
        stream().partitions(position, position)


def test_queue_that_does_not_exist_or_has_partitions_is_refused(queue, stream, redis_url):
    queue.send("x")
    with pytest.raises(ConfigurationError, match=r"there is no queue 'visit' .*did you mean 'visits'"):
        stream(queue="visit").initialOffset()
    with DelayQueue("spread", url=redis_url, partitions=4) as spread:
        spread.send("x")
    with pytest.raises(PartitionsError, match=r"queue spread has 4 partitions, spread#0 … spread#3: consume each"):
        stream(queue="spread").initialOffset()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"url": "memory://x"}, "memory:// works in one process only"),
        ({"maxMessagesPerBatch": "0"}, "maxMessagesPerBatch must be a whole number from 1"),
        ({"lease": "1ms"}, "lease"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss must be true or false"),
        ({"startingOffset": "5"}, "unknown option 'startingOffset'"),
        ({"maxMessagePerBatch": "5"}, "did you mean 'maxMessagesPerBatch'"),
    ],
)
def test_bad_option_is_refused(stream, options, text):
    with pytest.raises(ConfigurationError, match=text):
        stream(**options)


def test_messages_are_for_streams_only(redis_url):
    source = DelayqSource({"queue": "visits", "url": redis_url, "read": "messages"})
    with pytest.raises(ConfigurationError, match=r"use spark\.readStream"):
        source.reader(StructType([StructField(name, StringType()) for name in columns_of(CLAIMED)]))


def test_message_that_may_not_start_is_in_no_batch(queue, stream, redis_client):
    closed = "20:00-21:00" if datetime.now(UTC).hour < 12 else "02:00-03:00"
    fill(queue, 3)
    queue.send("x", id="expired", expires=0.001)
    queue.send("x", id="dropped", expires=0.001, missed="drop")
    queue.send("x", id="held", expires="1h")
    redis_client.hset(KEYS.attributes, "m00001", f"hours={closed}")
    time.sleep(0.01)
    reader = stream()
    start = reader.initialOffset()
    end, batch = next_batch(reader, start)
    assert sorted(ids(batch)) == ["held", "m00000", "m00002"]
    reader = stream()
    assert rows(reader, start, end) == batch
    counts = queue.counts()
    assert (counts.active, counts.dead, counts.backoff) == (3, 1, 1)
    reader.commit(end)
    assert (acked(queue), redis_client.exists(KEYS.staged)) == (3, 0)
    assert (queue.stats().totals["missed"], queue.stats().totals["discarded"]) == (2, 1)


def test_message_that_may_not_start_is_in_no_batch_after_a_crash(queue, stream, monkeypatch):
    queue.send("x", id="expired", expires=0.001)
    queue.send("x", id="held", expires="1h")
    time.sleep(0.01)
    reader = stream()
    start = reader.initialOffset()
    with monkeypatch.context() as patch:
        patch.setattr(message_staging, "withhold_unready", lambda *_, **__: iter(()))
        assert len(next_batch(reader, start)[1]) == 2  # the process ends before it has looked at them
    assert ids(next_batch(stream(), start)[1]) == ["held"]
    assert ids(next_batch(stream(), start)[1]) == ["held"]
    assert queue.counts().dead == 1


def test_query_goes_on_after_redis_has_lost_its_reader(queue, stream, redis_client):
    fill(queue, 3)
    reader = stream()
    end, _ = next_batch(reader, reader.initialOffset(), 2)
    redis_client.delete(KEYS.readers)
    reader.commit(end)
    last, batch = next_batch(reader, end)
    assert (last["offset"], ids(batch)) == (end["offset"] + 1, ["m00002"])


class Plan(NamedTuple):
    """What a queue holds, and how much of it each batch takes."""

    messages: list[tuple[int, int | None, str]]
    """Minutes until each is due, its priority and its name."""
    released: int
    """Messages that were claimed before, and returned."""
    running: int | None
    """How many of one name may run."""
    paused: bool
    sizes: list[int]


PLANS = st.builds(
    Plan,
    st.lists(
        st.tuples(st.integers(-5, 3), st.sampled_from([None, -2, 1, 5]), st.sampled_from(["", "mail", "report"])),
        max_size=12,
    ),
    st.integers(1, 3),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([False, False, True]),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=PLANS)
@example(plan=Plan([(-1, 5, "mail"), (-2, None, ""), (-1, None, "mail")], 1, 1, False, [2, 2]))
def test_batches_have_the_order_of_leases(redis_url, redis_client, stream, plan):
    """What is claimed for batches of a queue is what leases claim of a copy of it, in their order."""
    redis_client.flushall()
    now = datetime.now(UTC)
    expected = []
    with filled(redis_url, "copy", plan, now) as queue:
        for size in plan.sizes:
            with queue.lease(n=size) as leased:  # a batch is committed before the next one is claimed
                expected.append([one.id for one in leased])
    with filled(redis_url, "visits", plan, now):
        reader = stream()
        position, found = reader.initialOffset(), []
        for size in plan.sizes:
            position, batch = next_batch(reader, position, size)
            found.append(ids(batch))
    assert found == expected


@contextmanager
def filled(url, name, plan, now):
    """Open a queue that has what a plan says."""
    with DelayQueue(name, url=url) as queue:
        queue.send_many(
            NewMessage("x", at=now + timedelta(minutes=due), id=f"m{n}", priority=priority, name=kind or None)
            for n, (due, priority, kind) in enumerate(plan.messages)
        )
        with queue.lease(n=plan.released) as leased:
            for message in leased:
                message.release()
        if plan.running:
            queue.limits.set("mail", running=plan.running)
        if plan.paused:
            queue.pause()
        yield queue


def test_reading_needs_a_spark_that_limits_batches(redis_url, monkeypatch):
    monkeypatch.setattr(message_reader, "LIMITS_BATCHES", False)
    source = DelayqSource({"queue": "visits", "url": redis_url, "read": "messages"})
    with pytest.raises(ConfigurationError, match=r"read=messages needs PySpark 4\.2 or later"):
        source.streamReader(StructType())


@pytest.mark.skipif(not LIMITS_BATCHES, reason="needs batches with a limit")
def test_query_consumes_settles_and_commits(spark, queue, redis_url, redis_client, tmp_path):
    register(spark)
    fill(queue, 250)
    options = {"queue": "visits", "url": redis_url, "read": "messages", "maxMessagesPerBatch": "100"}
    batches, settled = [], []

    def handle(batch, number):
        found = [row.id for row in batch.selectExpr("id", "CAST(payload AS STRING)").collect()]
        batches.append(found)
        if number == 1:
            bad = batch.where(f"id = '{found[0]}'").selectExpr("id", "token", "'no score' AS error")
            settled.extend(settle(bad, "visits", how="reject", url=redis_url) for _ in range(2))

    writer = spark.readStream.format("delayq").options(**options).load().writeStream.foreachBatch(handle)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert [len(found) for found in batches] == [100, 100, 50]
    assert sorted(id for found in batches for id in found) == [f"m{n:05}" for n in range(250)]
    assert settled == [(1, 0), (0, 1)]
    (dead,) = queue.dead.list().messages
    assert (dead.id, acked(queue), redis_client.hlen(KEYS.messages)) == (batches[1][0], 249, 0)
    assert not redis_client.exists(KEYS.staged)
    told = [json.loads(progress.json)["sources"][0]["latestOffset"] for progress in query.recentProgress]
    assert [one["waiting"] for one in told][:3] == [150, 50, 0]


@pytest.mark.skipif(not LIMITS_BATCHES, reason="needs batches with a limit")
def test_settle_refuses_what_it_cannot_settle(spark):
    with pytest.raises(ConfigurationError, match="how must be ack, nack or reject, not 'forget'"):
        settle(spark.createDataFrame([("a", 1)], "id STRING, token BIGINT"), "visits", how="forget")
    for columns in ("id STRING, n BIGINT", "id STRING, token STRING", "id STRING, token BIGINT, error INT"):
        with pytest.raises(ConfigurationError, match="settle needs the columns id and token of the stream"):
            settle(spark.createDataFrame([], columns), "visits")


def test_rights_of_a_consumer_are_enough(start_redis):
    server = start_redis()
    with redis.Redis.from_url(server.url) as admin, DelayQueue("visits", url=server.url) as queue:
        fill(queue, 3)
        queue.preload()
        admin.execute_command("ACL", "SETUSER", "spark", "on", ">secret", *rules([Role.CONSUMER]))
        url = server.url.replace("unix://", "unix://spark:secret@")
        options = source_options.message_options({"queue": "visits", "url": url, "read": "messages"})
        reader = MessageStreamReader(options)
        reader.prepareForTriggerAvailableNow()
        end, batch = next_batch(reader, reader.initialOffset())
        again = MessageStreamReader(options)
        assert rows(again, end | {"offset": 0}, end) == batch
        assert settle_rows(options.target, "nack", 60_000, batch[:1]) == "1"
        assert again.latestOffset(end, ReadMaxRows(5)) == end
        assert again.reportLatestOffset()["offset"] == end["offset"]
        again.commit(end)
        assert acked(queue) == 2
