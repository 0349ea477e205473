"""Rules with a condition: which rows they are for, and conditions that are refused before anything is written."""

import logging
from datetime import UTC, datetime

import pytest
from pyspark.logger import PySparkLogger

from delayq.bulk.files.schemas import PLAN
from delayq.bulk.reminder_rules import Rule, read_rules
from delayq.errors import ConfigurationError
from delayq.spark.pipelines.plan import plan

AT = datetime(2030, 1, 31, 9, tzinfo=UTC)
ROWS = [
    ("a", AT, "UTC", "open", 5),
    ("b", AT, "Europe/Berlin", "closed", 50),
    ("c", AT, "UTC", None, None),
]
SCHEMA = "id STRING, time TIMESTAMP, zone STRING, event STRING, `the fare` INT"


@pytest.fixture
def things(spark):
    return spark.createDataFrame(ROWS, SCHEMA)


def planned(table):
    return sorted((row.rule, row.source) for row in table.collect())


def test_rule_is_for_the_rows_whose_condition_is_true(things):
    rules = [
        Rule("open", where="event = 'open'", payload=[]),
        Rule("not-open", where="event <> 'open'"),
        Rule("cheap", where="coalesce(`the fare`, 0) < 10 AND time > '2030-01-01' -- no fare is cheap"),
        Rule("berlin", where="zone LIKE 'Europe/%' AND id IN ('b', 'c')", repeats=2, every="1d"),
        Rule("none", where="false"),
        Rule("all"),
    ]
    conditional = plan(things, rules)
    assert planned(conditional) == [
        ("all", "a"), ("all", "b"), ("all", "c"), ("berlin", "b"), ("berlin", "b"),
        ("cheap", "a"), ("cheap", "c"), ("not-open", "b"), ("open", "a"),
    ]  # fmt: skip
    everything = {row.id: row for row in plan(things, [Rule("open", payload=[]), Rule("all")]).collect()}
    same = conditional.where("rule IN ('open', 'all')").collect()
    assert [everything[row.id] for row in same] == same, "a condition changes no id, payload or time"


def test_reminder_whose_condition_is_no_longer_true_is_cancelled(spark, things):
    rule = Rule("open", where="event = 'open'")
    before = spark.createDataFrame(plan(things, rule).collect(), PLAN)
    later = spark.createDataFrame([(*ROWS[0][:3], "closed", 5), (*ROWS[1][:3], "open", 50)], SCHEMA)
    after = plan(later, rule, previous=before).collect()
    assert sorted((row.source, row.action) for row in after) == [("a", "cancel"), ("b", "new")]


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("evnt = 'open'", "name `evnt` cannot be resolved. Did you mean one of the following? [`event`,"),
        ("event =", "Syntax error at or near end of input"),
        ("event", 'Filter expression "event" of type "STRING" is not a boolean'),
        ("count(*) > 1", "contains invalid expressions: count(1)"),
        ("due > now()", "name `due` cannot be resolved"),
        ("true) OR (true", "Syntax error at or near ')'"),
    ],
)
def test_invalid_condition_is_refused_with_the_name_of_its_rule(things, where, reason):
    with pytest.raises(ConfigurationError) as refused:
        plan(things, [Rule("good", where="true"), Rule("bad", where=where)])
    assert str(refused.value).startswith("rule 'bad': where: ")
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "SQLSTATE" not in str(refused.value)


def test_random_condition_is_refused(things):
    with pytest.raises(ConfigurationError, match=r"^where of a rule \('r'\): Non-deterministic expression"):
        plan(things, Rule("r", where="rand() < 0.5"))


def test_condition_that_fails_for_a_row_leaves_no_plan(spark, cli, tmp_path):
    (tmp_path / "things.csv").write_text("id,time,zone,gate\na,2030-01-31 09:00,UTC,7\nb,2030-01-31 09:00,UTC,B7\n")
    logged = []
    handler = logging.Handler()
    handler.emit = logged.append
    PySparkLogger.getLogger("SQLQueryContextLogger").addHandler(handler)  # a plain one would break the errors of others
    for where, code, reason in (
        ("int(gate) > 5", 2, "where of a rule ('r'): The value 'B7' of the type \"STRING\" cannot be cast to \"INT\""),
        ("gat > 5", 2, "rule 'r': where: A column, variable, or function parameter with name `gat` cannot be resolved"),
    ):
        (tmp_path / "rules.toml").write_text(f'[rules.r]\nwhere = "{where}"\n')
        ended = cli("spark", "plan", "@things.csv", "@plan", "--rules", "@rules.toml")
        assert ended.exit_code == code
        (line,) = ended.stderr.splitlines()
        assert line.startswith(f"delayq: {reason}")
        assert not (tmp_path / "plan").exists()
    assert not logged, "PySpark logs errors of SQL with their trace to stderr"
    (tmp_path / "rules.toml").write_text("[rules.r]\nwhere = \"gate = 'B7'\"\n")
    assert "1 new" in cli("spark", "plan", "@things.csv", "@plan", "--rules", "@rules.toml").stderr


def test_condition_is_read_from_toml(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text("[rules.r]\nwhere = \"event = 'open'\"\n")
    assert [rule.where for rule in read_rules(path)] == ["event = 'open'"]
    for wrong in ("true", "''", "'  '", "5"):
        path.write_text(f"[rules.r]\nwhere = {wrong}\n")
        with pytest.raises(ConfigurationError, match="rule 'r': where must be a condition, not"):
            read_rules(path)
