"""Plans of files with odd types, encodings, zones and rows: each is planned, or refused with one typed error."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from delayq import PlanChangedError
from delayq.bulk.files.table_files import read_table
from delayq.bulk.plan import plan, refused_rows
from delayq.bulk.reminder_rules import Rule, is_zone
from delayq.errors import ConfigurationError
from tests.support.odd_tables import FILES, ODD_ZONES, RULES, ZONES, write_odd_file

DAY = datetime(2030, 1, 31, 9, tzinfo=UTC)
ON_TIME = Rule("on-time")


def things(rows, **more):
    return pa.table(
        {
            "id": [id for id, _, _ in rows],
            "time": pa.array([time for _, time, _ in rows], pa.timestamp("us", "UTC")),
            "zone": [zone for _, _, zone in rows],
            **{name: [value] * len(rows) for name, value in more.items()},
        }
    )


def test_every_file_is_planned_or_refused_with_one_error(tmp_path):
    planned, refused = 0, set()
    for number in range(FILES):
        path = write_odd_file(number, tmp_path)
        try:
            table = read_table(path)
            planned += plan(table, RULES).num_rows > 0
        except ConfigurationError as error:
            refused.add(str(error).split(" in ")[0][:40])
        else:
            assert refused_rows(table, RULES).num_rows == 0
    assert planned > FILES / 3
    assert len(refused) > 10, refused


def test_zones_are_those_of_python():
    assert all(map(is_zone, ZONES))
    assert not any(map(is_zone, ODD_ZONES))
    assert is_zone("-12:30")


def test_refused_rows_are_left_out_and_their_reminders_stay():
    first = plan(things([("a", DAY, "UTC"), ("b", DAY, "UTC"), ("c", DAY, "UTC")]), ON_TIME)
    second = things(
        [("a", DAY, "Mars/Base"), ("b", DAY, "UTC"), (None, DAY, "UTC"), ("d", DAY, "UTC"), ("d", DAY, "UTC")]
    )
    planned = plan(second, ON_TIME, previous=first, on_error="collect")
    assert sorted((row["source"], row["action"]) for row in planned.to_pylist()) == [
        ("a", "keep"),
        ("b", "keep"),
        ("c", "cancel"),
    ]
    assert [(row["id"], row["reason"][:22]) for row in refused_rows(second, ON_TIME).to_pylist()] == [
        ("a", "zone is unknown: 'Mars"),
        (None, "id is null"),
        ("d", "id occurs in more than"),
        ("d", "id occurs in more than"),
    ]


def test_due_times_outside_of_the_calendar_are_refused():
    with pytest.raises(ConfigurationError, match="outside of the years 1 to 9999 in 1 of 1 rows"):
        plan(things([("a", datetime(9999, 12, 30, tzinfo=UTC), "UTC")]), Rule("later", offset="30d"))


def test_new_columns_are_told_and_refused_beyond_half_of_the_reminders():
    rows = [(id, DAY, "UTC") for id in "abcde"]
    first, second = plan(things(rows), ON_TIME), things(rows, note="x")
    with pytest.raises(PlanChangedError, match="all 5 changed: payload has the new column note; "):
        plan(second, ON_TIME, previous=first)
    told: list[str] = []
    again = plan(second, ON_TIME, previous=first, accept_changes=True, tell=told.append)
    assert told == ["all 5 changed: payload has the new column note"]
    plan(second, ON_TIME, previous=again, tell=told.append)
    plan(second, ON_TIME, previous=first, since=DAY + timedelta(days=1), tell=told.append)  # all are past
    assert len(told) == 1
    with pytest.raises(PlanChangedError, match="all 5 changed: payload lacks the column note; "):
        plan(things(rows), ON_TIME, previous=again)


def test_smaller_share_is_only_told():
    few = Rule("few", payload=["zone"])
    rows, told = [(id, DAY, "UTC") for id in "ab"], list[str]()
    first = plan(things(rows), [ON_TIME, few])
    plan(things(rows, note="x"), [ON_TIME, few], previous=first, tell=told.append)
    assert told == ["2 of 4 changed: payload has the new column note"]


def test_time_column_is_named():
    table = things([("a", DAY, "UTC")]).append_column("hour", pa.array([1], pa.time64("us")))
    with pytest.raises(ConfigurationError, match="column 'hour' is a TIME, which a payload cannot have"):
        plan(table, ON_TIME)
