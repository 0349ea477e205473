"""`--engine` of plans and loads: small tables without Spark, large ones and what only Spark can do on Spark."""

from __future__ import annotations

import os
import sys

import pytest

from delayq.bulk.files.table_files import read_table, write_table
from delayq.cli.bulk import engine_choice, loading, planning
from delayq.errors import ConfigurationError
from tests.support.processes import run

THINGS = "id,time,zone\n" + "".join(f"visit-{n},2099-01-31 09:00,Europe/Berlin\n" for n in range(1_000))
RULES = '[rules.day-before]\noffset = "-1d"\nat = "18:00"\n'
MESSAGES = "id,due,payload\na,2099-01-31T09:00:00+01:00,1\nb,2099-03-28T14:30:00Z,2\n"
PLAN = ("things.csv", "plan-1", "--rules", "rules.toml")
SMALL = "without Spark: the table is small (--engine spark insists on it)"


@pytest.fixture(autouse=True)
def files(tmp_path):
    (tmp_path / "things.csv").write_text(THINGS)
    (tmp_path / "rules.toml").write_text(RULES)
    (tmp_path / "messages.csv").write_text(MESSAGES)
    return tmp_path


@pytest.fixture
def no_spark(monkeypatch):
    """Spark that never starts: a command that takes it ends with "no session today"."""

    def open_spark():
        raise ConfigurationError("no session today")

    monkeypatch.setattr(planning, "open_spark", open_spark)
    monkeypatch.setattr(loading, "open_spark", open_spark)
    monkeypatch.setattr(engine_choice, "spark_starts", lambda: True)
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)


def test_small_table_is_planned_and_loaded_without_spark(cli, queue, no_spark):
    planned = cli("spark", "plan", *PLAN)
    assert (planned.code, planned.err) == (
        0,
        f"planning {SMALL}\nplanned plan-1: 1,000 new, 0 keep, 0 cancel\n",
    )
    assert cli("plan", "things.csv", "plan-2", "--rules", "rules.toml", "--json").err == ""
    assert read_table("plan-1") == read_table("plan-2")
    loaded = cli("spark", "load", "plan-1", "reminders", "--run", "a")
    assert loaded.err == f"loading {SMALL}\nrun a: 1,000 new\n"
    assert cli("load", "plan-2", "reminders", "--run", "b").err == "run b: 0 new, 1,000 already there\n"


def test_no_pyspark_is_imported_for_a_small_table(files, redis_url):
    program = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None\n"
        "from delayq.cli import main\n"
        "main(['spark', *sys.argv[1:]], prog_name='delayq')\n"
    )
    environ = {**os.environ, "DELAYQ_URL": redis_url}
    for words in (("plan", *PLAN), ("load", "plan-1", "reminders")):
        done = run([sys.executable, "-c", program, *words], env=environ, cwd=files, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        assert "1,000 new" in done.stderr


def in_folder(path):
    path.mkdir()
    (path / "part-0.csv").write_text(THINGS)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("table:things", "p"), "table:things is a table of the catalog"),
        (("s3a://bucket/things", "p"), "s3a://bucket/things is a URL"),
        (("things.csv", "s3a://bucket/p"), "s3a://bucket/p is a URL"),
        (("things.csv", "p", "--previous", "table:last"), "table:last is a table of the catalog"),
        (("things-*.csv", "p"), "things-*.csv is a pattern"),
        (("things.orc", "p"), "things.orc is ORC"),
        (("folder.csv", "p"), "folder.csv is a folder of texts"),
        (("nested.jsonl", "p"), "column 'tags' is nested"),
        (("nested.parquet", "p"), "column 'tags' is nested"),
        (("things.csv", "p", "--rules", "where.toml"), "rule 'few' has a where"),
    ],
)
def test_what_only_spark_can_do_is_done_on_spark(cli, files, no_spark, words, why):
    in_folder(files / "folder.csv")
    (files / "where.toml").write_text('[rules.few]\nwhere = "id < 5"\n')
    (files / "nested.jsonl").write_text('{"id": "a", "time": "2099-01-31", "zone": "UTC", "tags": ["x"]}\n')
    write_table(read_table("nested.jsonl"), "nested.parquet")
    words = (*words, "--rules", "rules.toml")[: None if "--rules" not in words else len(words)]
    assert cli("plan", *words).err.splitlines() == [f"planning on Spark: {why}", "delayq: no session today"]
    assert cli("spark", "plan", *words).line == "no session today"


def test_nested_column_that_no_payload_has_needs_no_spark(cli, files, no_spark):
    (files / "nested.jsonl").write_text('{"id": "a", "time": "2099-01-31", "zone": "UTC", "tags": ["x"]}\n')
    (files / "few.toml").write_text('[rules.few]\npayload = ["zone"]\n')
    assert cli("plan", "nested.jsonl", "p", "--rules", "few.toml").code == 0


@pytest.mark.parametrize("name", ["large.csv", "large.parquet", "large", "large/part.parquet"])
def test_large_table_is_planned_on_spark_if_it_can_start(cli, files, no_spark, monkeypatch, name):
    (files / name).parent.mkdir(exist_ok=True)
    if name == "large.csv":
        (files / name).write_text(THINGS)
    else:
        write_table(read_table("things.csv"), name)
    source = name.partition("/")[0]
    words = (source, "p", "--rules", "twice.toml")
    (files / "twice.toml").write_text('[rules.twice]\nrepeats = 2\nevery = "1d"\n')

    monkeypatch.setattr(planning, "MANY", 2_004)
    assert cli("plan", *words).err == "planned p: 2,000 new, 0 keep, 0 cancel\n"
    monkeypatch.setattr(planning, "MANY", 2_000)
    assert cli("plan", *words).err.splitlines() == [
        "planning on Spark: the table is large (--engine python does it in memory)",
        "delayq: no session today",
    ]
    assert cli("spark", "plan", *words).line == "no session today"
    assert cli("plan", *words, "--engine", "python").err == "planned p: 2,000 new, 0 keep, 0 cancel\n"
    monkeypatch.setattr(engine_choice, "spark_starts", lambda: False)
    assert cli("plan", *words).err.splitlines()[0] == (
        "planning without Spark: the table is large, but Spark or Java is missing: pip install 'delayq[spark,jre]'"
    )


def test_table_of_many_bytes_is_large(cli, no_spark, monkeypatch):
    monkeypatch.setattr(engine_choice, "MANY_BYTES", len(MESSAGES))
    assert cli("load", "messages.csv", "reminders").err.splitlines() == [
        "loading on Spark: the table is large (--engine python does it in memory)",
        "delayq: no session today",
    ]


def test_engine_that_is_asked_for_is_taken_without_a_note(cli, queue, no_spark):
    assert cli("plan", *PLAN, "--engine", "spark").line == "no session today"
    assert cli("load", "messages.csv", "reminders", "--engine", "spark").line == "no session today"
    assert cli("spark", "load", "messages.csv", "reminders", "--engine", "python", "--run", "a").err == "run a: 2 new\n"
    assert cli("spark", "plan", *PLAN, env={"DELAYQ_SPARK_PLAN_ENGINE": "spark"}).line == "no session today"


def test_settings_of_spark_mean_spark(cli, no_spark):
    for options in (("--master", "local[1]"), ("--conf", "spark.x=1"), ("--packages", "a:b:1")):
        assert cli("spark", *options, "plan", *PLAN).line == "no session today"
        refused = cli("spark", *options, "plan", *PLAN, "--engine", "python")
        assert refused.code == 2
        assert refused.line.startswith(f"{options[0]} needs Spark: leave out --engine python")
    assert cli("spark", "load", "messages.csv", "reminders", "--schema", "id STRING").line == "no session today"
    remote = {"SPARK_REMOTE": "sc://localhost"}
    assert cli("spark", "plan", *PLAN, env=remote).line == "no session today"
    assert cli("spark", "plan", *PLAN, "--engine", "python", env=remote).code == 0
    assert cli("plan", "things.csv", "plan-2", "--rules", "rules.toml", env=remote).code == 0


@pytest.mark.parametrize(
    ("out", "refused"),
    [
        ("plan-1", "plan-1 is a folder, perhaps a plan by Spark: write to another path"),
        ("missing/p", "cannot write missing/p: "),
        ("plan.v1", "'plan.v1' ends with .v1, not with one of .parquet"),
    ],
)
def test_plan_where_python_writes_no_file_stays_on_spark(cli, files, no_spark, out, refused):
    (files / "plan-1").mkdir()
    words = ("things.csv", out, "--rules", "rules.toml")
    assert cli("spark", "plan", *words).line == "no session today"
    ended = cli("plan", *words)
    assert (ended.code, ended.line[: len(refused)]) == (2, refused)


def test_missing_table_is_refused_before_spark_starts(cli, no_spark):
    for words in (("plan", "nowhere", "p", "--rules", "rules.toml"), ("load", "nowhere", "reminders")):
        refused = cli("spark", *words)
        assert (refused.code, refused.err.splitlines()[-1]) == (2, "delayq: there is no file or folder 'nowhere'")


def test_unknown_engine_is_one_line(cli):
    for words in (("plan", *PLAN), ("load", "messages.csv", "reminders"), ("spark", "plan", *PLAN)):
        refused = cli(*words, "--engine", "dask")
        assert refused.code == 2
        assert "'dask' is not one of 'auto', 'spark', 'python'" in refused.line
    assert cli("load", "messages.csv", "reminders", "--engine", "streams").line.startswith("the streams engine has no")
