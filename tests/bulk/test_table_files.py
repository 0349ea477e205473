"""Tables as files: CSV, JSON Lines and Parquet."""

from __future__ import annotations

import pyarrow as pa
import pytest

from delayq.bulk.files.table_files import read_table, write_table
from delayq.errors import ConfigurationError


def test_csv_has_texts_and_nulls(tmp_path):
    file = tmp_path / "t.CSV"
    file.write_text('\ufeffid,text\n007,"a ""b"", \nc"\n8,\n', "utf-8")
    assert read_table(file).to_pylist() == [{"id": "007", "text": 'a "b", \nc'}, {"id": "8", "text": None}]


def test_cells_of_csv_keep_their_line_ends_wherever_they_are(tmp_path):
    file = tmp_path / "t.csv"
    for at in (1 << 13, 1 << 16, 1 << 20):  # blocks of readers end there
        for ends in ("\r\n", "\n", "\r"):
            cell = "x" * (at - len('text\n"') - 1) + ends + "second line"
            file.write_bytes(f'text\n"{cell}"\r\nafter\r\n'.encode())
            assert read_table(file).column("text").to_pylist() == [cell, "after"]


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_byte_order_mark_is_skipped_and_utf_16_is_refused(tmp_path, name):
    file, text = tmp_path / name, {"t.csv": "id\nä\n", "t.jsonl": '{"id": "ä"}\n'}[name]
    file.write_text(text, "utf-8-sig")
    assert read_table(file).to_pylist() == [{"id": "ä"}]
    file.write_text(text, "utf-16")
    with pytest.raises(ConfigurationError, match="it is UTF-16: save it as UTF-8"):
        read_table(file)


def test_suffix_of_no_format_is_refused(tmp_path):
    (tmp_path / "t.txt").write_text("id\n1\n")
    with pytest.raises(
        ConfigurationError, match=r"t.txt' ends with .txt, not with one of .csv, .jsonl, .ndjson, .json"
    ):
        read_table(tmp_path / "t.txt")
    with pytest.raises(ConfigurationError, match=r"plan.csv' ends with .csv, not with one of .parquet"):
        write_table(pa.table({"id": ["a"]}), tmp_path / "plan.csv")
    assert not (tmp_path / "plan.csv").exists()


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
        ("t.csv", "a,b\n1\n", "line 2: it has 1 columns, not 2"),
        ("t.csv", 'a,b\n\n1,"x\ny"\n2,"half\n3,z\n', "line 5: a quote of the row that begins here is never closed"),
        ("t.csv", 'a,b\n1,"x"y\n', "line 2: "),
        ("t.csv", "a,b,a\n1,2,3\n", "column a is there 2 times: keep one"),
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


def test_iceberg_table_is_not_read_as_parquet(tmp_path):
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "v1.metadata.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=f"{tmp_path} is an Iceberg table, whose files have deleted rows too"):
        read_table(tmp_path)
