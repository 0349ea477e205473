"""Plans that leave out the rows which cannot be planned, instead of failing."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from delayq.bulk import Rule, plan, rejects
from delayq.bulk.plan_columns import REASONS
from delayq.errors import ConfigurationError
from tests.bulk.bad_rows import BAD, GOOD, HAD, RULE, things


def rows_of(table, *columns):
    return sorted(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


def test_bad_rows_are_left_out_and_the_others_planned():
    planned = plan(things(), RULE, on_error="collect")
    assert planned == plan(things().filter(pa.array(GOOD)), RULE)
    assert rejects(things(), RULE).to_pylist() == BAD
    assert {row["reason"] for row in BAD} == set(REASONS.values())


def test_without_bad_rows_nothing_is_rejected():
    good = things().filter(pa.array(GOOD))
    assert rejects(good, RULE).num_rows == 0
    assert plan(good, RULE, on_error="collect") == plan(good, RULE)


def test_reminders_of_a_bad_row_stay_as_they_were():
    before = plan(pa.table(HAD), RULE)
    gone = plan(pa.table(HAD).slice(0, 3), RULE, previous=before)  # the last one is cancelled
    after = plan(things(), RULE, previous=gone, on_error="collect")
    actions = dict(rows_of(after, "source", "action"))
    assert actions == {"fine": "keep", "nowhere": "keep", "twice": "keep", "late": "cancel", "new": "new"}
    assert dict(rows_of(after, "source", "id"))["nowhere"] == dict(rows_of(before, "source", "id"))["nowhere"]


def test_cancel_of_a_bad_row_goes_once_it_is_past():
    gone = plan(pa.table(HAD).slice(0, 1), RULE, previous=plan(pa.table(HAD), RULE))
    since = datetime(2101, 1, 1, tzinfo=UTC)
    after = plan(things(), RULE, previous=gone, since=since, on_error="collect")
    assert set(after["action"].to_pylist()) == {"keep", "new"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"on_error": "ignore"}, "on_error must be fail or collect, not 'ignore'"),
        ({"things": things().append_column("Reason", [["x"] * 9])}, "column 'reason' would be that of rejected rows"),
        ({"things": things().drop_columns("zone")}, "column 'zone' is missing"),
        ({"rules": Rule("r", where="id > 5")}, "a where is a condition of Spark"),
    ],
    ids=str,
)
def test_other_errors_end_the_plan(change, text):
    with pytest.raises(ConfigurationError, match=text):
        plan(**{"things": things(), "rules": RULE, "on_error": "collect"} | change)
