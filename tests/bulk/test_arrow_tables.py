"""Tables of pandas, Polars, DuckDB and Arrow, wherever a file is taken: with the types that they have."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from delayq import DelayQueue
from delayq.bulk import Rule, load, plan
from delayq.errors import ConfigurationError
from tests.support.processes import run

NOON = datetime(2100, 1, 31, 12, 0, tzinfo=UTC)
MESSAGES = {
    "id": ["a", "b"],
    "due": [NOON, NOON],
    "payload": ["{}", "[1]"],
    "name": ["mail", "mail"],
    "retries": [1, 2],
}
THINGS = {"id": [1, 2], "time": ["2100-01-31 09:00"] * 2, "zone": ["Europe/Berlin"] * 2, "floor": [4, 5]}


def in_pandas(columns):
    frame = pd.DataFrame(columns)
    return frame.astype({name: "category" for name in ("name", "zone") if name in columns})


def in_polars(columns):
    small = {name: pl.UInt8 for name in ("retries", "floor", "id") if columns.get(name, [""])[0] in (1, 4)}
    texts = {name: pl.Categorical for name in ("name", "zone") if name in columns}
    return pl.DataFrame(columns).cast(small | texts)


def in_duckdb(columns):
    arrow = pa.table(columns)  # noqa: F841 - DuckDB finds it by its name
    casts = ", ".join(f"{name}::UTINYINT AS {name}" for name in ("retries", "floor") if name in columns)
    return duckdb.sql(f"SELECT * REPLACE ({casts}) FROM arrow")


def in_runs(columns):
    table = pa.table(columns)
    for name in ("name", "zone"):
        if name in columns:
            runs = pa.chunked_array([pa.compute.run_end_encode(table.column(name).combine_chunks())])
            table = table.set_column(table.column_names.index(name), name, runs)
    return table


def in_reader(columns):
    table = pa.table(columns)
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1))


makers = pytest.mark.parametrize("make", [in_pandas, in_polars, in_duckdb, in_runs, in_reader, pa.table])


@pytest.fixture
def queue(redis_url):
    with DelayQueue("q", url=redis_url) as queue:
        yield queue


@makers
def test_table_is_loaded_as_it_is(make, queue, redis_url):
    assert load(make(MESSAGES), "q", url=redis_url).new == 2
    found = [queue.get(id) for id in MESSAGES["id"]]
    assert [(one.due, one.payload, one.name, one.retries_left) for one in found] == [
        (NOON, {}, "mail", 1),
        (NOON, [1], "mail", 2),
    ]


@makers
def test_table_is_planned_as_it_is(make):
    planned = plan(make(THINGS), Rule("r"))
    assert planned == plan(pa.table(THINGS), Rule("r"))
    again = plan(make(THINGS), Rule("r"), previous=pl.from_arrow(planned))
    assert set(again["action"].to_pylist()) == {"keep"}


def test_paths_of_files_are_planned(tmp_path):
    path = tmp_path / "things.csv"
    path.write_text("id,time,zone\n1,2100-01-31 09:00,Europe/Berlin\n")
    assert plan(path, Rule("r")).num_rows == 1


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (["a"], r"messages must be a table, such as a DataFrame .*, or the path of a file, not \['a'\]"),
        (None, "messages must be a table.* not None"),
        (pl.Series([1]), "messages cannot be read as a table: .*non-struct"),
        (pl.DataFrame({"id": ["a"], "payload": ["{}"], "retries": [2**63]}), "column retries is uint64: Integer value"),
        (pl.DataFrame({"id": [1], "payload": ["{}"]}), "column id must be STRING, not INT64: write it as a text"),
        (pl.DataFrame({"id": ["a"], "payload": ["{}"], "due": [datetime(2100, 1, 1)]}), "a local time without a zone"),  # noqa: DTZ001
    ],
    ids=str,
)
def test_other_object_or_type_is_refused(source, text, queue, redis_url):
    with pytest.raises(ConfigurationError, match=text):
        load(source, "q", url=redis_url)
    assert queue.counts().pending == 0


def test_stream_that_fails_is_told(queue, redis_url):
    def batches():
        yield pa.record_batch({"id": ["a"], "payload": ["{}"]})
        raise OSError("the disk is gone")

    schema = pa.schema({"id": pa.string(), "payload": pa.string()})
    with pytest.raises(ConfigurationError, match=r"messages cannot be read as a table: .*the disk is gone"):
        load(pa.RecordBatchReader.from_batches(schema, batches()), "q", url=redis_url)
    assert queue.counts().pending == 0


def test_no_library_of_tables_is_loaded_but_arrow():
    libraries = {"pandas", "polars", "duckdb"}
    program = f"import sys, delayq.bulk.load, delayq.bulk.plan; print({libraries} & set(sys.modules))"
    assert run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "set()\n"
