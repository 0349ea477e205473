"""Plans without Spark: due times, payloads, changes since the previous plan, and refused input."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest

from delayq.broker.keys import check_id
from delayq.bulk.message_ids import id_of
from delayq.bulk.plan import PLAN, plan
from delayq.bulk.reminder_rules import Rule
from delayq.errors import ConfigurationError
from tests.support.plans import INVALID_ROWS, NOT_LOCAL_TIMES, RULES, ZONES, at, expected, moments

SOON = Rule("soon", offset="-2h")
ON_TIME = Rule("on-time")
INSTANT = pa.timestamp("us", tz="UTC")
DAY = datetime(2027, 3, 1, tzinfo=UTC)


def things(rows, **types):
    """Make a table of (id, time, zone) and further columns."""
    names = {"id": pa.string(), "time": INSTANT, "zone": pa.string()} | types
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, names.values(), strict=True)], list(names))


def by_id(planned):
    return {row["id"]: row for row in planned.to_pylist()}


def actions(planned):
    return sorted((row["source"], row["revision"], row["action"]) for row in planned.to_pylist())


@pytest.mark.long
def test_due_times_agree_with_zoneinfo():
    cases = {f"{zone} {number}": (moment, zone) for zone in ZONES for number, moment in enumerate(moments(zone))}
    planned = {}
    for row in plan(things([(id, *case) for id, case in cases.items()]), RULES).to_pylist():
        planned.setdefault((row["source"], row["rule"]), []).append(row["due"])
    for id, (moment, zone) in cases.items():
        for rule in RULES:
            assert planned.pop((id, rule.name)) == expected(rule, moment, zone), (id, moment, rule)
    assert not planned


def test_each_reminder_has_a_stable_id_and_its_payload():
    ((id, row),) = by_id(plan(things([("a", DAY, "UTC", None, 'x "y"')], n=pa.int64(), text=pa.string()), SOON)).items()
    micros = int((DAY - timedelta(hours=2)).timestamp()) * 1_000_000
    assert id == check_id(id_of("a", "soon", 0, micros, 0))
    due = "2027-02-28T22:00:00.000000Z"
    standard = {"source": "a", "rule": "soon", "occurrence": 0, "due": due}
    assert json.loads(row["payload"]) == standard | {"n": None, "text": 'x "y"'}
    assert (row["due"], row["revision"], row["action"], row["retries"]) == (DAY - timedelta(hours=2), 0, "new", 3)


@pytest.mark.parametrize(
    ("time", "kind"),
    [
        ("2027-03-28 02:30", pa.string()),
        ("2027-03-28T02:30:00.000000", pa.large_string()),
        (datetime(2027, 3, 28, 2, 30), pa.timestamp("s")),  # noqa: DTZ001 - a wall clock
        (datetime(2027, 3, 28, 1, 30, tzinfo=UTC), pa.timestamp("ns", tz="Asia/Tokyo")),
    ],
)
def test_times_of_every_type(time, kind):
    (row,) = plan(things([("a", time, "Europe/Berlin")], time=kind), ON_TIME).to_pylist()
    assert row["due"] == at("2027-03-28T01:30:00+00:00")


def test_a_date_is_its_midnight():
    (row,) = plan(things([("a", date(2027, 1, 31), "Asia/Kathmandu")], time=pa.date32()), ON_TIME).to_pylist()
    assert row["due"] == at("2027-01-30T18:15:00+00:00")


def test_changes_since_the_previous_plan():
    def rows(*ids, text="x"):
        return things([(id, DAY, "UTC", text) for id in ids], text=pa.string())

    first = plan(rows("stays", "goes"), ON_TIME)
    second = plan(rows("stays", "comes"), ON_TIME, previous=first)
    assert actions(second) == [("comes", 0, "new"), ("goes", 0, "cancel"), ("stays", 0, "keep")]
    assert by_id(first).keys() & by_id(second).keys() == set(by_id(first))
    back = plan(rows("stays", "goes"), ON_TIME, previous=second)
    assert actions(back) == [("comes", 0, "cancel"), ("goes", 0, "cancel"), ("goes", 1, "new"), ("stays", 0, "keep")]
    changed = plan(rows("stays", text="y"), ON_TIME, previous=first)
    assert actions(changed) == [("goes", 0, "cancel"), ("stays", 0, "cancel"), ("stays", 1, "new")]
    later = plan(rows("stays"), ON_TIME, previous=first, since=DAY + timedelta(days=1))
    assert actions(later) == [("stays", 0, "keep")]


# Refused input


@pytest.mark.parametrize(("rows", "message"), INVALID_ROWS)
def test_invalid_rows_are_refused_with_their_number_and_an_example(rows, message):
    with pytest.raises(ConfigurationError) as error:
        plan(things(rows), SOON)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("text", NOT_LOCAL_TIMES)
def test_text_that_is_not_a_local_time_is_refused(text):
    table = things([("a", "2013-01-31", "UTC"), ("b", text, "UTC")], time=pa.string())
    with pytest.raises(ConfigurationError) as error:
        plan(table, SOON)
    assert str(error.value).startswith(f"time is invalid in 1 of 2 rows, for example {text!r} of 'b'; a text must")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"id": ["a"], "zone": ["UTC"]}), "column 'time' is missing: id, time and zone are required"),
        (things([("a", 5, "UTC")], time=pa.int64()), "column 'time' must be a TIMESTAMP"),
        (things([("a", DAY, "UTC", [1])], tags=pa.list_(pa.int64())), "column 'tags' is list<"),
    ],
)
def test_invalid_columns_are_refused(table, message):
    with pytest.raises(ConfigurationError) as error:
        plan(table, SOON)
    assert str(error.value).startswith(message)


def test_condition_of_spark_is_refused():
    with pytest.raises(ConfigurationError, match="rule 'open': a where is a condition of Spark"):
        plan(things([]), Rule("open", where="true"))


def test_previous_must_be_a_plan():
    with pytest.raises(ConfigurationError, match="previous is not a plan: its column 'source' is missing"):
        plan(things([]), SOON, previous=pa.table({"id": ["a"]}))
    planned = plan(things([]), SOON)
    without_zone = planned.set_column(4, "due", planned["due"].cast(pa.timestamp("us")))
    with pytest.raises(ConfigurationError, match="previous is not a plan: its column 'due' is timestamp"):
        plan(things([]), SOON, previous=without_zone)


def test_an_empty_table_has_an_empty_plan():
    assert plan(things([]), SOON).equals(PLAN.empty_table())
