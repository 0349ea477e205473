"""`delayq spark …`: every pipeline as a command, and every failure as one line."""

from __future__ import annotations

import json
import os
import re
import signal
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
import redis
from pyspark.sql import functions as F

import delayq.archive
import delayq.spark
from delayq.archive.archive_run import ArchiveResult
from delayq.broker.keys import Keys
from delayq.bulk import write_table
from delayq.cli.bulk import spark_session
from delayq.errors import ConfigurationError, PayloadTooLargeError
from delayq.spark.datasource.source_options import write_options
from delayq.spark.session import SUBMITTED

THINGS = """\
id,time,zone,patient
visit-1,2030-01-31 09:00,Europe/Berlin,Ada
visit-2,2030-03-28 14:30,America/New_York,Blaise
"""
RULES = """\
[rules.day-before]
offset = "-1d"
at = "18:00"
retries = 1
"""


@pytest.mark.spark
@pytest.mark.timeout(400)  # sixteen commands
def test_commands_run_the_whole_pipeline_from_plan_to_audit(spark, cli, visits, tmp_path, redis_url):
    (tmp_path / "things.csv").write_text(THINGS)
    (tmp_path / "rules.toml").write_text(RULES)

    planned = cli("spark", "plan", "@things.csv", "@plan-1", "--rules", "@rules.toml", "--json")
    assert json.loads(planned.stdout) == {"plan": f"{tmp_path}/plan-1", "new": 2, "keep": 0, "cancel": 0, "refused": 0}

    loaded = json.loads(cli("spark", "load", "@plan-1", "visits", "--until", "2030-02-15T00:00+00:00", "--json").stdout)
    assert (loaded["state"], loaded["new"], loaded["later"]) == ("committed", 1, 1)
    again = cli("spark", "load", "@plan-1", "visits", "--run", "second")
    assert "run second: 1 new, 1 already there" in again.stderr
    ids = {message.payload["source"]: message for message in visits.list("pending").messages}
    assert ids["visit-1"].due.isoformat() == "2030-01-30T17:00:00+00:00"
    assert ids["visit-1"].retries_left == 1

    (tmp_path / "things.csv").write_text(THINGS.replace("2030-01-31 09:00", "2030-02-01 09:00"))
    again = ("spark", "plan", "@things.csv", "@plan-2", "--rules", "@rules.toml", "--previous", "@plan-1", "--json")
    assert json.loads(cli(*again).stdout) == {
        "plan": f"{tmp_path}/plan-2",
        "new": 1,
        "keep": 1,
        "cancel": 1,
        "refused": 0,
    }
    loaded = json.loads(cli("spark", "load", "@plan-2", "visits", "--json").stdout)
    assert (loaded["new"], loaded["exists"], loaded["cancelled"]) == (1, 1, 1)

    audited = cli("spark", "audit", "@plan-2", "@archive", "visits", "--json", "--out", "@reminders")
    result = json.loads(audited.stdout)
    assert (audited.exit_code, result["adds_up"], result["findings"]) == (0, True, {})
    assert result["statuses"] == {"scheduled": 2, "overdue": 0, "delivered": 0, "dead": 0, "cancelled": 1, "missing": 0}
    assert spark.read.parquet(str(tmp_path / "reminders")).count() == 3
    result = json.loads(cli("spark", "audit", "@plan-2", "@archive", "visits", "--json", "--until", "+1d").stdout)
    assert (result["findings"], sum(result["statuses"].values())) == ({"nothing audited": 1}, 0)

    archived = cli("archive", "visits", "@archive", "--json")
    assert json.loads(archived.stdout)["events"] == 0

    compacted = cli("archive", "visits", "@archive", "--compact", "--retain", "90d", "--json")
    assert json.loads(compacted.stdout) == {"merged": 0, "files": 0, "events": 0, "days": 0}
    assert "nothing to merge" in cli("archive", "visits", "@archive", "--compact").stderr

    reported = cli("spark", "report", "@archive", "@report", "--queue", "visits")
    assert reported.exit_code == 0
    assert "3 messages" in reported.stdout
    assert "2 pending, 0 ready, 0 in flight" in reported.stdout
    page = (tmp_path / "report" / "report.html").read_text()
    assert "2 pending, 0 ready, 0 in flight" in page
    assert all((tmp_path / "report" / name).exists() for name in re.findall('<a href="([^"]+)"', page))
    period = ("--from", "-1h", "--until", "+1h", "--json", "--queue", "elsewhere", "--no-html")
    reported = cli("spark", "report", "@archive", "@report", *period)
    facts = json.loads(reported.stdout)
    assert (facts["messages"], facts["kinds"]["sent"], facts["kinds"]["cancelled"]) == (3, 3, 1)
    assert "does not tell what waits now: " in reported.stderr
    reported = cli("spark", "report", "@archive", "@report", "--until", "-1h", "--json")
    assert json.loads(reported.stdout)["events"] == 0

    assert cli("archive", "visits", "@archive", "--forget").exit_code == 0
    ended = cli("archive", "visits", "@archive", "--forget")
    assert (ended.exit_code, "has no archive at" in ended.stderr) == (3, True)

    keys = Keys.of("delayq", "visits")
    with redis.Redis.from_url(redis_url) as client:
        client.zrem(keys.pending, ids["visit-2"].id)
        client.hdel(keys.messages, ids["visit-2"].id)
    audited = cli("spark", "audit", "@plan-2", "@archive", "visits", "--report", "@report")
    assert audited.exit_code == 1
    assert (
        (tmp_path / "report" / "findings.csv")
        .read_text()
        .startswith(f'"what","id","detail"\n"missing","{ids["visit-2"].id}"')
    )
    page = (tmp_path / "report" / "report.html").read_text()
    assert page.count('<section class="audit">') == 1
    assert ids["visit-2"].id in page
    assert all((tmp_path / "report" / name).exists() for name in re.findall('<a href="([^"]+)"', page))
    assert "missing" in audited.stdout
    assert ids["visit-2"].id in audited.stdout


def test_lost_entries_do_not_block_archive_and_audit(cli, visits, tmp_path, redis_url):
    due = datetime(2030, 1, 1, tzinfo=UTC)
    write_table(pa.table({"id": [f"m{n}" for n in range(6)], "due": [due] * 6}), tmp_path / "plan.parquet")
    for number in range(6):
        visits.send_schedule_msg(number, datetime(2030, 1, 1, tzinfo=UTC), id=f"m{number}")
        if number == 1:
            assert cli("archive", "visits", "@archive").exit_code == 0
    with redis.Redis.from_url(redis_url) as client:
        client.xtrim(Keys.of("delayq", "visits").events, minid="0-5", approximate=False)
    refused = cli("archive", "visits", "@archive")
    assert refused.exit_code == 1
    assert "has lost 2 entries, offsets 3 to 4: deleted before being read; continue without them with --allow-loss" in (
        refused.stderr
    )
    assert "--allow-loss" in cli("audit", "@plan.parquet", "@archive", "visits").stderr
    archived = json.loads(cli("archive", "visits", "@archive", "--allow-loss", "--json").stdout)
    assert (archived["events"], archived["lost"]) == (2, [[3, 4]])
    audited = cli("audit", "@plan.parquet", "@archive", "visits", "--allow-loss", "--json")
    assert audited.exit_code == 1
    assert json.loads(audited.stdout)["findings"]["event lost"] >= 1

    for number in range(6, 14):
        visits.send_schedule_msg(number, datetime(2030, 1, 1, tzinfo=UTC), id=f"m{number}")
    with redis.Redis.from_url(redis_url) as client:
        client.xdel(Keys.of("delayq", "visits").events, *(f"0-{offset}" for offset in (8, 10, 11, 13)))
    gaps = "4 entries, offsets 8, 10 to 11, 13"
    for words in (("archive", "visits", "@archive"), ("audit", "@plan.parquet", "@archive", "visits")):
        refused = cli(*words)
        assert (refused.exit_code, f"has lost {gaps}: deleted before being read" in refused.stderr) == (1, True)
    archived = json.loads(cli("archive", "visits", "@archive", "--allow-loss", "--json").stdout)
    assert (archived["events"], archived["lost"]) == (4, [[8, 8], [10, 11], [13, 13]])
    found = json.loads(cli("audit", "@plan.parquet", "@archive", "visits", "--json").stdout)["examples"]
    told = ["2 entries, offsets 3 to 4", "1 entry, offset 8", "2 entries, offsets 10 to 11", "1 entry, offset 13"]
    assert [one["detail"] for one in found if not one["id"]] == [f"missing in the log: {gap}" for gap in told]


@pytest.mark.parametrize(
    ("stop", "code"),
    [("--follow SIGTERM", 0), ("--follow SIGINT", 0), ("SIGTERM", 143), ("SIGINT", 130)],
)
def test_archive_is_stopped_after_the_batch_in_progress(cli, visits, monkeypatch, stop, code):
    *words, name = stop.split()
    result = ArchiveResult("visits", "a", 1, 7, 7, 7, 1, 0)

    def archive(*_, on_progress, stop, once, **__):
        on_progress(result)
        os.kill(os.getpid(), signal.Signals[name])
        assert stop.wait(10)
        on_progress(result)
        return result

    monkeypatch.setattr(delayq.archive, "archive", archive)
    ended = cli("archive", "visits", "a", *words)
    told = (
        "archived 7 events in a, offsets 1 to 7" if words else "stopped after 7 events: the next run archives the rest"
    )
    assert (ended.exit_code, ended.stderr) == (code, f"{told}\n")


@pytest.mark.spark
def test_long_errors_of_spark_become_one_line(spark, cli, visits, tmp_path):
    (tmp_path / "bad.csv").write_text("id,due,payload\na,yesterday,{}\n")
    bad = [
        (("load", "@nowhere", "visits"), "nowhere"),
        (("load", "@bad.csv", "visits"), "due"),
        (("load", "table:missing", "visits"), "missing"),
        (("load", "@bad.csv", "visits", "--schema", "id BANANA"), "BANANA"),
        (("report", "@nowhere", "out"), "nowhere"),
    ]
    for arguments, named in bad:
        ended = cli("spark", *arguments)
        (line,) = ended.stderr.splitlines()
        assert ended.exit_code in (1, 2), arguments
        assert line.startswith("delayq: "), arguments
        assert named in line, arguments


def test_usage_error_is_reported_before_spark_starts(cli, visits, tmp_path):
    (tmp_path / "rules.toml").write_text('[rules.r]\noffsett = "1d"\n')
    (tmp_path / "good.toml").write_text(RULES)
    bad = [
        (("audit", "plan", "archive", "nope"), 3, "no queue named 'nope'"),
        (("load", "t", "visits", "--on-conflict", "explode"), 2, "explode"),
        (("plan", "t", "p", "--rules", "missing.toml"), 2, "missing.toml"),
        (("plan", "t", "p", "--rules", "rules.toml"), 2, "did you mean 'offset'"),
        (("plan", "t", "p", "--rules", "good.toml", "--previous", "p"), 2, "write the new one to another path"),
    ]
    for arguments, code, text in bad:
        ended = cli("spark", *arguments)
        (line,) = ended.stderr.splitlines()
        assert (ended.exit_code, text in line) == (code, True), ended.stderr


def test_errors_of_archive_report_and_audit_are_one_line(cli, visits, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "plan.csv").write_text("id,due\na,2030-01-01T00:00:00Z\n")
    (tmp_path / "bad.parquet").write_text("no")
    assert cli("archive", "visits", "@archive").exit_code == 0
    bad = [
        (("archive", "nope", "archive"), 3, "no queue named 'nope'"),
        (("archive", "visits", "nowhere", "--compact"), 2, "there is no archive at nowhere"),
        (("archive", "visits", "@file"), 2, "cannot write to"),
        (("archive", "visits", "ftp://host/path"), 2, "cannot write to ftp://host/path"),
        (("archive", "visits", "@archive", "--retain", "1h"), 2, "retain"),
        (("report", "nowhere", "out"), 2, "there is no archive at nowhere"),
        (("report", "@archive", "@file"), 2, "cannot write the report to"),
        (("report", "@archive", "out", "--from", "soon"), 2, "soon"),
        (("audit", "nowhere", "@archive", "visits"), 2, "nowhere"),
        (("audit", "table:plans", "@archive", "visits"), 2, "table:plans"),
        (("audit", "@plan.csv", "@archive", "visits"), 2, "this is no plan: its column 'due' is string and must be"),
        (("audit", "@bad.parquet", "@archive", "visits"), 2, "cannot read"),
        (("audit", "@archive", "@archive", "nope"), 3, "no queue named 'nope'"),
    ]
    for arguments, code, text in bad:
        ended = cli(*arguments)
        (line,) = ended.stderr.splitlines()
        assert (ended.exit_code, text in line) == (code, True), (arguments, ended.stderr)


def test_errors_of_the_data_source_name_the_options_of_the_command(cli, monkeypatch):
    options = write_options({"queue": "visits", "url": "redis://localhost", "maxPayload": "10"})

    def load(*_, **__):
        wrong = f"at most 10 are allowed (option {options.spelling('max_payload')})"
        raise PayloadTooLargeError(f"{wrong}: set {options.setting('on_error', 'collect')} to send the valid ones")

    monkeypatch.setattr("delayq.cli.bulk.loading.open_spark", lambda: None)
    monkeypatch.setattr("delayq.cli.bulk.loading.read_input", lambda *_: None)
    monkeypatch.setattr(delayq.spark, "load", load)
    ended = cli("spark", "load", "@visits.csv", "visits")
    told = "at most 10 are allowed (option --max-payload): set --on-error collect to send the valid ones"
    assert (ended.exit_code, ended.stderr) == (2, f"delayq: {told}\n")


def test_help_names_every_pipeline(cli):
    shown = cli("spark", "--help").stdout
    for command in ("plan", "load", "report", "audit", "lapse", "demo"):
        assert f"  {command} " in shown
        assert "Usage" in cli("spark", command, "--help").stdout


@pytest.fixture
def not_configured(monkeypatch):
    """No variables that say which Spark or Java to use, or with which options."""
    for name in (*SUBMITTED, *spark_session._OTHERS):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("not_configured")
def test_settings_and_packages_of_spark_reach_the_session(cli, visits, monkeypatch):
    asked = []

    def session(app, **options):
        asked.append(options)
        raise ConfigurationError("no session today")

    monkeypatch.setattr(delayq.spark, "session", session)
    before = ("--conf", "spark.sql.shuffle.partitions=3", "--conf", "spark.x=a=b", "--packages", "io.delta:d:4")
    for options in ((), (*before, "--master", "local[1]")):
        assert cli("spark", *options, "load", "t", "visits").stderr == "delayq: no session today\n"
    settings = {"spark.sql.shuffle.partitions": "3", "spark.x": "a=b", "spark.jars.packages": "io.delta:d:4"}
    assert asked == [{"master": None, **SHORT}, {"master": "local[1]", **settings, **SHORT}]
    for wrong in ("spark.x", "=1", "x=1", "spark.=1"):
        ended = cli("spark", "--conf", wrong, "load", "t", "visits")
        assert ended.exit_code == 2
        assert f"--conf must look like spark.driver.memory=4g, not {wrong!r}" in ended.stderr


SHORT = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


REPORT = ("report", "a", "r")


@pytest.mark.usefixtures("visits", "not_configured")
@pytest.mark.parametrize(
    ("words", "environ", "java"),
    [
        (("--master", "local[2]", *REPORT), "", SHORT),
        (("--master", "spark://there:7077", *REPORT), "", {}),
        (("--master", "sc://there", *REPORT), "", {}),
        (REPORT, "SPARK_REMOTE=sc://there", {}),
        (REPORT, "JAVA_TOOL_OPTIONS=-XX:+UseZGC", {}),
        (REPORT, "SPARK_CONF_DIR=conf", {}),
        (("--conf", "spark.driver.extraJavaOptions=-Xss4m", *REPORT), "", {"spark.driver.extraJavaOptions": "-Xss4m"}),
    ],
)
def test_short_commands_with_a_java_of_their_own_compile_less(cli, monkeypatch, words, environ, java):
    asked = []

    def session(app, *, master, **conf):
        asked.append(conf)
        raise ConfigurationError("no session today")

    monkeypatch.setattr(delayq.spark, "session", session)
    if environ:
        monkeypatch.setenv(*environ.split("=", 1))
    assert cli("spark", *words).stderr == "delayq: no session today\n"
    assert asked == [java]


@pytest.mark.spark
def test_load_takes_the_options_of_the_writer(spark, cli, visits, tmp_path, redis_url):
    table = spark.sql(
        "SELECT cast(id AS STRING) AS id, timestamp(null) AS due, repeat('x', int(id)) AS payload FROM range(30)"
    )
    table.write.parquet(f"{tmp_path}/table")
    options = ("--batch-size", "7", "--default-retries", "9", "--max-payload", "20", "--dedupe-window", "90s")
    loaded = cli("spark", "load", "@table", "visits", "--on-error", "collect", "--json", *options)
    assert [json.loads(loaded.stdout)[name] for name in ("new", "refused")] == [21, 9]
    assert visits.get("20").retries_left == 9
    with redis.Redis.from_url(redis_url) as client:
        assert b"90000" in client.hget(Keys.of("delayq", "visits").meta, "dedupe")
    refused = cli("spark", "load", "@table", "visits", *options).stderr
    assert [refused.count(text) for text in ("(option --max-payload)", "set --on-error collect to")] == [1, 1]


@pytest.mark.spark
def test_plan_in_time_lapse_has_the_same_reminders_within_a_minute(spark, cli, visits, tmp_path):
    (tmp_path / "things.csv").write_text(THINGS + "visit-3,2030-03-01 08:00,UTC,Carl\n")
    (tmp_path / "rules.toml").write_text(RULES)
    cli("spark", "plan", "@things.csv", "@plan", "--rules", "@rules.toml")
    cancelled = (
        spark.read.parquet(f"{tmp_path}/plan")
        .limit(1)
        .withColumns({"id": F.lit("gone"), "action": F.lit("cancel"), "due": F.lit(datetime(2031, 1, 1, tzinfo=UTC))})
    )
    cancelled.write.mode("append").parquet(f"{tmp_path}/plan")
    at = ("--from", "2040-01-01T00:00Z", "--duration", "2m")
    made = json.loads(cli("spark", "lapse", "@plan", "@lapse", *at, "--json").stdout)
    assert made == {
        "plan": f"{tmp_path}/lapse",
        "reminders": 3,
        "first": "2040-01-01T00:00:00+00:00",
        "last": "2040-01-01T00:02:00+00:00",
        "factor": (timedelta(days=56, hours=5) / timedelta(minutes=2)),
    }
    assert "3 new" in cli("spark", "load", "@lapse", "visits").stderr
    waiting = sorted(visits.list("pending").messages, key=lambda message: message.due)
    assert [message.payload["source"] for message in waiting] == ["visit-1", "visit-3", "visit-2"]
    assert [waiting[0].due, waiting[2].due] == [datetime(2040, 1, 1, 0, minute, tzinfo=UTC) for minute in (0, 2)]
    assert waiting[0].due < waiting[1].due < waiting[2].due
    assert waiting[0].payload["due"] == "2030-01-30T17:00:00.000000Z"
    assert {message.id for message in waiting} < {row.id for row in spark.read.parquet(f"{tmp_path}/plan").collect()}

    soon = cli("spark", "lapse", "@plan", "@soon").stderr
    assert re.fullmatch(r".*/soon: 3 reminders of 56d 5h within 1m, 80,940 times as fast, from .*; load it .*\n", soon)
    assert cli("spark", "lapse", "@plan", "@plan").exit_code == 2
    (tmp_path / "none").mkdir()
    spark.read.parquet(f"{tmp_path}/plan").where("false").write.mode("overwrite").parquet(f"{tmp_path}/none")
    assert cli("spark", "lapse", "@none", "@lapse").stderr == "delayq: the plan has no reminders to send\n"


@pytest.mark.spark
def test_plain_commands_take_spark_for_what_only_it_can_do(spark, cli, visits, tmp_path):
    (tmp_path / "things.jsonl").write_text(
        '{"id": "a", "time": "2030-01-31 09:00", "zone": "UTC", "tags": ["x", "y"]}\n'
    )
    (tmp_path / "rules.toml").write_text(RULES)
    planned = cli("plan", "@things.jsonl", "@nested", "--rules", "@rules.toml")
    assert planned.stderr.splitlines() == [
        "planning on Spark: column 'tags' is nested",
        f"planned {tmp_path}/nested: 1 new, 0 keep, 0 cancel",
    ]
    assert json.loads(spark.read.parquet(f"{tmp_path}/nested").head()["payload"])["tags"] == ["x", "y"]
    assert "1 new" in cli("load", "@nested", "visits", "--engine", "spark").stderr

    (tmp_path / "rules.toml").write_text(RULES + "where = \"id = 'b'\"\n")
    planned = cli("plan", "@things.jsonl", "@some", "--rules", "@rules.toml", "--json")
    assert (planned.stderr, json.loads(planned.stdout)["new"]) == (
        "planning on Spark: rule 'day-before' has a where\n",
        0,
    )
    (tmp_path / "rules.toml").write_text(RULES + 'where = "int(tags) > 1"\n')
    refused = cli("plan", "@things.jsonl", "@none", "--rules", "@rules.toml")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 2), refused.stderr
    assert (
        cli("load", "table:nowhere", "visits").stderr.splitlines()[1].startswith("delayq: The table or view `nowhere`")
    )
