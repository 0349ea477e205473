"""Tables of pandas, Polars, DuckDB and PyArrow wherever a file is taken, by the Arrow PyCapsule interface."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from delayq import DelayQueue
from delayq.bulk import Rule, load, plan
from delayq.bulk.files.arrow_tables import table_of
from delayq.errors import ConfigurationError
from tests.support.processes import run

NOON = datetime(2100, 1, 31, 12, 0, tzinfo=UTC)
ROWS = {
    "id": ["a", "b"],
    "due": [NOON, NOON],
    "payload": ['{"n": 1}', "2"],
    "retries": [0, 7],
    "name": ["remind", "remind"],
    "priority": [1, 2],
}
THINGS = {"id": ["x", "y"], "time": ["2099-01-31 09:00"] * 2, "zone": ["Europe/Berlin"] * 2, "room": ["r1", "r1"]}


def pandas_frame(rows):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rows)
    categories = {name: "category" for name in ("name", "zone") if name in frame}
    return frame.astype(categories | ({"retries": "uint8", "priority": "Int8"} if "retries" in frame else {}))


def polars_frame(rows):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(rows)
    casts = [polars.col(name).cast(polars.Categorical) for name in ("name", "zone") if name in frame.columns]
    casts += [polars.col(name).cast(polars.UInt16) for name in ("retries",) if name in frame.columns]
    return frame.with_columns(casts)


def duckdb_relation(rows):
    duckdb = pytest.importorskip("duckdb")
    there = pa.table(rows)
    relation = duckdb.connect().from_arrow(there)
    if "retries" in rows:
        relation = relation.project("* replace (retries::utinyint as retries, name::enum('remind', 'x') as name)")
    return relation


def arrow_reader(rows):
    """What is read once, with dictionaries of views, views of bytes, and unsigned numbers."""
    table = pa.table(rows)
    for at, field in enumerate(table.schema):
        column = table.column(at)
        if field.name == "payload":
            column = column.cast(pa.large_string())
        elif field.name in ("name", "zone"):
            column = column.combine_chunks().dictionary_encode()
            column = pa.DictionaryArray.from_arrays(
                column.indices.cast(pa.uint16()), column.dictionary.cast(pa.string_view())
            )
        elif pa.types.is_string(field.type):
            column = column.cast(pa.string_view())
        elif pa.types.is_integer(field.type):
            column = column.cast(pa.uint8())
        table = table.set_column(at, field.name, column)
    return table.to_reader()  # fmt: skip


LIBRARIES = pytest.mark.parametrize("made", [pandas_frame, polars_frame, duckdb_relation, arrow_reader, pa.table])


@LIBRARIES
def test_load_takes_the_tables_of_each_library(redis_url, made):
    with DelayQueue("q", url=redis_url) as queue:
        assert load(made(ROWS), "q", url=redis_url).new == 2
        found = [queue.get(id) for id in ROWS["id"]]
        assert [(one.due, one.payload) for one in found] == [(NOON, {"n": 1}), (NOON, 2)]
        assert [(one.retries_left, one.name, one.priority) for one in found] == [(0, "remind", 1), (7, "remind", 2)]


@LIBRARIES
def test_plan_takes_the_tables_of_each_library(made):
    rules = Rule("day-before", offset="-1d")
    planned = plan(made(THINGS), rules)
    assert planned == plan(pa.table(THINGS), rules)
    again = plan(made(THINGS), rules, previous=planned.to_reader())
    assert set(again["action"].to_pylist()) == {"keep"}


@pytest.mark.parametrize("made", [pandas_frame, polars_frame])
def test_plan_that_went_through_another_library_is_a_previous_plan(made):
    rules = Rule("day-before", offset="-1d")
    planned = plan(pa.table(THINGS), rules)
    library = pytest.importorskip(made.__name__.split("_")[0])
    there = planned.to_pandas() if made is pandas_frame else library.from_arrow(planned)
    assert set(plan(pa.table(THINGS), rules, previous=there)["action"].to_pylist()) == {"keep"}


def test_empty_dictionary_has_the_type_of_its_values():
    none = pa.DictionaryArray.from_arrays(pa.array([], pa.int8()), pa.array([], pa.string_view()))
    empty = pa.table({"name": none})
    assert table_of(empty).schema.field("name").type == pa.string()
    assert table_of(pa.table({"name": pa.chunked_array([], none.type)})).num_rows == 0


def test_payloads_that_repeat_stay_dictionaries():
    repeated = pa.table({"payload": pa.array(["x"] * 5).dictionary_encode()})
    assert table_of(repeated, repeated=("payload",)) == repeated


@pytest.mark.parametrize("wrong", [[{"id": "a"}], None, 7, b"messages.csv"])
def test_what_is_no_table_is_refused(redis_url, wrong):
    with pytest.raises(
        ConfigurationError, match="messages must be a path or a table of Arrow, pandas, Polars or DuckDB"
    ):
        load(wrong, "q", url=redis_url)


def test_stream_that_fails_is_refused(redis_url):
    class Broken:
        def __arrow_c_stream__(self, requested_schema=None):
            raise RuntimeError("closed")

    with pytest.raises(ConfigurationError, match="cannot read messages, a Broken: closed"):
        load(Broken(), "q", url=redis_url)


def test_number_too_large_for_a_signed_one_names_its_column(redis_url):
    with pytest.raises(ConfigurationError, match="column 'retries' is uint64: Integer value 18446744073709551615 not"):
        load(pa.table({**ROWS, "retries": pa.array([0, 2**64 - 1], pa.uint64())}), "q", url=redis_url)


def test_no_library_is_imported_by_the_package():
    code = "import sys, delayq.bulk.load, delayq.bulk.plan; print({'pandas', 'polars', 'duckdb'} & set(sys.modules))"
    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
