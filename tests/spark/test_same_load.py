"""`delayq.bulk` loads as Spark does: the same result, and the same messages in the queue."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delayq import DelayQueue
from delayq.bulk.files.table_files import files_of, write_table
from delayq.bulk.load import load
from delayq.bulk.load_run import digest_of
from delayq.spark.pipelines.load import load as load_on_spark
from delayq.spark.pipelines.spark_audit import source_of

NOON = datetime(2100, 1, 31, 12, 0, tzinfo=UTC)
ROWS = 5_000


def table(seed: int, action: bool) -> pa.Table:
    """A table with nulls, invalid rows, and rows on both sides of a horizon."""
    some = random.Random(seed)
    due = [None if some.random() < 0.02 else NOON + timedelta(microseconds=some.randrange(-(10**10), 10**10))
           for _ in range(ROWS)]  # fmt: skip
    columns = {
        "id": [some.choice(["", "no spaces", None]) if some.random() < 0.01 else f"m-{n}" for n in range(ROWS)],
        "due": pa.array(due, pa.timestamp("us", "UTC")),
        "payload": [None if some.random() < 0.01 else '"' + "ü" * some.randrange(60) + '"' for _ in range(ROWS)],
        "retries": pa.array([some.choice([None, 0, 7, -1]) for _ in range(ROWS)], pa.int32()),
        "headers": pa.array([some.choice([None, [], [("a", "b")]]) for _ in range(ROWS)], pa.map_(*[pa.string()] * 2)),
    }
    columns |= {
        "name": [some.choice([None, "remind", "no spaces"]) if some.random() < 0.1 else "call" for _ in range(ROWS)],
        "priority": pa.array([some.choice([None, 0, 5, 101]) for _ in range(ROWS)], pa.int16()),
        "timeout": pa.array([some.choice([None, timedelta(minutes=1)]) for _ in range(ROWS)], pa.duration("us")),
        "expires": [some.choice([None, "1h", "2100-01-31T13:00:00Z"]) for _ in range(ROWS)],
        # Not for what is due at once: that would be ready sooner or later, as the load is faster or slower.
        "jitter": [None if at is None else some.choice([None, 60.0]) for at in due],
    }
    if action:
        columns["action"] = [some.choice(["new", "keep", "cancel", None]) for _ in range(ROWS)]
    return pa.table(columns)


def pending(queue):
    page = queue.list("pending", limit=1000)
    yield from page.messages
    while page.cursor:
        page = queue.list("pending", limit=1000, cursor=page.cursor)
        yield from page.messages


@pytest.mark.spark
def test_result_and_queue_are_the_same(spark, redis_url, tmp_path):
    loads = [
        (table(1, action=False), {"start": NOON, "until": "+1h"}),
        (table(2, action=False), {"on_conflict": "replace", "max_payload": 100, "default_retries": 9}),
        (table(3, action=True), {"start": NOON - timedelta(hours=1), "batch_size": 77}),
    ]
    with DelayQueue("spark", url=redis_url) as there, DelayQueue("bulk", url=redis_url) as here:
        for number, (messages, options) in enumerate(loads):
            path = str(tmp_path / f"{number}.parquet")
            write_table(messages, path)
            shared = {"url": redis_url, "on_error": "collect", "run": f"run-{number}", **options}
            theirs = load_on_spark(spark.read.parquet(path), "spark", **shared)
            ours = load(path, "bulk", **shared)
            unlike = ("started", "ended")
            facts = [{name: fact for name, fact in one.facts().items() if name not in unlike} for one in (theirs, ours)]
            assert facts[0] == facts[1]
            assert facts[1]["refused"] > 0
            refused = [[(id, why.replace("maxPayload", "max_payload")) for id, why in one.refusals(f"run-{number}")]
                       for one in (there, here)]  # fmt: skip
            assert sorted(refused[0]) == sorted(refused[1])
        assert facts[1]["cancelled"] > 0
        stored = [{one.id: one for one in pending(queue)} for queue in (there, here)]
    assert len(stored[1]) == len(stored[0]) > 1000
    for id, message in stored[1].items():
        other = stored[0][id]
        assert (message.payload, message.headers, message.retries_left) == (
            other.payload,
            other.headers,
            other.retries_left,
        )
        assert message.due == other.due or max(message.due, other.due) < NOON - timedelta(days=1)


NAMES = (
    "plain",
    "with spaces  in it",
    "Ärzte für Käthe",
    "日本 ✓",
    "50%",
    "a%20b",
    "a+b,c;d=e&f!",
    "it's (a) ~#1$",
    "x@y",
)


@pytest.mark.spark
def test_files_of_a_table_are_recognized_whatever_their_names(spark, tmp_path):
    seen = set()
    for name in NAMES:
        folder = tmp_path / name
        for part in (f"{name}.parquet", f"day=2030-01-31/{name}", "_hidden/part", ".part.crc"):
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"id": [name]}), folder / part)
        for path in (folder, folder / f"{name}.parquet", tmp_path / "plain" / ".." / name):
            own = digest_of(files_of(path))
            assert own == source_of(spark.read.parquet(str(path))), path
            seen.add(own)
    assert len(seen) == 2 * len(NAMES)
