"""The options of the data source: parsed from text; without Spark."""

import pickle
from dataclasses import fields
from datetime import UTC, datetime

import pytest

from delayq import State
from delayq.bulk.connection import TargetQueue
from delayq.errors import ConfigurationError
from delayq.spark.datasource.source_options import (
    event_options,
    snapshot_options,
    table_to_read,
    write_options,
)

URL = "redis://:secret@example/3"


def written(**raw):
    return write_options({"queue": "reminders", "url": URL, **raw})


def snapshot(**raw):
    return snapshot_options({"queue": "reminders", "url": URL, **raw})


def events(streaming=False, **raw):
    return event_options({"queue": "reminders", "url": URL, **raw}, streaming=streaming)


# Target queue


def test_queue_is_named_by_option_or_path():
    assert write_options({"queue": "reminders", "url": URL}).target == TargetQueue("reminders", URL, "delayq")
    assert write_options({"path": "reminders", "url": URL}).target == TargetQueue("reminders", URL, "delayq")
    assert write_options({"path": "q", "queue": "q", "url": URL, "prefix": "app"}).target == TargetQueue(
        "q", URL, "app"
    )


def test_option_names_ignore_case():
    assert written(BATCHSIZE="7", onconflict="REPLACE").batch_size == 7
    assert written(onconflict="REPLACE").on_conflict == "replace"


def test_url_defaults_to_the_environment(monkeypatch):
    assert write_options({"queue": "q"}).target.url == "redis://localhost:6379/0"
    monkeypatch.setenv("DELAYQ_URL", "redis://elsewhere")
    assert write_options({"queue": "q"}).target.url == "redis://elsewhere"
    monkeypatch.setenv("OURS", URL)
    assert write_options({"queue": "q", "urlEnv": "OURS"}).target.url == URL


def test_url_is_not_in_the_repr():
    for options in (written(), snapshot(), events()):
        assert "secret" not in repr(options)


def test_options_can_be_pickled():
    for options in (written(dedupeWindow="2h"), snapshot(states="dead"), events(startingOffset="7")):
        assert pickle.loads(pickle.dumps(options)) == options


# Valid values

WRITE_DEFAULTS = {
    "batch_size": 200,
    "max_rows_per_second": None,
    "run": None,
    "on_conflict": "skip",
    "on_error": "fail",
    "default_retries": 3,
    "max_payload": 1 << 20,
    "dedupe_window": None,
    "checkpoint": None,
}


def test_defaults_of_write_options():
    options = written()
    assert {one.name: getattr(options, one.name) for one in fields(options) if one.name != "target"} == WRITE_DEFAULTS


@pytest.mark.table(
    ("raw", "name", "value"),
    [
        ({"batchSize": "1000"}, "batch_size", 1000),
        ({"maxRowsPerSecond": "2500"}, "max_rows_per_second", 2500.0),
        ({"maxRowsPerSecond": "0.5"}, "max_rows_per_second", 0.5),
        ({"runId": "night-3"}, "run", "night-3"),
        ({"onConflict": "fail"}, "on_conflict", "fail"),
        ({"onError": "collect"}, "on_error", "collect"),
        ({"defaultRetries": "0"}, "default_retries", 0),
        ({"maxPayload": "100"}, "max_payload", 100),
        ({"dedupeWindow": "0"}, "dedupe_window", 0),
        ({"dedupeWindow": "36h"}, "dedupe_window", 36 * 3_600_000),
        ({"checkpointLocation": "/x"}, "checkpoint", "/x"),
    ],
)
def test_write_options_are_parsed(raw, name, value):
    assert getattr(written(**raw), name) == value


def test_defaults_of_snapshot_options():
    options = snapshot()
    assert {*options.states} == {*State} - {State.COMPLETED}
    assert (options.due_from, options.due_to, options.partitions) == (None, None, 4)
    assert not options.include_payload
    assert not options.pushdown


def test_snapshot_options_are_parsed():
    options = snapshot(
        states="Ready, pending", dueFrom="2026-01-31T09:00:00+01:00", dueTo="2026-01-31T08:00:00.0005Z", partitions="1"
    )
    assert options.states == (State.PENDING, State.READY)
    since_1970 = int(datetime(2026, 1, 31, 8, tzinfo=UTC).timestamp() * 1000)
    assert (options.due_from, options.due_to) == (since_1970, since_1970 + 1)
    assert snapshot(includePayload="TRUE", pushdown="true").include_payload


def test_defaults_of_event_options():
    options = events()
    assert (options.start, options.end, options.max_entries, options.partitions) == ("earliest", None, 10_000, 2)
    assert options.fail_on_data_loss
    assert options.fail_on_rollback


def test_event_options_are_parsed():
    assert events().max_events is None
    assert events(maxEventsPerBatch="7").max_events == 7
    options = events(startingOffset="17", endingOffset="20", maxEntriesPerBatch="5", failOnDataLoss="false")
    assert (options.start, options.end, options.max_entries, options.fail_on_data_loss) == (17, 20, 5, False)
    assert not options.fail_on_rollback
    assert events(streaming=True, startingOffset="Latest").start == "latest"
    assert events(startingOffset="18", endingOffset="17").end == 17, "nothing yet"


def test_read_option_selects_the_table():
    assert table_to_read({}) == "snapshot"
    assert table_to_read({"READ": "Events", "whatever": "1"}) == "events"
    assert table_to_read({"read": "messages"}) == "messages"
    with pytest.raises(ConfigurationError, match="read must be snapshot, events or messages, not 'everything'"):
        table_to_read({"read": "everything"})


# Invalid values


@pytest.mark.table(
    ("raw", "error"),
    [
        ({"batchSize": "0"}, "batchSize must be a whole number from 1 to 1000, not '0'"),
        ({"batchSize": "1_0"}, "not '1_0'"),
        ({"batchSize": "9" * 5000}, "batchSize must be a whole number from 1 to 1000"),
        ({"maxRowsPerSecond": "0"}, "maxRowsPerSecond must be a number of rows above 0, such as 5000, not '0'"),
        ({"maxRowsPerSecond": "nan"}, "maxRowsPerSecond must be a number"),
        ({"runId": "two words"}, "run must be 1 to 128 of"),
        ({"onConflict": "ignore"}, "onConflict must be skip, replace or fail, not 'ignore'"),
        ({"onError": "skip"}, "onError must be fail or collect, not 'skip'"),
        ({"defaultRetries": "-1"}, "defaultRetries must be a whole number from 0 to 1000000, not '-1'"),
        ({"maxPayload": "1MB"}, "maxPayload must be a whole number"),
        ({"dedupeWindow": "1 day"}, "dedupeWindow must look like '1h30m'"),
        ({"batchsise": "3"}, "unknown option 'batchsise', did you mean 'batchSize'?"),
        ({"states": "ready"}, "unknown option 'states'; known options: queue, url, urlEnv, prefix, batchSize"),
        ({"prefix": "a b"}, "prefix must be 1 to 128 of"),
        ({"queue": "a b"}, "queue must be 1 to 128 of"),
        ({"path": "another"}, "more than one queue is named"),
        ({"paths": '["a","b"]'}, "more than one queue is named"),
        ({"urlEnv": "HOME"}, "url and urlEnv are both set"),
    ],
)
def test_invalid_write_options_are_refused(raw, error):
    with pytest.raises(ConfigurationError) as refused:
        written(**raw)
    assert error in str(refused.value)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        ({}, "no queue is named"),
        ({"queue": "q", "urlEnv": "NOT_SET_ANYWHERE"}, "'NOT_SET_ANYWHERE', which is not set on the driver"),
        ({"queue": "q", "url": "memory://"}, "memory:// works in one process"),
    ],
)
def test_invalid_target_is_refused(raw, error):
    with pytest.raises(ConfigurationError) as refused:
        write_options(raw)
    assert error in str(refused.value)


@pytest.mark.table(
    ("raw", "error"),
    [
        ({"states": "redy"}, "'redy', did you mean 'ready'?"),
        ({"states": ""}, "states must be among pending, ready"),
        ({"dueFrom": "tomorrow"}, "dueFrom must look like 2026-01-31T09:00:00+00:00, not 'tomorrow'"),
        ({"dueFrom": "2026-01-31T09:00:00"}, "dueFrom must carry a time zone"),
        ({"duefrom": "2026-01-31T09:00:00Z", "dueTo": "2026-01-31T09:00:00Z"}, "must be before dueTo"),
        ({"partitions": "0"}, "partitions must be a whole number from 1"),
        ({"includePayload": "yes"}, "includePayload must be true or false, not 'yes'"),
        ({"state": "ready"}, "did you mean 'states'?"),
    ],
)
def test_invalid_snapshot_options_are_refused(raw, error):
    with pytest.raises(ConfigurationError) as refused:
        snapshot(**raw)
    assert error in str(refused.value)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        ({"startingOffset": "first"}, "startingOffset must be earliest, latest or the first offset to read"),
        ({"startingOffset": "5", "endingOffset": "3"}, "endingOffset 3 must not be before startingOffset 5"),
        ({"maxEntriesPerBatch": "0"}, "maxEntriesPerBatch must be a whole number from 1"),
        ({"maxEventsPerBatch": "0"}, "maxEventsPerBatch must be a whole number from 1"),
        ({"maxEntries": "5"}, "did you mean 'maxEntriesPerBatch'?"),
        ({"streaming": True, "endingOffset": "3"}, "a stream has no end"),
    ],
)
def test_invalid_event_options_are_refused(raw, error):
    with pytest.raises(ConfigurationError) as refused:
        events(**raw)
    assert error in str(refused.value)
