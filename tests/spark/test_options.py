"""The options of the data source, as texts in and typed out; no Spark."""

import pickle
from dataclasses import fields
from datetime import UTC, datetime

import pytest

from delayq import State
from delayq.errors import ConfigurationError
from delayq.spark.options import Target, event_options, snapshot_options, what_to_read, write_options

URL = "redis://:secret@example/3"


def written(**raw):
    return write_options({"queue": "reminders", "url": URL, **raw})


def snapshot(**raw):
    return snapshot_options({"queue": "reminders", "url": URL, **raw})


def events(streaming=False, **raw):
    return event_options({"queue": "reminders", "url": URL, **raw}, streaming=streaming)


# Which queue, and where


def test_a_queue_is_named_by_an_option_or_by_the_path():
    assert write_options({"queue": "reminders", "url": URL}).target == Target("reminders", URL, "delayq")
    assert write_options({"path": "reminders", "url": URL}).target == Target("reminders", URL, "delayq")
    assert write_options({"path": "q", "queue": "q", "url": URL, "prefix": "app"}).target == Target("q", URL, "app")


def test_the_names_of_options_are_known_in_any_case():
    assert written(BATCHSIZE="7", onconflict="REPLACE").batch_size == 7
    assert written(onconflict="REPLACE").on_conflict == "replace"


def test_without_a_url_it_is_the_one_of_the_environment(monkeypatch):
    assert write_options({"queue": "q"}).target.url == "redis://localhost:6379/0"
    monkeypatch.setenv("DELAYQ_URL", "redis://elsewhere")
    assert write_options({"queue": "q"}).target.url == "redis://elsewhere"
    monkeypatch.setenv("OURS", URL)
    assert write_options({"queue": "q", "urlEnv": "OURS"}).target.url == URL


def test_a_url_is_not_shown():
    for options in (written(), snapshot(), events()):
        assert "secret" not in repr(options)


def test_options_are_sent_to_executors():
    for options in (written(dedupeWindow="2h"), snapshot(states="dead"), events(startingOffset="7")):
        assert pickle.loads(pickle.dumps(options)) == options


# What each may be

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


def test_defaults_of_a_write():
    options = written()
    assert {one.name: getattr(options, one.name) for one in fields(options) if one.name != "target"} == WRITE_DEFAULTS


@pytest.mark.parametrize(
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
def test_a_write_is_told(raw, name, value):
    assert getattr(written(**raw), name) == value


def test_defaults_of_a_snapshot():
    options = snapshot()
    assert options.states == tuple(State)
    assert (options.due_from, options.due_to, options.partitions) == (None, None, 4)
    assert not options.include_payload
    assert not options.pushdown


def test_a_snapshot_is_told():
    options = snapshot(
        states="Ready, pending", dueFrom="2026-01-31T09:00:00+01:00", dueTo="2026-01-31T08:00:00.0005Z", partitions="1"
    )
    assert options.states == (State.PENDING, State.READY)
    since_1970 = int(datetime(2026, 1, 31, 8, tzinfo=UTC).timestamp() * 1000)
    assert (options.due_from, options.due_to) == (since_1970, since_1970 + 1)
    assert snapshot(includePayload="TRUE", pushdown="true").include_payload


def test_defaults_of_events():
    options = events()
    assert (options.start, options.end, options.max_entries, options.partitions) == ("earliest", None, 10_000, 2)
    assert options.fail_on_data_loss


def test_events_are_told():
    options = events(startingOffset="17", endingOffset="20", maxEntriesPerBatch="5", failOnDataLoss="false")
    assert (options.start, options.end, options.max_entries, options.fail_on_data_loss) == (17, 20, 5, False)
    assert events(streaming=True, startingOffset="Latest").start == "latest"
    assert events(startingOffset="18", endingOffset="17").end == 17, "nothing yet"


def test_what_a_batch_reads():
    assert what_to_read({}) == "snapshot"
    assert what_to_read({"READ": "Events", "whatever": "1"}) == "events"


# What they must not be


@pytest.mark.parametrize(
    ("raw", "told"),
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
        ({"states": "ready"}, "unknown option 'states'; there are queue, url, urlEnv, prefix, batchSize"),
        ({"prefix": "a b"}, "prefix must be 1 to 128 of"),
        ({"queue": "a b"}, "queue must be 1 to 128 of"),
        ({"path": "another"}, "give one queue"),
        ({"paths": '["a","b"]'}, "give one queue"),
        ({"urlEnv": "HOME"}, "give url or urlEnv, not both"),
    ],
)
def test_a_write_is_refused(raw, told):
    with pytest.raises(ConfigurationError) as refused:
        written(**raw)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ({}, "which queue?"),
        ({"queue": "q", "urlEnv": "NOT_SET_ANYWHERE"}, "'NOT_SET_ANYWHERE', an environment variable that is not set"),
        ({"queue": "q", "url": "memory://"}, "memory:// lives in one process"),
    ],
)
def test_a_target_is_refused(raw, told):
    with pytest.raises(ConfigurationError) as refused:
        write_options(raw)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ({"states": "redy"}, "'redy', did you mean 'ready'?"),
        ({"states": ""}, "states must be of pending, ready"),
        ({"dueFrom": "tomorrow"}, "dueFrom must look like 2026-01-31T09:00:00+00:00, not 'tomorrow'"),
        ({"dueFrom": "2026-01-31T09:00:00"}, "dueFrom must carry a time zone"),
        ({"duefrom": "2026-01-31T09:00:00Z", "dueTo": "2026-01-31T09:00:00Z"}, "must be before dueTo"),
        ({"partitions": "0"}, "partitions must be a whole number from 1"),
        ({"includePayload": "yes"}, "includePayload must be true or false, not 'yes'"),
        ({"read": "events"}, "which are of read=snapshot"),
        ({"read": "everything"}, "read must be snapshot or events, not 'everything'"),
        ({"state": "ready"}, "did you mean 'states'?"),
    ],
)
def test_a_snapshot_is_refused(raw, told):
    with pytest.raises(ConfigurationError) as refused:
        snapshot(**raw)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ({"startingOffset": "first"}, "startingOffset must be earliest, latest or the first offset to read"),
        ({"startingOffset": "5", "endingOffset": "3"}, "endingOffset 3 must not be before startingOffset 5"),
        ({"maxEntriesPerBatch": "0"}, "maxEntriesPerBatch must be a whole number from 1"),
        ({"maxEntries": "5"}, "did you mean 'maxEntriesPerBatch'?"),
        ({"streaming": True, "endingOffset": "3"}, "a stream has no end"),
        (
            {"streaming": True, "read": "snapshot"},
            "read=snapshot does not go with these options, which are of read=events",
        ),
    ],
)
def test_events_are_refused(raw, told):
    with pytest.raises(ConfigurationError) as refused:
        events(**raw)
    assert told in str(refused.value)
