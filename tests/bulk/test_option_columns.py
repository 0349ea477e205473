"""The options of sends as columns of the tables that are loaded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from delayq import DelayQueue, NewMessage, SendOptions
from delayq.bulk import load
from delayq.bulk.message_batches import COLUMNS
from delayq.bulk.option_columns import NO_COLUMNS, OPTION_COLUMNS
from delayq.errors import ConfigurationError, InvalidValueError

NOON = datetime(2100, 1, 31, 12, 0, tzinfo=UTC)
OPTIONS = {
    "name": "remind",
    "priority": 7,
    "expires": "2h",
    "missed": "drop",
    "unique_for": "3d",
    "unique_after": 60,
    "retention": timedelta(hours=1),
    "timeout": 1.5,
    "key": "account:7",
    "hours": "MON-FRI 09:00-17:00",
    "tz": "Europe/Berlin",
    "jitter": "5m",
}
"""A value of each option that a message of `send_many` may have."""
GROUP = {"group": "digest", "debounce": "10m", "at_most": "1h", "collect": 5}


@pytest.fixture
def queue(redis_url):
    with DelayQueue("q", url=redis_url) as queue:
        yield queue


def table(rows: int = 1, **columns):
    """Messages that are due at noon, with more columns."""
    first = {"id": [f"m-{row}" for row in range(rows)], "due": [NOON] * rows, "payload": ["{}"] * rows}
    return pa.table(first | columns)


def test_every_option_of_a_send_is_a_column():
    assert {"id", "headers", *OPTION_COLUMNS, *NO_COLUMNS} == set(SendOptions.__annotations__)
    assert {*OPTIONS, *GROUP} == set(OPTION_COLUMNS), "each has a value in these tests"
    assert set(OPTION_COLUMNS) < set(COLUMNS)


@pytest.mark.parametrize("form", [pa.array, lambda values: pa.array([str(one) for one in values])])
def test_a_row_is_stored_as_a_send_with_its_options(redis_url, redis_client, queue, form):
    options = OPTIONS | ({} if form is pa.array else {"retention": 3600})
    load(table(**{name: form([value]) for name, value in options.items()}), "q", url=redis_url)
    with DelayQueue("other", url=redis_url) as other:
        other.send_many([NewMessage({}, at=NOON, id="m-0", **OPTIONS)])
        assert redis_client.hget("delayq:{q}:attributes", "m-0") == redis_client.hget(
            "delayq:{other}:attributes", "m-0"
        )
        assert queue.get("m-0").due == other.get("m-0").due > NOON, "with its jitter, within its hours"


def test_a_worker_runs_the_tasks_of_a_table(redis_url, queue):
    ran = []

    @queue.task
    def remind(account: int, day: datetime, text: str = "hello") -> None:
        ran.append((account, day, text))

    rows = {
        "id": ["a", "b", "c"],
        "payload": [
            '{"account": 7, "day": "2100-01-31T12:00:00Z"}',
            '{"account": 8, "day": "2100-01-31T12:00:00Z", "text": "bye"}',
            '{"account": "many"}',
        ],
        "name": ["remind"] * 3,
        "priority": [0, 9, -9],
        "retries": [0, 0, 0],
    }
    load(pa.table(rows), "q", url=redis_url)
    queue.run(burst=True)
    assert sorted(ran) == [(7, NOON, "hello"), (8, NOON, "bye")]
    assert queue.get("c").name == "remind", "what does not fit the types of the task is left to other processes"


def test_null_is_as_if_the_option_were_left_out(redis_url, redis_client, queue):
    load(table(2, priority=pa.array([None, 3]), name=pa.nulls(2)), "q", url=redis_url)
    assert redis_client.hgetall("delayq:{q}:attributes") == {b"m-1": b"priority=3"}


def test_expires_may_be_a_time(redis_url, queue):
    times = [NOON + timedelta(hours=1), NOON + timedelta(hours=2)]
    load(table(2, expires=pa.array(times, pa.timestamp("ns", "UTC"))), "q", url=redis_url)
    assert [queue.get(id).expires for id in ("m-0", "m-1")] == times
    load(table(1, id=["text"], expires=["2100-01-31T14:00:00+01:00"]), "q", url=redis_url)
    assert queue.get("text").expires == times[0]


def test_messages_join_their_group_when_they_are_due(redis_url, redis_client, queue):
    load(table(2, **{name: [value] * 2 for name, value in GROUP.items()}), "q", url=redis_url)
    with DelayQueue("other", url=redis_url) as other:
        other.send({}, at=NOON, id="m-0", **GROUP)
    assert redis_client.hget("delayq:{q}:attributes", "m-0") == redis_client.hget("delayq:{other}:attributes", "m-0")


def test_replaced_message_keeps_the_options_that_its_row_has_not(redis_url, queue):
    load(table(2, name=["first"] * 2, priority=[5, 5]), "q", url=redis_url)
    load(table(2, priority=[9, None]), "q", url=redis_url, on_conflict="replace")
    found = [queue.get(id) for id in ("m-0", "m-1")]
    assert [(one.name, one.priority) for one in found] == [("first", 9), ("first", 5)]


def test_keys_decide_on_the_partition(redis_url, redis_client):
    with DelayQueue("parts", url=redis_url, partitions=4) as parts:
        parts.open()
        load(table(40, key=["account:7"] * 40), "parts", url=redis_url)
        assert parts.counts().pending == 40
        assert len(redis_client.keys("*:messages")) == 1, "what has one key is in one partition"


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("priority", 101, "priority must be a whole number from -100 to 100, not 101"),
        ("priority", "high", "priority must be a whole number, not 'high'"),
        ("name", "no spaces", "name must be 1 to 128 of"),
        ("timeout", "soon", "timeout must look like '1h30m'"),
        ("timeout", 0.001, "timeout must be between"),
        ("jitter", "2d", "jitter must be between"),
        ("expires", "2100-13-01", "expires must be a duration such as '2h', or a time with its zone"),
        ("expires", "2100-01-31T12:00:00", "expires must carry a time zone"),
        ("expires", NOON, "expires 2100-01-31T12:00:00+00:00 is not after the due time"),
        ("missed", "drop", "missed goes with expires"),
        ("missed", "never", "missed must be 'dead' or 'drop', not 'never'"),
        ("tz", "Europe/Berlin", "tz goes with hours"),
        ("hours", "late", "hours"),
        ("key", "", "key"),
        ("group", "digest", "group goes with debounce and collect"),
        ("debounce", "10m", "debounce goes with group in a table"),
    ],
)
def test_wrong_value_names_column_and_row(redis_url, queue, column, value, problem):
    wrong = table(2, **{column: pa.array([None, value])})
    with pytest.raises(ConfigurationError) as refused:
        load(wrong, "q", url=redis_url)
    assert str(refused.value).startswith("row 2 (id 'm-1'): ")
    assert problem in str(refused.value)
    assert queue.counts().living == 0
    info = load(wrong, "q", url=redis_url, on_error="collect")
    assert (info.new, info.refused) == (1, 1)
    ((id, reason),) = queue.refusals(info.run)
    assert (id, problem in reason) == ("m-1", True)


def test_rows_with_several_errors_are_refused_once(redis_url, queue):
    wrong = table(4, retries=[-1, 1, 1, -1], priority=[200, 200, 1, 1], expires=[None, None, "1h", "1h"])
    info = load(wrong, "q", url=redis_url, on_error="collect", on_conflict="replace")
    assert (info.new, info.refused) == (1, 3)
    assert [id for id, _ in queue.refusals(info.run)] == ["m-0", "m-1", "m-3"]
    assert queue.get("m-2").priority == 1


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"piority": [1]}, "unknown column 'piority': did you mean 'priority'?"),
        ({"EXPIRE": ["1h"]}, "unknown column 'EXPIRE': did you mean 'expires'?"),
        ({"replace": [True]}, "the option 'replace' cannot be a column: say for the whole table"),
        ({"unique": ["payload"]}, "the option 'unique' cannot be a column: each row has its id"),
        ({"priority": [1.5]}, "column priority must be INT, not DOUBLE"),
        ({"name": [7]}, "column name must be STRING, not INT64"),
        ({"timeout": [True]}, "must be STRING or a number of seconds or INTERVAL DAY TO SECOND, not BOOL"),
        ({"expires": [NOON.replace(tzinfo=None)]}, "column expires is TIMESTAMP[US], a local time without a zone"),
    ],
)  # fmt: skip
def test_wrong_column_is_refused_before_anything_is_sent(redis_url, queue, columns, problem):
    with pytest.raises(ConfigurationError) as refused:
        load(table(**columns), "q", url=redis_url)
    assert problem in str(refused.value)
    assert queue.counts().living == 0


def test_unique_for_does_not_go_with_replace(redis_url, queue):
    with pytest.raises(ConfigurationError, match="give unique_for or replace, but not both"):
        load(table(unique_for=["1h"]), "q", url=redis_url, on_conflict="replace")


def test_payload_that_joins_a_group_is_json(redis_url, queue):
    columns = {name: [value] for name, value in GROUP.items()}
    with pytest.raises(ConfigurationError, match="payload must be JSON to join a group"):
        load(table(**columns, payload=["{"]), "q", url=redis_url)
    load(table(**columns, payload=pa.array([b"{"])), "q", url=redis_url)
    with pytest.raises(ConfigurationError, match="group needs a due time in a table"):
        load(table(**columns, due=[None]), "q", url=redis_url)


def test_errors_have_the_type_of_a_send(redis_url):
    with pytest.raises(InvalidValueError):
        load(table(priority=[1000]), "q", url=redis_url)
