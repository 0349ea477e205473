"""Tables as files: CSV, JSON Lines and Parquet."""

from __future__ import annotations

import pyarrow as pa
import pytest

from delayq.bulk.table_files import read_table, write_table
from delayq.errors import ConfigurationError


def test_csv_has_texts_and_nulls(tmp_path):
    file = tmp_path / "t.CSV"
    file.write_text('\ufeffid,text\n007,"a ""b"", \nc"\n8,\n', "utf-8")
    assert read_table(file).to_pylist() == [{"id": "007", "text": 'a "b", \nc'}, {"id": "8", "text": None}]


def test_json_lines_may_lack_fields(tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text('{"id": 1}\n\n{"id": 2, "at": "2027-01-31 09:00", "n": 1.5}\n')
    first, second = {"id": 1, "at": None, "n": None}, {"id": 2, "at": "2027-01-31 09:00", "n": 1.5}
    assert read_table(file).to_pylist() == [first, second]


def test_what_is_written_is_read(tmp_path):
    table = pa.table({"id": ["a", None]})
    write_table(table, tmp_path / "t")
    write_table(table, tmp_path / "t")
    assert read_table(tmp_path / "t").equals(table)
    assert [file.name for file in tmp_path.iterdir()] == ["t"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "", "the first line must have the column names"),
        ("t.csv", "a,b\n1\n", "Expected 2 columns, got 1"),
        ("t.jsonl", '{"id": 1}\n{"id"\n', "line 2: "),
        ("t.jsonl", "[1]", "line 1: "),
        ("t.jsonl", '{"id": 1}\n{"id": "x"}\n', ""),
        ("t.parquet", "no", ""),
    ],
)
def test_unreadable_file_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigurationError) as error:
        read_table(tmp_path / name)
    assert str(error.value).startswith(f"cannot read {tmp_path / name}: ")
    assert message in str(error.value)


def test_missing_file_and_folder_in_the_way_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="there is no file or folder"):
        read_table(tmp_path / "missing.csv")
    with pytest.raises(ConfigurationError, match="is a folder"):
        write_table(pa.table({"id": ["a"]}), tmp_path)
    with pytest.raises(ConfigurationError, match="cannot write"):
        write_table(pa.table({"id": ["a"]}), tmp_path / "missing" / "t")


def test_delta_table_is_not_read_as_parquet(tmp_path):
    """Its folder keeps the files of former versions, with rows that were deleted."""
    write_table(pa.table({"id": ["a", "deleted"]}), tmp_path / "part-0.parquet")
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(ConfigurationError, match=f"{tmp_path} is a Delta table, whose files have deleted rows too"):
        read_table(tmp_path)
