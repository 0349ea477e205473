"""`delayq plan`: reminders for the rows of a file, without Spark."""

from __future__ import annotations

import pytest

from delayq.bulk.files.table_files import read_table

THINGS = "id,time,zone\nvisit-1,2099-01-31 09:00,Europe/Berlin\nvisit-2,2099-03-28 14:30,America/New_York\n"
RULES = '[rules.day-before]\noffset = "-1d"\nat = "18:00"\n'


@pytest.fixture(autouse=True)
def files(tmp_path):
    (tmp_path / "things.csv").write_text(THINGS)
    (tmp_path / "rules.toml").write_text(RULES)
    return tmp_path


def test_plans_and_compares_with_the_previous_plan(cli, files):
    planned = cli("plan", "things.csv", "plan-1", "--rules", "rules.toml")
    assert (planned.code, planned.out, planned.err) == (0, "", "planned plan-1: 2 new, 0 keep, 0 cancel\n")
    assert [row["due"].isoformat() for row in read_table("plan-1").to_pylist()] == [
        "2099-01-30T17:00:00+00:00",
        "2099-03-27T22:00:00+00:00",
    ]
    (files / "things.csv").write_text(THINGS.replace("01-31", "02-01"))
    again = cli("plan", "things.csv", "plan-2", "--rules", "rules.toml", "--previous", "plan-1", "--json")
    assert again.json == {"plan": "plan-2", "new": 1, "keep": 1, "cancel": 1}


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["missing.csv", "p", "--rules", "rules.toml"], 2, "there is no file or folder 'missing.csv'"),
        (["rules.toml", "p", "--rules", "rules.toml"], 2, "'rules.toml' ends with .toml, not with one of .csv"),
        (["things.csv", "p.csv", "--rules", "rules.toml"], 2, "'p.csv' ends with .csv, not with one of .parquet"),
        (["things.csv", "p", "--rules", "things.csv"], 2, "cannot read the rules in things.csv"),
        (["things.csv", "missing/p", "--rules", "rules.toml"], 2, "cannot write missing/p: "),
        (["things.csv", "p", "--rules", "rules.toml", "--previous", "p"], 2, "write the new one to another path"),
        (["things.csv", "p", "--rules", "rules.toml", "--previous", "things.csv"], 2, "previous is not a plan"),
    ],
)
def test_bad_input_is_one_line(cli, arguments, code, line):
    ended = cli("plan", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert line in ended.err.splitlines()[-1]


def test_says_what_to_install(cli, without):
    without("pyarrow", "delayq.bulk")
    ended = cli("plan", "things.csv", "p", "--rules", "rules.toml")
    assert (ended.code, ended.line) == (1, "pyarrow is not installed: pip install 'delayq[bulk]'")
