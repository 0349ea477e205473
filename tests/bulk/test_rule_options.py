"""Options of sends in the rules of a plan: they are columns of the plan, and hold for its messages."""

from __future__ import annotations

import pyarrow as pa
import pytest

from delayq import DelayQueue
from delayq.bulk import Rule, load, plan, read_rules
from delayq.bulk.option_columns import NOT_OF_RULES, OPTION_COLUMNS
from delayq.bulk.plan import PLAN
from delayq.errors import ConfigurationError

RULES = """
[rules.before]
offset = "-1d"
options = { name = "remind", priority = 5, expires = 3600 }
[rules.after]
offset = "1d"
options = { name = "thank" }
[rules.plain]
"""
THINGS = pa.table({"id": ["x"], "time": ["2020-01-31 09:00"], "zone": ["Europe/Berlin"], "room": ["r1"]})


@pytest.fixture
def rules(tmp_path):
    (tmp_path / "rules.toml").write_text(RULES)
    return read_rules(tmp_path / "rules.toml")


def test_messages_of_a_plan_call_the_task_of_their_rule(redis_url, rules):
    ran = []
    with DelayQueue("q", url=redis_url) as queue:

        @queue.task
        def remind(source: str, room: str, **about: str | int) -> None:
            ran.append(("remind", source, room, about["rule"]))

        @queue.task
        def thank(source: str, **about: str | int) -> None:
            ran.append(("thank", source, about["room"], about["rule"]))

        planned = plan(THINGS, [rule for rule in rules if rule.name != "plain"])
        load(planned.drop_columns("due"), "q", url=redis_url)
        found = {one["rule"]: queue.get(one["id"]) for one in planned.to_pylist()}
        assert (found["before"].priority, found["after"].priority) == (5, 0)
        assert found["before"].expires is not None
        assert found["after"].expires is None
        queue.run(burst=True)
    assert sorted(ran) == [("remind", "x", "r1", "before"), ("thank", "x", "r1", "after")]


def test_options_are_columns_that_only_such_plans_have(rules):
    planned = plan(THINGS, rules)
    rows = {row["rule"]: (row["name"], row["priority"], row["expires"]) for row in planned.to_pylist()}
    assert rows == {"before": ("remind", "5", "3600"), "after": ("thank", None, None), "plain": (None, None, None)}
    assert plan(THINGS, rules[-1]).schema == PLAN


def test_cancels_have_no_options_and_options_change_no_reminder(rules):
    before = plan(THINGS, rules)
    other = Rule("after", offset="1d", options={"name": "greet"})
    again = plan(THINGS, [other], previous=before)
    assert {(row["rule"], row["action"], row["name"]) for row in again.to_pylist()} == {
        ("after", "keep", "greet"),
        ("before", "cancel", None),
        ("plain", "cancel", None),
    }


def test_options_that_move_the_due_time_are_known():
    assert set(NOT_OF_RULES) < set(OPTION_COLUMNS)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"piority": 1}, "rule 'r': options: unknown option 'piority', did you mean 'priority'?"),
        ({"priority": 101}, "rule 'r': options: priority must be a whole number from -100 to 100, not 101"),
        ({"timeout": "soon"}, "rule 'r': options: timeout must look like"),
        ({"expires": True}, "rule 'r': options: expires must be a text or a number, not True"),
        ({"hours": "09:00-17:00"}, "rule 'r': options: hours is for no plan"),
        ({"replace": True}, "rule 'r': options: unknown option 'replace'"),
        ("name", "rule 'r': options must be a table of options, not 'name'"),
    ],
)
def test_wrong_options_of_a_rule_are_refused(options, problem):
    with pytest.raises(ConfigurationError) as refused:
        Rule("r", options=options)
    assert str(refused.value).startswith(problem)
