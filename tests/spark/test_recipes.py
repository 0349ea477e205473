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

import pyarrow as pa
import pytest

import delayq
from delayq import DelayQueue
from delayq.spark import register
from tests.support.processes import run

pytestmark = pytest.mark.spark

PAGE = Path(delayq.__file__).parent / "docs" / "spark-recipes.md"
THINGS = "id,time,zone\n"


def block(heading, language):
    """Return the first block of a language below a heading."""
    return blocks(heading, language)[0]


def blocks(heading, language="sql"):
    """Return the blocks of a language below a heading."""
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


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


@pytest.mark.torture
@pytest.mark.timeout(600)
def test_airflow_dag_plans_loads_archives_and_audits(spark, airflow, cli, visits, tmp_path):
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


def test_messages_are_inserted_in_sql(spark, redis_url, visits):
    register(spark)
    spark.sql("SELECT 7 AS id, 'Ada' AS patient, TIMESTAMP '2100-01-31 09:00:00Z' AS begins").createOrReplaceTempView(
        "appointments"
    )
    for statement in blocks("Send with INSERT INTO"):
        for _ in range(2):  # the second time nothing is new
            spark.sql(statement.replace("OPTIONS (", f"OPTIONS (url '{redis_url}', "))
    (message,) = visits.list("pending").messages
    assert (message.id, message.payload) == ("visit-7", {"id": 7, "patient": "Ada"})
    assert message.due == datetime(2100, 1, 31, 7, tzinfo=UTC)


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_table_is_loaded_from_each_format(spark, cli, visits, tmp_path, kind):
    rows = spark.sql(
        "SELECT concat('visit-', id) AS ID, TIMESTAMP '2100-01-31 09:00:00Z' AS Due, to_json(struct(id)) AS payload"
        " FROM range(3)"
    )
    rows.write.format(kind).option("header", "true").option("escape", '"').save(f"{tmp_path}/rows.{kind}")
    schema = () if kind == "parquet" else ("--schema", "ID STRING, Due TIMESTAMP, payload STRING")
    loaded = cli("spark", "load", f"@rows.{kind}", "visits", "--until", "2101-01-01T00:00:00Z", *schema)
    assert "3 new" in loaded.stderr
    assert {message.due for message in visits.list("pending").messages} == {datetime(2100, 1, 31, 9, tzinfo=UTC)}


def test_delta_table_is_loaded_without_java(visits, redis_url, tmp_path, monkeypatch):
    delta = pytest.importorskip("deltalake")
    monkeypatch.setenv("DELAYQ_URL", redis_url)
    folder, due = f"{tmp_path}/reminders", datetime(2100, 1, 31, 9, tzinfo=UTC)
    delta.write_deltalake(folder, pa.table({"id": ["a", "deleted"], "due": [due] * 2, "payload": ['{"n": 1}'] * 2}))
    delta.DeltaTable(folder).delete("id = 'deleted'")  # its row stays in a file of the former version
    delta.write_deltalake(folder, pa.table({"id": ["b"], "due": [due], "payload": ["2"]}), mode="append")
    code = block("Delta tables", "python").replace("/data", str(tmp_path))
    for _ in range(2):  # the second time nothing is new
        exec(code, {})
    waiting = {message.id: (message.due, message.payload) for message in visits.list("pending").messages}
    assert waiting == {"a": (due, {"n": 1}), "b": (due, 2)}
    assert [(info.run, info.new, info.state) for info in visits.runs()] == [("reminders-2", 2, "committed")]


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
