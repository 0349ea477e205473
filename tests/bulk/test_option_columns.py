"""Columns of a table for each option of a send: what they become, and what is wrong with them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from delayq import DelayQueue, NewMessage
from delayq.bulk import load
from delayq.bulk.option_columns import NAMES, TYPES
from delayq.errors import ConfigurationError
from tests.support.waiting import wait_until

NOON = datetime(2100, 1, 31, 12, 0, tzinfo=UTC)
EXAMPLES = {
    "name": "mail",
    "expires": "2h",
    "missed": "drop",
    "priority": 7,
    "unique_for": "1h",
    "unique_after": 90,
    "retention": "1d",
    "timeout": 2.5,
    "jitter": "10m",
    "key": "account:7",
    "hours": "MON-FRI 09:00-17:00",
    "tz": "Europe/Berlin",
}
"""A value of each option; the types of the columns are those that Arrow finds."""
TOGETHER = {"missed": "expires", "tz": "hours"}
"""What an option goes with."""


@pytest.fixture
def queue(redis_url):
    with DelayQueue("q", url=redis_url) as queue:
        yield queue


def table_of(options, **columns):
    rows = {"id": ["a"], "due": pa.array([NOON], pa.timestamp("us", "UTC")), "payload": ["{}"]}
    return pa.table(rows | {name: [value] for name, value in options.items()} | columns)


def stored(queue, id):
    """Return what is stored of a message, besides its life."""
    client, keys = queue.executor.client, queue.context.calls.keys
    return client.hget(keys.attributes, id), client.zscore(keys.pending, id)


def sent_with(options, redis_url):
    """Return what is stored of a message that `send_many` sends with the same options."""
    with DelayQueue("other", url=redis_url) as other:
        other.send_many([NewMessage({}, at=NOON, id="a", **options)])
        return stored(other, "a")


def test_every_option_of_a_message_is_a_column():
    assert set(NAMES) == set(EXAMPLES) == set(TYPES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_column_does_what_the_option_of_a_send_does(name, queue, redis_url):
    given = {one: EXAMPLES[one] for one in (name, TOGETHER.get(name)) if one}
    load(table_of(given), "q", url=redis_url)
    assert stored(queue, "a") == sent_with(given, redis_url)
    assert stored(queue, "a") != (None, NOON.timestamp() * 1000)


def test_columns_of_a_csv_file_are_texts(tmp_path, queue, redis_url):
    names, cells = ",".join(EXAMPLES), ",".join(map(str, EXAMPLES.values()))
    path = tmp_path / "messages.csv"
    path.write_text(
        f"id,due,payload,{names}\na,2100-01-31T12:00:00Z,{{}},{cells}\nb,2100-01-31T12:00:00Z,{{}}{',' * 12}\n"
    )
    load(path, "q", url=redis_url)
    assert stored(queue, "a") == sent_with(EXAMPLES, redis_url)
    assert stored(queue, "b") == (None, NOON.timestamp() * 1000)


@pytest.mark.parametrize("kind", ["us", "ns"])
@pytest.mark.parametrize("expires", [NOON + timedelta(hours=1), "2100-01-31T14:00:00+01:00", 3600, "3600", "1h"])
def test_expires_is_a_time_or_a_duration(expires, kind, queue, redis_url):
    column = pa.array([expires], pa.timestamp(kind, "UTC") if isinstance(expires, datetime) else None)
    load(table_of({}, expires=column), "q", url=redis_url)
    assert queue.get("a").expires == NOON + timedelta(hours=1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"piority": 5}, "unknown column 'piority', did you mean 'priority'"),
        ({"unique": "payload"}, "unknown column 'unique'"),
        ({"priority": "high"}, r"row 1 \(id 'a'\): priority must be a whole number, not 'high'"),
        ({"priority": 101}, "row 1 .*priority must be .*100, not 101"),
        ({"priority": 1.5}, "column priority must be INT, not DOUBLE"),
        ({"timeout": "soon"}, "row 1 .*timeout must look like '1h30m'"),
        ({"timeout": math.nan}, "row 1 .*timeout must be between"),
        ({"timeout": True}, "column timeout must be a duration: a STRING such as '1h30m', or seconds, not BOOL"),
        ({"name": 5}, "column name must be STRING, not INT64"),
        ({"missed": "drop"}, "row 1 .*missed goes with expires"),
        ({"expires": NOON - timedelta(hours=1)}, "row 1 .*is not after the due time"),
        ({"expires": datetime(2100, 2, 1)}, "column expires must be a TIMESTAMP or a duration"),  # noqa: DTZ001
        ({"hours": "always"}, "row 1 .*hours"),
        ({"tz": "Europe/Berlin"}, "row 1 .*tz"),
        ({"key": "a b"}, "row 1 .*key"),
    ],
    ids=str,
)
def test_wrong_column_or_value_is_named_and_nothing_is_sent(options, text, queue, redis_url):
    with pytest.raises(ConfigurationError, match=text):
        load(table_of(options), "q", url=redis_url)
    assert queue.counts().pending == 0


def test_invalid_rows_are_refused_and_the_others_sent(queue, redis_url):
    rows = {"id": ["a", "b", "c"], "payload": ["{}"] * 3, "priority": [500, 5, None], "name": ["x", "y", "x y"]}
    loaded = load(pa.table(rows), "q", url=redis_url, on_error="collect")
    assert (loaded.new, loaded.refused) == (1, 2)
    assert (queue.get("b").priority, queue.get("b").name) == (5, "y")


def test_replacing_keeps_the_options_that_a_row_has_not(queue, redis_url):
    load(table_of({"name": "mail", "priority": 5}), "q", url=redis_url)
    load(table_of({"name": None, "priority": 9}), "q", url=redis_url, on_conflict="replace")
    assert (queue.get("a").name, queue.get("a").priority) == ("mail", 9)
    with pytest.raises(ConfigurationError, match=r"row 1 .*give unique_for or replace, but not both"):
        load(table_of({"unique_for": "1h"}), "q", url=redis_url, on_conflict="replace")


def test_messages_of_a_key_are_in_one_partition(redis_url, redis_client):
    with DelayQueue("whole", url=redis_url, partitions=4) as whole:
        whole.open()
        rows = {"id": [str(n) for n in range(40)], "payload": ["{}"] * 40, "key": ["account:7"] * 40}
        load(pa.table(rows), "whole", url=redis_url)
        whole.send_delay_msg({}, "1h", id="40", key="account:7")
        counts = [redis_client.hlen(f"delayq:{{whole#{n}}}:messages") for n in range(4)]
        assert sorted(counts) == [0, 0, 0, 41]


def test_rows_run_as_tasks(queue, redis_url):
    greeted = []

    @queue.task(name="greet")
    def greet(who: str, times: int = 1) -> None:
        greeted.append((who, times))

    rows = {"id": ["a", "b"], "payload": ['{"who": "Ada", "times": 2}', '{"who": "Grace"}'], "name": ["greet"] * 2}
    assert load(pa.table(rows), "q", url=redis_url).new == 2
    queue.start_consume()
    wait_until(lambda: len(greeted) == 2)
    queue.stop_consume()
    assert sorted(greeted) == [("Ada", 2), ("Grace", 1)]
