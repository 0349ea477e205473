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
    assert again.json == {"plan": "plan-2", "new": 1, "keep": 1, "cancel": 1, "refused": 0}


def test_invalid_rows_are_collected(cli, files):
    (files / "things.csv").write_text(THINGS + "visit-3,2099-01-31,Mars/Base\nvisit-1,2099-01-31,UTC\n")
    failed = cli("plan", "things.csv", "p", "--rules", "rules.toml")
    assert (failed.code, failed.line[:31]) == (2, "zone is unknown in 1 of 4 rows,")
    collect = ["--on-error", "collect", "--rejects", "rejects"]
    planned = cli("plan", "things.csv", "p", "--rules", "rules.toml", *collect)
    assert (planned.code, planned.err) == (0, "planned p: 1 new, 0 keep, 0 cancel, 3 refused\n")
    refused = read_table("rejects").to_pylist()
    assert [row["id"] for row in refused] == ["visit-1", "visit-3", "visit-1"]
    assert refused[1]["reason"].startswith("zone is unknown: 'Mars/Base'")
    assert refused[0]["reason"] == "id occurs in more than one row: ids must be unique"


def test_new_column_is_told_and_accepted_only_on_request(cli, files):
    compare = ["--rules", "rules.toml", "--previous", "plan-1"]
    cli("plan", "things.csv", "plan-1", "--rules", "rules.toml")
    (files / "things.csv").write_text(THINGS.replace("\n", ",x\n").replace("zone,x", "zone,note"))
    refused = cli("plan", "things.csv", "plan-2", *compare)
    assert (refused.code, (files / "plan-2").exists()) == (2, False)
    assert refused.line.startswith("all 2 changed: payload has the new column note; each would be cancelled and sent")
    accepted = cli("plan", "things.csv", "plan-2", *compare, "--accept-changes")
    assert (accepted.code, accepted.err.splitlines()) == (
        0,
        ["all 2 changed: payload has the new column note", "planned plan-2: 2 new, 0 keep, 2 cancel"],
    )


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
        (["things.csv", "p", "--rules", "rules.toml", "--rejects", "r"], 2, "--rejects needs --on-error collect"),
        (
            ["things.csv", "p", "--rules", "rules.toml", "--on-error", "collect", "--rejects", "p"],
            2,
            "write the rejects to another path",
        ),
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
