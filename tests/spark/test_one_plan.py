"""Plans with Spark and without: the same rows, or the same error, of 100 odd files and of every zone."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from delayq.bulk.files.table_files import read_table, write_table
from delayq.bulk.plan import plan, refused_rows
from delayq.bulk.reminder_rules import Rule
from delayq.errors import ConfigurationError, PlanChangedError
from delayq.spark.pipelines.input_tables import read_table as read_on_spark
from delayq.spark.pipelines.plan import plan as plan_on_spark
from delayq.spark.pipelines.plan import refused_rows as refused_on_spark
from delayq.spark.spark_errors import reason_of
from tests.support.odd_tables import FILES, ODD_ZONES, RULES, WALLS, ZONES, write_odd_file

ON_TIME = Rule("on-time")


def sorted_rows(table: pa.Table) -> list[tuple]:
    return sorted(map(tuple, (row.values() for row in table.to_pylist())), key=repr)


def without_spark(path):
    try:
        return sorted_rows(plan(read_table(path), RULES))
    except ConfigurationError as error:
        return str(error)


def with_spark(spark, path):
    try:
        return sorted_rows(plan_on_spark(read_on_spark(spark, str(path)), RULES).toArrow())
    except Exception as error:  # noqa: BLE001 - Spark's own errors too
        return reason_of(error)


@pytest.mark.parametrize("first", range(0, FILES, 20))
def test_same_rows_or_error_of_100_odd_files(first, spark, tmp_path):
    unlike = []
    for number in range(first, first + 20):
        path = write_odd_file(number, tmp_path)
        ours, theirs = without_spark(path), with_spark(spark, path)
        # A row that is too short is refused by the reader, in its own words.
        if ours != theirs and not ("line " in ours and isinstance(theirs, str)):
            unlike.append((path.name, str(ours)[:600], str(theirs)[:600]))
    assert unlike == []


def test_same_due_times_in_every_zone(spark, tmp_path):
    pairs = [(zone, wall) for zone in ZONES for wall in WALLS[::3]]
    columns = {"id": [str(at) for at in range(len(pairs))], "time": [wall for _, wall in pairs]}
    write_table(pa.table(columns | {"zone": [zone for zone, _ in pairs]}), tmp_path / "zones.parquet")
    ours, theirs = without_spark(tmp_path / "zones.parquet"), with_spark(spark, tmp_path / "zones.parquet")
    assert len(ours) > 2 * len(pairs), str(ours)[:600]
    unlike = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
    assert unlike[:3] == []


def test_same_refused_rows_and_changes(spark, tmp_path):
    day = datetime(2030, 1, 31, 9, tzinfo=UTC)
    zones = ["UTC", "UTC", *ODD_ZONES, None]
    first = pa.table(
        {"id": [str(at) for at in range(len(zones))], "time": [day] * len(zones), "zone": ["UTC"] * len(zones)}
    )
    second = first.set_column(2, "zone", pa.array(zones)).slice(1)
    second = pa.concat_tables([second, pa.table({"id": ["x", "x", None], "time": [day] * 3, "zone": ["UTC"] * 3})])
    write_table(plan(first, ON_TIME), tmp_path / "before.parquet")
    write_table(second, tmp_path / "things.parquet")
    things, previous = (read_on_spark(spark, str(tmp_path / name)) for name in ("things.parquet", "before.parquet"))
    ours = plan(second, ON_TIME, previous=read_table(tmp_path / "before.parquet"), on_error="collect")
    theirs = plan_on_spark(things, ON_TIME, previous=previous, on_error="collect").toArrow()
    assert sorted_rows(ours) == sorted_rows(theirs)
    assert set(ours["action"].to_pylist()) == {"keep", "cancel"}
    assert sorted_rows(refused_rows(second, ON_TIME)) == sorted_rows(refused_on_spark(things, ON_TIME).toArrow())

    with_note = first.append_column("note", pa.array(["x"] * len(zones)))
    write_table(with_note, tmp_path / "note.parquet")
    with pytest.raises(PlanChangedError) as here:
        plan(with_note, ON_TIME, previous=read_table(tmp_path / "before.parquet"))
    with pytest.raises(PlanChangedError) as there:
        plan_on_spark(read_on_spark(spark, str(tmp_path / "note.parquet")), ON_TIME, previous=previous)
    assert str(here.value) == str(there.value)
    assert str(here.value).startswith(f"all {len(zones)} changed: payload has the new column note")
