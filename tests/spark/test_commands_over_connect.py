"""`delayq spark --master sc://…`: every command on a Spark Connect server, one after another in one process."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from tests.support.processes import run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

THINGS = """\
id,time,zone,patient
a,2030-01-31 09:00,Europe/Berlin,Ada
b,2030-03-28 14:30,UTC,Bo
c,2030-05-05,Mars/Base,Cy
"""
RULES = '[rules.day-before]\noffset = "-1d"\nwhere = "patient != \'Nobody\'"\n'
COMMANDS = """
import json, sys
from click.testing import CliRunner
from delayq.cli import main

master, url, commands = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
for words in commands:
    where = [] if words[0] == "archive" else ["spark", "--master", master]
    words = ["--url", url, *where, *words]
    ended = CliRunner().invoke(main, words, prog_name="delayq", catch_exceptions=False)
    print(json.dumps([ended.exit_code, ended.stdout, ended.stderr]))
"""


@pytest.fixture
def over_connect(connect_url, redis_url, tmp_path):
    """Runs commands of `delayq spark` in a process of their own; returns their exit codes, stdout and stderr."""

    def invoke(*commands):
        words = [[word.replace("@", f"{tmp_path}/") for word in shlex.split(command)] for command in commands]
        program = [sys.executable, "-W", "ignore", "-c", COMMANDS, connect_url, redis_url, json.dumps(words)]
        done = run(program, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return invoke


def test_every_command_over_spark_connect(over_connect, visits, tmp_path):
    (tmp_path / "things.csv").write_text(THINGS)
    (tmp_path / "rules.toml").write_text(RULES)
    (tmp_path / "naive.csv").write_text("id,due,payload\nnaive,2031-01-31 09:00,1\n")
    planned, again, loaded, naive, archived, reported, audited, lapsed, *rest = over_connect(
        "plan @things.csv @plan --rules @rules.toml --on-error collect --rejects @rejects --json",
        "plan @things.csv @next --rules @rules.toml --on-error collect --previous @plan --json",
        "load @next visits --run first --json",
        "load @naive.csv visits --schema 'id STRING, due TIMESTAMP, payload STRING' --json",
        "archive visits @archive --json",
        "report @archive @report --queue visits --json",
        "audit @next @archive visits --report @report --out @reminders --json",
        "lapse @next @lapse --from 2040-01-01T00:00Z --json",
        "load table:nowhere visits",
        "plan @things.csv @wrong --rules @rules.toml",
    )
    facts = [json.loads(one[1]) for one in (planned, again, loaded, naive, archived, reported, audited, lapsed)]
    assert [facts[0][name] for name in ("new", "keep", "refused")] == [2, 0, 1]
    assert [facts[1][name] for name in ("new", "keep", "refused")] == [0, 2, 1]
    assert (facts[2]["run"], facts[2]["state"], facts[2]["new"], facts[3]["new"]) == ("first", "committed", 2, 1)
    assert "due has times without a zone" in naive[2]
    assert (facts[4]["events"], facts[5]["messages"], facts[7]["reminders"]) == (3, 3, 2)
    assert (tmp_path / "report" / "report.html").exists()
    assert (audited[0], facts[6]["findings"], facts[6]["statuses"]["scheduled"]) == (1, {"unplanned": 1}, 2)
    errors = [(code, err.splitlines()) for code, _, err in rest]
    assert [(code, len(lines)) for code, lines in errors] == [(1, 1), (2, 1)]
    assert errors[0][1][0].startswith("delayq: The table or view `nowhere` cannot be found")
    assert errors[1][1][0].startswith("delayq: zone is unknown in 1 of 3 rows")
