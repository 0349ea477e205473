"""Reading the event log, as a table and as a stream."""

import json
import pickle
import re
from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import InputPartition

from delayq import ConfigurationError, DelayQueue, EventsLostError, MessageEvent, NewMessage, ServerError
from delayq.archive import log_reader
from delayq.archive.archive_files import FORMER_NAMES
from delayq.archive.log_follower import LogFollower
from delayq.archive.log_gaps import Gap, gaps_between, told
from delayq.broker.event_log import EventEntry
from delayq.broker.keys import Keys
from delayq.spark.datasource import event_reader
from delayq.spark.datasource.compat import (
    LIMITS_BATCHES,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from delayq.spark.datasource.event_reader import EventsReader, EventStreamReader
from delayq.spark.datasource.source import register
from delayq.spark.datasource.source_options import event_options

KEYS = Keys.of("delayq", "letters")
MIN_TIME_OFFSET = 10**15


@pytest.fixture
def queue(redis_url):
    with DelayQueue("letters", url=redis_url, events=True, events_max_len=100_000) as queue:
        queue.send_delay_msg(1, "1h", id="first")
        yield queue


@pytest.fixture
def time_ids(queue, redis_client):
    """Number the log by time, as before Redis 7; its entries so far are deleted."""
    redis_client.delete(KEYS.events)
    redis_client.hset(KEYS.meta, "events", "* 100000")


@pytest.fixture
def reader(redis_url):
    return made_by(EventsReader, redis_url, streaming=False)


@pytest.fixture
def stream(redis_url):
    return made_by(EventStreamReader, redis_url, streaming=True)


def made_by(kind, url, *, streaming):
    def made(**options):
        raw = {"queue": "letters", "url": url, "read": "events"}
        raw |= {name: str(value) for name, value in options.items()}
        return kind(event_options(raw, streaming=streaming))

    return made


def rows(reader, partitions):
    """Return the rows of some partitions; like Spark, pickle the reader first."""
    found = []
    for partition in pickle.loads(pickle.dumps(partitions)):
        for batch in pickle.loads(pickle.dumps(reader)).read(partition):
            assert batch.schema.equals(log_reader.SCHEMA)
            found += batch.to_pylist()
    return found


def table(reader):
    return rows(reader, reader.partitions())


def offsets(rows):
    return sorted(row["log_offset"] for row in rows)


def send(queue, entries, *, each=1):
    """Add entries to the log, each with this number of messages."""
    for _ in range(entries):
        queue.send_many([NewMessage(1, delay="1h") for _ in range(each)])


def log_every_kind(queue):
    """Make the queue log every kind of event."""
    queue.send_many([NewMessage(n, delay=n // 7 * 3600, id=f"m{n}", retries=n % 2) for n in range(14)])
    queue.send_delay_msg("new", "1h", id="m9", replace=True)
    held = queue.lease(n=7).messages
    held[0].ack()
    held[1].nack(error="no route", delay="1h")
    held[2].nack(error="boom")
    held[3].reject("no such address")
    held[4].release()
    queue.cancel("m10")
    queue.reschedule("m11", "2h")
    queue.dead.redrive("m3")
    queue.purge()


# Content


def test_table_has_the_events_of_the_queue(queue, reader):
    log_every_kind(queue)
    logged = list(queue.events())
    assert len({event.kind for event in logged}) > 10
    left_out = {"name", "partition"}  # of a paused name, and of several logs
    names = [name for name in MessageEvent.__slots__ if name not in left_out]
    today = {old: name for name, old in FORMER_NAMES.items()}
    assert [tuple(row[today.get(name, name)] for name in names) for row in table(reader(partitions=3))] == [
        tuple(getattr(event, name) for name in names) for event in logged
    ]


def test_offset_and_index_identify_a_row(queue, reader):
    send(queue, 3, each=5)
    found = table(reader())
    assert [(row["log_offset"], row["entry_index"]) for row in found] == [
        (1, 0),
        *((o, i) for o in (2, 3, 4) for i in range(5)),
    ]


def test_purge_event_has_no_id(queue, reader):
    queue.purge()
    *_, row = table(reader())
    assert (row["kind"], row["id"], row["entry_index"]) == ("purged", None, 0)


def test_columns_of_wrong_length_are_padded_or_cut():
    columns = {"ids": b"a b c", "dues": b"1000 2000", "tokens": b"1 2 3 4", "reasons": b"", "errors": b"x\n\nz"}
    batch = log_reader.batch_of([EventEntry(7, "dead", 5000, columns)])
    due = [datetime.fromtimestamp(1, UTC), datetime.fromtimestamp(2, UTC), None]
    assert batch.column("due").to_pylist() == due
    assert batch.column("token").to_pylist() == [1, 2, 3]
    assert batch.column("reason").to_pylist() == [None, None, None]
    assert batch.column("error").to_pylist() == ["x", None, "z"]


@pytest.mark.parametrize("page", [1, 7, 1000])
def test_rows_are_read_in_batches(queue, reader, monkeypatch, page):
    monkeypatch.setattr(log_reader, "PAGE", page)
    monkeypatch.setattr(log_reader, "BATCH_ROWS", 100)
    send(queue, 140)
    send(queue, 20, each=30)
    send(queue, 1, each=200)
    log = reader(partitions=1)
    (whole,) = log.partitions()
    sizes = [batch.num_rows for batch in log.read(whole)]
    # A batch ends with the entry that reaches a hundred messages.
    assert sizes == [100, 41 + 60, 120, 120, 120, 120, 60 + 200]


# Ranges


def test_range_includes_both_ends(queue, reader):
    send(queue, 9)
    assert offsets(table(reader())) == list(range(1, 11))
    assert offsets(table(reader(startingOffset=4))) == list(range(4, 11))
    assert offsets(table(reader(startingOffset=4, endingOffset=6))) == [4, 5, 6]
    assert offsets(table(reader(startingOffset="earliest", endingOffset=2))) == [1, 2]
    assert table(reader(startingOffset="latest")) == []
    assert table(reader(startingOffset=11)) == []
    assert table(reader(startingOffset=4, endingOffset=3)) == []


@pytest.mark.parametrize("count", [1, 2, 3, 10, 11])
@pytest.mark.parametrize("partitions", [1, 2, 3, 20])
def test_partitions_have_equal_sizes(queue, reader, count, partitions):
    send(queue, count - 1)
    ranges = reader(partitions=partitions).partitions()
    assert [offset for one in ranges for offset in range(one.low, one.high + 1)] == list(range(1, count + 1))
    sizes = [one.high - one.low for one in ranges]
    assert len(sizes) == min(partitions, count)
    assert max(sizes) - min(sizes) <= 1


def test_trimmed_log_is_read_from_its_first_entry(queue, reader, redis_client):
    send(queue, 9)
    redis_client.xtrim(KEYS.events, minid="0-5", approximate=False)
    assert offsets(table(reader())) == list(range(5, 11))
    redis_client.xtrim(KEYS.events, maxlen=0, approximate=False)
    assert table(reader()) == []


def test_entries_added_after_planning_are_not_read(queue, reader):
    log = reader()
    planned = log.partitions()
    send(queue, 5)
    assert offsets(rows(log, planned)) == [1]


@pytest.mark.usefixtures("time_ids")
@pytest.mark.parametrize("partitions", [1, 4])
def test_log_numbered_by_time_is_read_alike(queue, reader, partitions):
    send(queue, 20, each=3)
    found = table(reader(partitions=partitions))
    assert [(row["log_offset"], row["id"]) for row in found] == [(one.offset, one.id) for one in queue.events()]
    assert len(found) == 60
    middle = found[30]["log_offset"]
    assert offsets(table(reader(startingOffset=middle))) == [row["log_offset"] for row in found[30:]]


# Streams


def follow(stream, start=None, limit=None, most=1000):
    """Return the offsets of the batches that Spark would read from a stream, until there is nothing new."""
    limit = limit or stream.getDefaultReadLimit()
    start = start or stream.initialOffset()
    batches = []
    while len(batches) < most:
        end = json.loads(json.dumps(stream.latestOffset(start, limit)))
        if json.dumps(end) == json.dumps(start):  # as Spark compares them
            break
        batches.append((start, end))
        start = end
    return batches


def test_stream_is_read_in_batches_of_max_entries(queue, stream):
    send(queue, 24)
    log = stream(maxEntriesPerBatch=10)
    batches = follow(log)
    assert [end["offset"] for _, end in batches] == [10, 20, 25]
    found = [offsets(rows(log, log.partitions(*batch))) for batch in batches]
    assert found == [list(range(1, 11)), list(range(11, 21)), list(range(21, 26))]


def test_stream_continues_after_its_checkpoint(queue, stream):
    send(queue, 4)
    (batch,) = follow(stream())
    send(queue, 3)
    log = stream()
    (next_one,) = follow(log, start=batch[1])
    assert offsets(rows(log, log.partitions(*next_one))) == [6, 7, 8]


def test_batch_without_a_limit_has_all(queue, stream):
    send(queue, 24)
    log = stream(maxEntriesPerBatch=10, maxEventsPerBatch=1)
    assert [end["offset"] for _, end in follow(log, limit=object())] == [25]


@pytest.mark.parametrize("max_entries", [10_000, 4])
def test_stream_is_read_in_batches_of_max_events(queue, stream, max_entries):
    """An entry is never divided, so one with more events is a batch of its own."""
    for each in (3, 3, 1, 9, 20, 1, 1, 1, 1, 1):
        send(queue, 1, each=each)
    log = stream(maxEventsPerBatch=7, maxEntriesPerBatch=max_entries)
    batches = follow(log)
    found = [len(rows(log, log.partitions(*batch))) for batch in batches]
    assert found == ([1 + 3 + 3, 1, 9, 20, 5] if max_entries > 4 else [1 + 3 + 3, 1, 9, 20, 4, 1])
    assert batches[-1][1]["offset"] == 11


def test_batches_bounded_by_events_go_beyond_deleted_entries(queue, stream, redis_client):
    send(queue, 9, each=2)
    redis_client.xdel(KEYS.events, *(f"0-{offset}" for offset in (5, 6, 9, 10)))
    log = stream(maxEventsPerBatch=4, failOnDataLoss="false")
    assert [end["offset"] for _, end in follow(log)] == [2, 4, 10], (
        "what is missing at the end is skipped with the last entry"
    )


@pytest.mark.usefixtures("time_ids")
def test_log_numbered_by_time_is_followed_in_batches_of_max_events(queue, stream):
    send(queue, 3, each=4)
    known = sorted({event.offset for event in queue.events()})
    assert [end["offset"] for _, end in follow(stream(maxEventsPerBatch=8))] == [known[1], known[2]]


def test_stream_of_a_spark_without_limits_is_checked_as_its_batches_are_divided(
    queue, stream, redis_client, monkeypatch
):
    """As PySpark 4.0 and 4.1 call it: where a batch starts is not told before."""
    monkeypatch.setattr(event_reader, "LIMITS_BATCHES", False)
    send(queue, 4)
    log = stream(maxEntriesPerBatch=2)
    start, end = log.initialOffset(), log.latestOffset()
    assert offsets(rows(log, log.partitions(start, end))) == [1, 2, 3, 4, 5]
    assert log.latestOffset() == end
    send(queue, 4)
    redis_client.xtrim(KEYS.events, minid="0-8", approximate=False)
    with pytest.raises(EventsLostError, match="2 entries, offsets 6 to 7"):
        log.partitions(end, log.latestOffset())
    log = stream(failOnDataLoss="false")
    assert offsets(rows(log, log.partitions(end, log.latestOffset()))) == [8, 9]
    redis_client.delete(KEYS.events)
    send(queue, 2)
    with pytest.raises(EventsLostError, match="was deleted or rolled back"):
        stream(failOnRollback="true").partitions(end, log.latestOffset())
    assert offsets(rows(log, log.partitions(end, log.latestOffset()))) == [1, 2]


@pytest.mark.parametrize(("start", "behind"), [("earliest", 0), ("latest", 5), ("3", 2), ("1", 0), ("0", 0), ("6", 5)])
def test_starting_offset_decides_where_a_stream_starts(queue, stream, start, behind):
    send(queue, 4)
    initial = stream(startingOffset=start).initialOffset()
    assert (initial["queue"], initial["offset"], "entry" in initial) == ("letters", behind, behind > 0)


def test_initial_offset_does_not_change(queue, stream):
    log = stream(startingOffset="latest")
    first = log.initialOffset()
    send(queue, 3)
    assert log.initialOffset() == first


def test_stream_starts_at_the_first_entry_of_a_trimmed_log(queue, stream, redis_client):
    send(queue, 9)
    redis_client.xtrim(KEYS.events, minid="0-5", approximate=False)
    assert [(start["offset"], end["offset"]) for start, end in follow(stream())] == [(4, 10)]
    redis_client.xtrim(KEYS.events, maxlen=0, approximate=False)
    assert follow(stream()) == []
    send(queue, 1)
    assert [(start["offset"], end["offset"]) for start, end in follow(stream())] == [(10, 11)]


def test_available_now_ignores_entries_added_after_its_start(queue, stream):
    send(queue, 24)
    log = stream(maxEntriesPerBatch=10)
    assert isinstance(log, SupportsTriggerAvailableNow)
    log.prepareForTriggerAvailableNow()
    send(queue, 10)
    assert [end["offset"] for _, end in follow(log)] == [10, 20, 25]
    assert log.reportLatestOffset()["offset"] == 35


def test_empty_log_can_be_followed(queue, stream, reader, redis_client):
    redis_client.delete(KEYS.events)
    assert table(reader()) == []
    log = stream()
    assert follow(log) == []
    send(queue, 2)
    assert [end["offset"] for _, end in follow(log)] == [2]


@pytest.mark.usefixtures("time_ids")
def test_log_numbered_by_time_is_followed_in_batches_of_max_entries(queue, stream):
    send(queue, 230)
    known = sorted({event.offset for event in queue.events()})
    log = stream(maxEntriesPerBatch=100)
    batches = follow(log)
    assert [end["offset"] for _, end in batches] == [known[99], known[199], known[229]]
    assert [offset for batch in batches for offset in offsets(rows(log, log.partitions(*batch)))] == known
    send(queue, 3)
    (batch,) = follow(log, start=batches[-1][1])
    assert len(rows(log, log.partitions(*batch))) == 3


def test_batch_limit_is_read_from_the_options(stream):
    assert stream(maxEntriesPerBatch=77).getDefaultReadLimit() == ReadMaxRows(77)


def test_empty_range_has_no_partitions(queue, reader, stream):
    offset = stream().initialOffset()
    assert stream().partitions(offset, offset) == []
    assert list(reader().read(InputPartition(None))) == []  # as Spark goes on then with a table


# Data loss


def test_entries_trimmed_before_planning_are_an_error(queue, stream, reader, redis_client):
    send(queue, 9)
    log = stream(maxEntriesPerBatch=2)
    ((_, at_two), *_) = follow(log)
    redis_client.xtrim(KEYS.events, minid="0-7", approximate=False)
    error = (
        "the event log of queue 'letters' has lost 4 entries, offsets 3 to 6: deleted before being read;"
        " continue without them with --allow-loss (in code: failOnDataLoss=false),"
        " and keep more with a larger events_max_len"
    )
    with pytest.raises(EventsLostError, match=f"^{re.escape(error)}$"):
        follow(log, start=at_two)
    with pytest.raises(EventsLostError, match="has lost 1 entry, offset 6: deleted"):
        table(reader(startingOffset=6))


def test_entries_trimmed_before_planning_can_be_skipped(queue, stream, reader, redis_client, caplog):
    send(queue, 9)
    log = stream(maxEntriesPerBatch=2, failOnDataLoss="false")
    ((_, at_two), *_) = follow(log)
    redis_client.xtrim(KEYS.events, minid="0-7", approximate=False)
    batches = follow(log, start=at_two)
    assert [end["offset"] for _, end in batches] == [8, 10]
    assert [offset for batch in batches for offset in offsets(rows(log, log.partitions(*batch)))] == [7, 8, 9, 10]
    assert "the event log of queue 'letters' has lost 4 entries, offsets 3 to 6" in caplog.text
    assert offsets(table(reader(startingOffset=2, failOnDataLoss="false"))) == [7, 8, 9, 10]


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        ([3], "1 entry, offset 3"),
        ([1, 2, 9, 10], "4 entries, offsets 1 to 2, 9 to 10"),
        ([4, 6], "2 entries, offsets 4, 6"),
        (range(1, 11), "10 entries, offsets 1 to 10"),
    ],
)
def test_entries_deleted_before_reading_are_an_error_of_all_tasks(queue, reader, redis_client, gone, told):
    send(queue, 9)
    log = reader(partitions=3)
    planned = log.partitions()
    redis_client.xdel(KEYS.events, *(f"0-{offset}" for offset in gone))
    failed = 0
    for one in planned:
        if any(one.low <= offset <= one.high for offset in gone):
            with pytest.raises(EventsLostError, match=f"has lost {told}: deleted before"):
                rows(log, [one])
            failed += 1
    assert failed


def test_entries_trimmed_while_a_batch_is_read_are_told_with_those_after_it(queue, stream, redis_client):
    send(queue, 19)
    log = stream(maxEntriesPerBatch=4, partitions=2)
    ((start, end), *_) = follow(log)
    planned = log.partitions(start, end)
    redis_client.xtrim(KEYS.events, minid="0-16", approximate=False)
    with pytest.raises(EventsLostError, match="has lost 15 entries, offsets 1 to 15: deleted before"):
        rows(log, planned)


def test_list_of_lost_ranges_is_short():
    gaps = gaps_between(range(2, 40, 2), 1, 40)
    assert gaps[:2] == [Gap(1, 1), Gap(3, 3)]
    assert told(gaps) == "21 entries, offsets 1, 3, 5, 7, 9 and 15 more ranges"
    assert gaps_between([], 4, 9) == [Gap(4, 9)]
    assert gaps_between(range(4, 10), 4, 9) == []


def test_entries_deleted_before_reading_can_be_skipped(queue, reader, redis_client, caplog):
    send(queue, 9)
    log = reader(partitions=2, failOnDataLoss="false")
    planned = log.partitions()
    redis_client.xdel(KEYS.events, "0-1", "0-7")
    assert offsets(rows(log, planned)) == [2, 3, 4, 5, 6, 8, 9, 10]
    assert caplog.text.count("the event log of queue 'letters' has lost 1 entry, offset") == 2


def test_log_trimmed_to_nothing_is_an_error(queue, stream, redis_client, caplog):
    send(queue, 9)
    log = stream(maxEntriesPerBatch=2)
    ((_, at_two), *_) = follow(log)
    redis_client.xtrim(KEYS.events, maxlen=0, approximate=False)
    with pytest.raises(EventsLostError, match=r"has lost 8 entries, offsets 3 to 10: deleted"):
        follow(log, start=at_two)
    assert follow(stream(failOnDataLoss="false"), start=at_two) == []


def test_recreated_log_is_an_error(queue, stream, redis_client, caplog):
    send(queue, 9)
    (batch,) = follow(stream())
    redis_client.delete(KEYS.events)
    send(queue, 3)
    error = "letters' was deleted or rolled back: it ends at offset 3, but the query has read up to 10"
    with pytest.raises(EventsLostError, match=f"{error}; go on in it with failOnRollback=false"):
        follow(stream(), start=batch[1])
    log = stream(failOnDataLoss="false", maxEntriesPerBatch=2)
    batches = follow(log, start=batch[1])
    assert error in caplog.text
    assert [end["offset"] for _, end in batches] == [2, 3]
    assert [offset for one in batches for offset in offsets(rows(log, log.partitions(*one)))] == [1, 2, 3]
    with pytest.raises(EventsLostError, match="was deleted or rolled back"):
        follow(stream(failOnDataLoss="false", failOnRollback="true"), start=batch[1])


def roll_back(redis_client, to):
    """Let the log end at an offset, as after a crash that has undone what followed."""
    entries = redis_client.xrange(KEYS.events, max=f"0-{to}")
    redis_client.delete(KEYS.events)
    for id, fields in entries:
        redis_client.xadd(KEYS.events, fields, id=id)


def test_offsets_that_are_used_again_after_a_crash_are_an_error(queue, stream, redis_client):
    send(queue, 9)
    (batch,) = follow(stream())
    roll_back(redis_client, 6)
    send(queue, 9)
    with pytest.raises(EventsLostError, match="letters' was rolled back: offset 10 has another entry than was read"):
        follow(stream(), start=batch[1])


@pytest.mark.parametrize("new", [2, 4, 9])
@pytest.mark.usefixtures("queue")
def test_rolled_back_log_is_read_again_from_what_is_common(stream, redis_client, caplog, new):
    for number in range(1, 11):
        redis_client.xadd(KEYS.events, {"kind": "sent", "at": 9000 * number, "ids": f"m{number}"}, id=f"0-{number + 1}")
    (batch,) = follow(stream())
    assert batch[1]["offset"] == 11
    roll_back(redis_client, 6)
    for number in range(new):
        redis_client.xadd(KEYS.events, {"kind": "sent", "at": 200_000 + number, "ids": "new"}, id=f"0-{7 + number}")
    log = stream(failOnRollback="false", maxEntriesPerBatch=100)
    (again,) = follow(log, start=batch[1])
    assert "was rolled back" in caplog.text or "was deleted or rolled back" in caplog.text
    assert offsets(rows(log, log.partitions(*again))) == list(range(1, 7 + new))[again[1].get("after", 11) :]
    assert again[1].get("after", 11) <= 6


def test_entry_that_was_deleted_since_is_no_roll_back(queue, stream, redis_client):
    send(queue, 9)
    (batch,) = follow(stream())
    send(queue, 1)
    redis_client.xdel(KEYS.events, "0-10")
    (following,) = follow(stream(), start=batch[1])
    assert following[1]["offset"] == 11


def test_log_rolled_back_between_check_and_batch_is_noticed(queue, stream, redis_client, monkeypatch):
    send(queue, 9)
    (batch,) = follow(stream())
    send(queue, 5)
    log = stream()
    known, checks = LogFollower._is_other, []

    def checked(self, start):
        checks.append(known(self, start))
        if len(checks) == 1:
            roll_back(redis_client, 6)
            send(queue, 9)
        return checks[-1]

    monkeypatch.setattr(LogFollower, "_is_other", checked)
    with pytest.raises(EventsLostError, match="was rolled back: offset 10 has"):
        follow(log, start=batch[1])
    assert checks == [False, True, True]


def at_times(redis_client, *seconds):
    """Write entries at these seconds of the epoch."""
    for at in seconds:
        redis_client.xadd(KEYS.events, {"kind": "sent", "at": at * 1000, "ids": f"m{at}"}, id=f"{at * 10**12}-0")


@pytest.mark.usefixtures("time_ids")
def test_possible_loss_in_a_log_numbered_by_time_is_an_error(stream, redis_client, caplog):
    at_times(redis_client, *range(1, 10))
    log = stream(maxEntriesPerBatch=3)
    ((_, at_three), *_) = follow(log)
    redis_client.xtrim(KEYS.events, minid=f"{4 * 10**12}-0", approximate=False)
    with pytest.raises(EventsLostError, match=r"^entries of the event log .* may have been deleted before being read"):
        follow(log, start=at_three)
    log = stream(failOnDataLoss="false")
    assert len([row for batch in follow(log, start=at_three) for row in rows(log, log.partitions(*batch))]) == 6
    assert "may have been deleted" in caplog.text


@pytest.mark.usefixtures("time_ids")
def test_log_numbered_by_time_lost_nothing_if_the_last_read_entry_exists(stream, redis_client):
    at_times(redis_client, *range(1, 10))
    log = stream(maxEntriesPerBatch=3)
    ((_, at_three), *_) = follow(log)
    redis_client.xtrim(KEYS.events, minid=f"{3 * 10**12}-0", approximate=False)
    assert len([row for batch in follow(log, start=at_three) for row in rows(log, log.partitions(*batch))]) == 6


# Errors


def test_queue_without_a_log_is_an_error_that_names_the_option(redis_url, reader, stream):
    with DelayQueue("letters", url=redis_url) as queue:
        queue.send_delay_msg(1)
    error = r"queue 'letters' has no event log: switch it on with DelayQueue\('letters', events=True\)"
    with pytest.raises(ConfigurationError, match=error):
        reader().partitions()
    with pytest.raises(ConfigurationError, match=error):
        stream().initialOffset()


def test_disabled_log_can_still_be_read(queue, redis_url, reader, stream):
    with DelayQueue("letters", url=redis_url, events=False) as off:
        off.send_delay_msg(1)
    assert len(table(reader())) == 1
    assert len(follow(stream())) == 1


def test_missing_queue_is_an_error(reader, stream):
    for plan in (reader().partitions, stream().initialOffset):
        with pytest.raises(ConfigurationError, match="there is no queue 'letters' under the prefix 'delayq'"):
            plan()


def test_offset_beyond_the_log_is_an_error(queue, reader, stream):
    with pytest.raises(ConfigurationError, match="endingOffset 7 is beyond the event log, whose last offset is 1"):
        reader(endingOffset=7).partitions()
    with pytest.raises(ConfigurationError, match="startingOffset 7 is beyond the event log, whose last offset is 1"):
        stream(startingOffset=7).initialOffset()


def test_key_of_another_type_is_an_error(queue, redis_client, reader, stream):
    redis_client.set(KEYS.events, "a text")
    for plan in (reader().partitions, stream().initialOffset):
        with pytest.raises(ServerError, match="WRONGTYPE"):
            plan()


def test_checkpoint_of_another_queue_is_refused(queue, stream):
    with pytest.raises(ConfigurationError, match="the checkpoint belongs to queue 'mails', not to 'letters'"):
        follow(stream(), start={"queue": "mails", "offset": 0})


# In Spark


@pytest.fixture
def log_of(spark, redis_url):
    register(spark)

    def load(**options):
        return spark.read.format("delayq").options(url=redis_url, read="events", **options).load("letters")

    return load


@pytest.fixture
def streamed(spark, redis_url, tmp_path):
    """Return a function that streams all events into a folder, and returns the batches as (rows, end)."""
    register(spark)

    def run(**options):
        stream = spark.readStream.format("delayq").options(url=redis_url, read="events", queue="letters", **options)
        writer = stream.load().writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        query.awaitTermination()
        progress = [one for one in query.recentProgress if one.numInputRows]
        return [(one.numInputRows, int(re.search(r"offset\W+(\d+)", one.sources[0].endOffset)[1])) for one in progress]

    run.out = str(tmp_path / "out")
    return run


@pytest.mark.spark
def test_spark_reads_the_log_as_a_table(queue, log_of):
    log_every_kind(queue)
    logged = list(queue.events())
    found = log_of().orderBy("log_offset", "entry_index").collect()
    assert [(row.log_offset, row["entry_index"], row.kind, row.id, row.error) for row in found] == [
        (one.offset, one.index, one.kind, one.id, one.error) for one in logged
    ]
    late = log_of().where("kind = 'delivered'").selectExpr("min(unix_millis(event_at) - unix_millis(due))").head()[0]
    assert 0 <= late < 60_000


@pytest.mark.spark
def test_columns_match_the_schema(queue, log_of):
    from pyspark.sql.pandas.types import to_arrow_schema

    assert to_arrow_schema(log_of().schema, timezone="UTC").equals(log_reader.SCHEMA)


@pytest.mark.spark
def test_session_time_zone_does_not_change_times(spark, queue, log_of):
    (event,) = queue.events()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert log_of().selectExpr("unix_millis(event_at)").head()[0] == round(event.at.timestamp() * 1000)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.spark
def test_stream_respects_max_entries_and_continues_after_a_restart(spark, queue, streamed):
    send(queue, 24, each=2)
    assert streamed(maxEntriesPerBatch=10) == ([(19, 10), (20, 20), (10, 25)] if LIMITS_BATCHES else [(49, 25)])
    assert streamed(maxEntriesPerBatch=10) == []
    send(queue, 11)
    assert streamed(maxEntriesPerBatch=10) == ([(10, 35), (1, 36)] if LIMITS_BATCHES else [(11, 36)])
    out = spark.read.parquet(streamed.out)
    assert out.count() == out.select("log_offset", "entry_index").distinct().count() == 1 + 48 + 11


@pytest.mark.spark
def test_stream_with_data_loss_fails_unless_allowed_to_continue(spark, queue, streamed, redis_client):
    from pyspark.errors import PySparkException

    send(queue, 9)
    streamed()
    send(queue, 10)
    redis_client.xtrim(KEYS.events, minid="0-16", approximate=False)
    with pytest.raises(PySparkException, match="queue 'letters' has lost 5 entries, offsets 11 to 15: deleted"):
        streamed()
    assert streamed(failOnDataLoss="false") == [(5, 20)]


def test_the_logs_of_a_queue_over_partitions_are_read_one_by_one(redis_url, spark):
    with DelayQueue("letters", url=redis_url, partitions=3, events=True) as queue:
        queue.send_many([str(n) for n in range(30)], delay=3600)
    register(spark)

    def read(name):
        return spark.read.format("delayq").options(queue=name, url=redis_url, read="events").load().count()

    with pytest.raises(Exception, match="letters has 3 partitions, letters#0 … letters#2: read the event log of each"):
        read("letters")
    assert sum(read(f"letters#{number}") for number in range(3)) == 30
