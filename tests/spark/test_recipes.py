"""The recipes of the handbook run, as far as that is possible without Airflow and dbt."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest

import delayq
from delayq import DelayQueue
from tests.support.processes import run

pytestmark = pytest.mark.spark

PAGE = Path(delayq.__file__).parent / "docs" / "spark-recipes.md"
THINGS = "id,time,zone\n"


def block(heading, language):
    """Return the first block of a language below a heading."""
    section = PAGE.read_text().partition(f"## {heading}\n")[2]
    return re.search(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]


class BashOperator:
    """Stands for Airflow's: collects the tasks in the order of their creation and of `>>`."""

    tasks: list[BashOperator] = []  # noqa: RUF012 - of the one test

    def __init__(self, *, task_id, bash_command, cwd, env, append_env):
        self.task_id = task_id
        self.command = bash_command
        assert append_env
        assert set(env) == {"DELAYQ_URL"}
        assert cwd
        self.tasks.append(self)

    def __rshift__(self, other):
        assert self.tasks.index(other) == self.tasks.index(self) + 1
        return other


class Dag:
    """Stands for Airflow's."""

    def __init__(self, name, **options):
        assert options["max_active_runs"] == 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def airflow(monkeypatch):
    modules = {
        "airflow.providers.standard.operators.bash": {"BashOperator": BashOperator},
        "airflow.sdk": {"DAG": Dag},
    }
    for name, members in modules.items():
        for end in range(1, name.count(".") + 1):
            monkeypatch.setitem(sys.modules, ".".join(name.split(".")[:end]), ModuleType("airflow"))
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(BashOperator, "tasks", [])
    return BashOperator.tasks


@pytest.mark.long
@pytest.mark.timeout(600)
def test_airflow_dag_plans_loads_archives_and_audits(airflow, cli, visits, tmp_path):
    exec(block("A daily Airflow DAG", "python").replace("/srv/reminders", str(tmp_path)), {})
    assert [task.task_id for task in airflow] == ["plan", "load", "archive", "audit"]
    at = datetime.now(UTC) + timedelta(days=1)
    (tmp_path / "rules.toml").write_text('[rules.before]\noffset = "-1h"\n')
    (tmp_path / "plans").mkdir()
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "delayq"  # notes the command, so that it runs in this process
    shim.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$NOTED"\n')
    shim.chmod(0o755)
    environ = {**os.environ, "PATH": f"{shim.parent}:{os.environ['PATH']}", "NOTED": str(tmp_path / "noted")}
    for day, visitors, tasks in (
        ("2027-01-01", "ab", airflow[:2]),
        ("2027-01-02", "bc", airflow[:2]),
        ("2027-01-02", "bc", airflow),  # again, as after a task that failed
    ):
        rows = "".join(f"{visitor},{at:%Y-%m-%d %H:%M},UTC\n" for visitor in visitors)
        (tmp_path / "things.csv").write_text(THINGS + rows)
        for task in tasks:
            command = task.command.replace("{{ ds }}", day)
            run(["bash", "-c", command], check=True, capture_output=True, text=True, env=environ, cwd=tmp_path)
            ended = cli(*(tmp_path / "noted").read_text().splitlines())
            assert ended.exit_code == 0, (day, task.task_id, ended.output)
    assert sorted(message.payload["source"] for message in visits.list("pending").messages) == ["b", "c"]
    assert visits.stats().totals["cancelled"] == 1


def test_foreach_batch_sends_each_row_once(spark, redis_url, tmp_path, monkeypatch):
    monkeypatch.setenv("DELAYQ_URL", redis_url)
    (tmp_path / "orders").mkdir()
    code = block("A stream with foreachBatch", "python").replace("/data", str(tmp_path))
    with DelayQueue("orders") as queue:
        for batch in (["1", "2"], ["2", "3"]):
            lines = [json.dumps({"order": n, "pay_until": "2100-01-31T09:00:00Z", "amount": 5}) for n in batch]
            past = json.dumps({"order": "9", "pay_until": "2020-01-31T09:00:00Z", "amount": 5})
            (tmp_path / "orders" / f"{batch[0]}.json").write_text("\n".join([*lines, past]))
            exec(code, {})
        waiting = {message.id: message for message in queue.list("pending").messages}
        assert set(waiting) == {"pay-1", "pay-2", "pay-3"}
        assert waiting["pay-3"].due == datetime(2100, 1, 30, 9, tzinfo=UTC)
        runs = {info.run: (info.new, info.exists) for info in queue.runs()}
    assert runs == {"orders-0": (2, 0), "orders-1": (1, 1)}


def test_dbt_model_is_a_table_of_messages(spark, cli, visits):
    model = block("A dbt model", "sql")
    assert model.count("{{") == 2
    model = model.replace("{{ config(materialized='table') }}", "").replace(
        "{{ source('clinic', 'visits') }}", "clinic.visits"
    )
    command = block("A dbt model", "sh").splitlines()[1]
    spark.sql("CREATE DATABASE clinic")
    try:
        spark.sql(
            "CREATE TABLE clinic.visits USING parquet AS SELECT 7 AS id, 'Ada' AS patient, 'Asia/Kathmandu' AS zone,"
            " localtimestamp() + INTERVAL 12 HOURS AS visit_time"
        )
        spark.sql(f"CREATE TABLE clinic.reminders USING parquet AS {model}")
        for new in (1, 0):
            assert f"{new} new" in cli(*shlex.split(command)[1:]).stderr
        (message,) = visits.list("pending").messages
        (row,) = spark.sql("SELECT visit_time FROM clinic.visits").collect()
    finally:
        spark.sql("DROP DATABASE clinic CASCADE")
    assert message.payload == {"id": 7, "patient": "Ada"}
    local = row.visit_time - timedelta(hours=5, minutes=45) - timedelta(hours=2)
    assert abs(message.due - local.replace(tzinfo=UTC)) < timedelta(milliseconds=1)
