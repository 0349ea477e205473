"""All five pipelines on a Spark of their own process, on a Spark Connect server, and by `spark-submit`."""

import json
import os
import sys
from pathlib import Path

import pytest

from delayq.spark.session import use_java, use_this_python
from tests.spark.conftest import COVERAGE, JAVA_OPTIONS
from tests.support.processes import run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

THINGS = "id,time,zone\nvisit-1,2030-01-31 09:00,Europe/Berlin\nvisit-2,2030-03-28 14:30,America/New_York\n"
RULES = '[rules.day-before]\noffset = "-1d"\nat = "18:00"\n'
PIPELINES = """
import json, sys
from datetime import UTC, datetime
from pathlib import Path
from delayq import DelayQueue
from delayq.archive import archive
from delayq.spark import audit, load, plan, read_archive, read_messages, read_rules, report, session

folder, url, master, settings = Path(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
spark = session(master=None if master == "submitted" else master, **settings)
things = spark.read.csv(str(folder / "things.csv"), header=True)
plan(things, read_rules(folder / "rules.toml")).write.mode("overwrite").parquet(str(folder / "plan"))
planned = spark.read.parquet(str(folder / "plan"))
loaded = load(planned, "visits", url=url, run="first")
at = datetime.now(UTC)
snapshot = read_messages(spark, "visits", url=url, include_payload=True)
archived = archive("visits", str(folder / "archive"), url=url)
events = read_archive(spark, str(folder / "archive"))
with report(events, folder / "report") as made:
    kinds = {row["kind"]: row["events"] for row in made["totals"].toArrow().to_pylist() if row["events"]}
with DelayQueue("visits", url=url) as queue:
    result = audit(planned, events, snapshot, queue.runs(), at=at)
print(json.dumps({
    "session": type(spark).__module__, "loaded": loaded.new, "archived": archived.events, "kinds": kinds,
    "audit": result.facts(), "reminders": result.reminders.count(),
}))
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "things.csv").write_text(THINGS)
    (tmp_path / "rules.toml").write_text(RULES)
    (tmp_path / "pipelines.py").write_text(PIPELINES)
    return tmp_path


def check(printed: str, folder: Path, session: str) -> None:
    """Check what the pipelines have printed and written."""
    made = json.loads(printed.splitlines()[-1])
    assert (made["session"], made["loaded"], made["archived"]) == (session, 2, 2)
    assert (made["kinds"], made["reminders"]) == ({"sent": 2}, 2)
    assert (made["audit"]["adds_up"], made["audit"]["statuses"]["scheduled"]) == (True, 2)
    assert made["audit"]["runs"][0]["adds_up"]
    assert "Audit" not in (folder / "report" / "report.html").read_text(encoding="utf-8")


def run_pipelines(folder: Path, url: str, master: str, **settings: object) -> str:
    """Run the pipelines in a process of their own; returns what they print."""
    settings["spark.sql.shuffle.partitions"] = 2  # not 200, for two visits
    words = [str(folder / "pipelines.py"), str(folder), url, master, json.dumps(settings)]
    command = [sys.executable, "-W", "ignore", *words]
    done = run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.smoke
def test_pipelines_on_a_spark_of_their_own(redis_url, visits, folder):
    printed = run_pipelines(folder, redis_url, "local[2]", **{"spark.driver.extraJavaOptions": JAVA_OPTIONS})
    check(printed, folder, "pyspark.sql.session")


@pytest.mark.long
def test_pipelines_on_spark_connect(connect_url, redis_url, visits, folder):
    check(run_pipelines(folder, redis_url, connect_url), folder, "pyspark.sql.connect.session")


@pytest.mark.torture
def test_pipelines_by_spark_submit(redis_url, visits, folder):
    import pyspark

    environ = {name: value for name, value in os.environ.items() if name != COVERAGE}
    use_java(environ)
    use_this_python(environ)
    environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    submit += ["--conf", f"spark.driver.extraJavaOptions={JAVA_OPTIONS}", "--conf", "spark.ui.enabled=false"]
    script = [str(folder / "pipelines.py"), str(folder), redis_url, "submitted", "{}"]
    done = run([*submit, *script], capture_output=True, text=True, check=False, env=environ, cwd=folder)
    assert done.returncode == 0, done.stderr
    check(done.stdout, folder, "pyspark.sql.session")
