"""`delayq.bulk` plans as Spark does: the same rows, ids and payloads."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from delayq.bulk.files.table_files import read_table, write_table
from delayq.bulk.plan import plan
from delayq.bulk.reminder_rules import Rule
from delayq.spark.pipelines.input_tables import read_table as read_on_spark
from delayq.spark.pipelines.plan import plan as plan_on_spark

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "+05:45",
    "-12:30",
]
RULES = [
    Rule("soon", offset="-2h"),
    Rule("day-before", offset="-1d", at="02:30"),
    Rule("working", offset="-3d", weekdays="mon-fri", repeats=3, every="1d", retries=7),
    Rule("few", offset="36h", payload=["zone", "text"]),
]
OPTIONS = [
    Rule("call", offset="-2h", options={"name": "remind", "priority": 5, "expires": "1d"}),
    Rule("greet", offset="-1d", options={"name": "greet"}),
    Rule("plain", offset="1d"),
]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def things(rows: int, seed: int) -> pa.Table:
    """A table with every type of column that `delayq.bulk` plans, and odd values in each."""
    some = random.Random(seed)
    texts = [
        "",
        "plain",
        'a "quote"',
        "back\\slash",
        "new\nline\tand tab",
        "\x00\x1f\x7f",
        "übergrößen ✓",
        "</script>",
        None,
    ]
    numbers = [
        0.0,
        -0.0,
        0.1,
        1e7,
        9999999.0,
        12345678.9,
        1e-3,
        9.999e-4,
        1.5e300,
        3e-310,
        float("nan"),
        float("inf"),
        None,
    ]
    times = [BEGIN + timedelta(microseconds=some.randrange(2 * 365 * 86_400_000_000)) for _ in range(rows)]

    def drawn(values):
        return [some.choice(values) for _ in range(rows)]

    return pa.table(
        {
            "id": pa.array([f"thing-{number}" for number in range(rows)]),
            "time": pa.array(times, pa.timestamp("us", tz="UTC")),
            "zone": pa.array(drawn(ZONES)),
            "text": pa.array(drawn(texts)),
            "number": pa.array(
                [some.choice([value, some.uniform(-1e9, 1e9)]) for value in drawn(numbers)], pa.float64()
            ),
            "count": pa.array(drawn([0, -1, 1 << 62, None]), pa.int64()),
            "flag": pa.array(drawn([True, False, None])),
            "day": pa.array(drawn([date(2026, 2, 28), None]), pa.date32()),
            "at": pa.array(drawn([times[0], None]), pa.timestamp("us", tz="UTC")),
            "wall": pa.array(drawn([times[1].replace(tzinfo=None), None]), pa.timestamp("us")),
            "price": pa.array(drawn([Decimal("1.50"), Decimal("-0.0000001"), None]), pa.decimal128(20, 7)),
            "bytes": pa.array(drawn([b"", b"\x00\xff", None]), pa.binary()),
        }
    )


def rows_of(table: pa.Table) -> list[tuple]:
    return sorted(map(tuple, (row.values() for row in table.to_pylist())), key=lambda row: (row[0], row[7]))


def on_spark(spark, path, rules, folder, **options) -> pa.Table:
    plan_on_spark(read_on_spark(spark, str(path)), rules, **options).write.mode("overwrite").parquet(str(folder))
    return read_table(folder)


def test_same_plan_of_100_000_reminders(spark, tmp_path):
    write_table(things(20_000, 1), tmp_path / "things.parquet")
    table = read_table(tmp_path / "things.parquet")
    ours = plan(table, RULES)
    theirs = on_spark(spark, tmp_path / "things.parquet", RULES, tmp_path / "plan")
    assert ours.num_rows > 100_000
    assert (ours.column_names, ours.schema.types) == (theirs.column_names, theirs.schema.types)
    assert rows_of(ours) == rows_of(theirs)


def test_same_changes_since_the_previous_plan(spark, tmp_path):
    before, after = things(300, 2), things(250, 3)
    write_table(plan(before, RULES), tmp_path / "before")
    write_table(after, tmp_path / "after.parquet")
    previous, since = read_table(tmp_path / "before"), BEGIN + timedelta(days=100)
    actions = []
    for _ in range(2):
        ours = plan(after, RULES, previous=previous, since=since)
        options = {"previous": read_on_spark(spark, str(tmp_path / "before")), "since": since}
        theirs = on_spark(spark, tmp_path / "after.parquet", RULES, tmp_path / "plan", **options)
        assert rows_of(ours) == rows_of(theirs)
        actions.append(set(ours["action"].to_pylist()))
        write_table(ours, tmp_path / "before")
        previous = ours
    assert actions == [{"new", "cancel"}, {"keep", "cancel"}]


CSV = 'id,time,zone,text,empty\n1,2027-03-28 02:30,Europe/Berlin,"a, ""b""",\n2,2027-03-28,Asia/Tokyo,,""\n'
JSON = (
    '{"id": 7, "time": "2027-03-28T02:30:00.5", "zone": "Europe/Berlin", "n": 1}\n'
    '{"id": 8, "time": "2027-10-31 02:30", "zone": "Europe/Berlin", "n": 2.5, "more": true}\n'
)


@pytest.mark.parametrize(("name", "text"), [("things.csv", CSV), ("things.jsonl", JSON)], ids=["csv", "json"])
def test_same_plan_of_a_text_file(spark, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    ours = plan(read_table(tmp_path / name), RULES[:3])
    theirs = on_spark(spark, tmp_path / name, RULES[:3], tmp_path / "plan")
    assert rows_of(ours) == rows_of(theirs)


@pytest.mark.spark
def test_options_of_rules_are_the_same_columns(spark, tmp_path):
    table = pa.table({"id": ["x", "y"], "time": ["2027-01-31 09:00"] * 2, "zone": ["Europe/Berlin"] * 2})
    write_table(table, tmp_path / "things.parquet")
    there = read_on_spark(spark, str(tmp_path / "things.parquet"))
    previous, before = plan_on_spark(there, OPTIONS), plan(table, OPTIONS)
    for theirs, ours in (
        (previous, before),
        (plan_on_spark(there, OPTIONS[1:], previous=previous), plan(table, OPTIONS[1:], previous=before)),
    ):
        assert theirs.columns == ours.column_names
        columns = [name for name in ours.column_names if name not in ("due", "payload")]
        rows = [row.asDict() for row in theirs.select(*columns).collect()]
        assert sorted(rows, key=str) == sorted(ours.select(columns).to_pylist(), key=str)
