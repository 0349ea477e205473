"""The reports compared with plain Python, on a random log in which events occur in any order."""

from __future__ import annotations

import csv
import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import pairwise

import pyarrow.parquet as pq
import pytest

from delayq import ConfigurationError
from delayq.archive.sql_engine import DuckDB
from delayq.bulk.files.schemas import EVENTS
from delayq.queue.inspecting.event_log import EventKind
from delayq.report.delivery_history import MAX_ROWS
from delayq.report.overview import OUTCOMES
from delayq.report.page import page
from delayq.report.plots import lateness_plot
from delayq.report.report import FORMATS, check_formats, replacing, report, write_tables
from delayq.report.report_tables import reports, width_of
from delayq.spark.pipelines.spark_report import report as report_on_spark
from delayq.spark.spark_sql import SparkSql
from tests.support.event_tables import loaded, table_of

NAMES = [part.split()[0] for part in EVENTS.split(", ")]
T0 = datetime(2026, 3, 28, 21, 40, tzinfo=UTC)
ERRORS = [None, "", "ValueError: no", "  KeyError: 'a'\r\nTraceback", "日本: <script>", "x" * 300, "\nlater"]
REASONS = [None, "retries spent", "retries spent", "no such customer\nat all", "rejected"]
OF_QUEUE = ("purged", "paused", "resumed")
"""Events that name no message."""
STARTS, SETTLED = ("sent", "replaced", "redriven"), ("acked", "discarded")
UNMOVED = (
    "promoted",
    "retried",
    "rescheduled",
    "spilled",
    "restored",
    "cold_dropped",
    "dead_purged",
    "dead_trimmed",
    "dead_imported",
    "missed",
    "audit",
    "edited",
)


def write_files(reports, folder, formats=FORMATS):
    with replacing(folder) as aside:
        write_tables(reports.tables(), aside, check_formats(formats))


def event(offset, kind, id="a", *, index=0, at=T0, **more):
    """Make an event as a row of EVENTS."""
    row = {"log_offset": offset, "entry_index": index, "event_at": at, "kind": kind, "id": id} | more
    return tuple(row.get(name) for name in NAMES)


def random_log(seed: int = 11) -> list[tuple]:
    """Make a log of 90 messages with random events in any order, with gaps where offsets pass 65,536."""
    draw = random.Random(seed)
    rows, tokens, offset, token = [], defaultdict(list), 65_300, 1000
    for n in range(700):
        offset += draw.choice([1] * 40 + [2, 30])
        at = T0 + timedelta(milliseconds=n * 25_000 + draw.randrange(20_000))
        for index in range(draw.choice([1, 1, 1, 2, 3])):
            kind = str(draw.choice(list(EventKind)))
            id = None if kind in OF_QUEUE else f"m-{draw.randrange(90)}"
            more: dict = {}
            if kind in ("delivered", *SETTLED, "nacked", "expired", "released", "dead"):
                if kind == "delivered" or not tokens[id]:
                    token += 1
                    tokens[id].append(token)
                more["token"] = draw.choice(tokens[id][-2:])
            if kind == "delivered":
                late = draw.choice([0, 1, 3, 3, 250, 4000, -5])
                more |= {"token": token, "attempt": draw.randint(1, 3), "due": at - timedelta(milliseconds=late)}
            if kind in ("nacked", "expired"):
                more["retries_left"] = draw.choice([None, 0, 2])
            if kind in ("nacked", "dead"):
                more["error"] = draw.choice(ERRORS)
            if kind == "dead":
                more |= {"reason": draw.choice(REASONS), "attempt": draw.randint(1, 3)}
            rows.append(event(offset, kind, id, index=index, at=at, **more))
    return rows


LOG = [dict(zip(NAMES, row, strict=True)) for row in random_log()]


def lives() -> dict[str, list[dict]]:
    """Return the events of each message, in order."""
    found = defaultdict(list)
    for row in LOG:
        if row["id"] is not None:
            found[row["id"]].append(row)
    return found


def line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0].strip()[:200]


def percentile(values: list[float], share: float) -> float:
    ordered, place = sorted(values), share * (len(values) - 1)
    low = int(place)
    return ordered[low] + (place - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


@pytest.fixture(scope="module")
def events(spark):
    return spark.createDataFrame([tuple(row.values()) for row in LOG], EVENTS)


@pytest.fixture(scope="module", params=["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def made(request):
    """The reports of both engines; on Spark in a zone whose hours begin at half past."""
    if request.param == "duckdb":
        made = reports(*loaded(row.values() for row in LOG))
        made.tables()
        return made
    spark, events = map(request.getfixturevalue, ("spark", "events"))
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        made = reports(SparkSql(spark), events)
        made.tables()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    return made


@pytest.fixture(scope="module")
def rows(made):
    """Every report as a list of rows."""
    return {name: table.to_pylist() for name, table in made.tables().items()}


def late(some):
    """Percentiles of the lateness of the first attempts among some events, as a row of the report."""
    first = [row for row in some if row["kind"] == "delivered" and row["attempt"] == 1]
    values = [(row["event_at"] - row["due"]) / timedelta(milliseconds=1) for row in first]
    return {
        "deliveries": len(values),
        "early": sum(value < 0 for value in values),
        "p50_ms": pytest.approx(percentile(values, 0.5)),
        "p90_ms": pytest.approx(percentile(values, 0.9)),
        "p99_ms": pytest.approx(percentile(values, 0.99)),
        "max_ms": max(values),
    }


def test_lateness_counts_first_attempts_by_utc_hour(rows):
    hours = defaultdict(list)
    for row in LOG:
        if row["kind"] == "delivered" and row["attempt"] == 1:
            hours[row["event_at"].replace(minute=0, second=0, microsecond=0)].append(row)
    assert len(hours) > 4
    assert rows["lateness"] == [{"begin": hour, "seconds": 3600, **late(some)} for hour, some in sorted(hours.items())]


def test_overall_lateness_has_the_percentiles_of_all_first_attempts(rows):
    (overall,) = rows["lateness_overall"]
    assert overall == late(LOG)
    assert overall["early"] > 0


def test_rates_count_each_kind_by_minute(rows):
    minutes = defaultdict(Counter)
    for row in LOG:
        minutes[row["event_at"].replace(second=0, microsecond=0)][row["kind"]] += 1
    kinds = [kind.value for kind in EventKind]
    assert rows["rates"] == [
        {"begin": minute, "seconds": 60, **{kind: counts[kind] for kind in kinds}}
        for minute, counts in sorted(minutes.items())
    ]


@pytest.mark.parametrize(
    ("seconds", "width"), [(0, 1), (99, 1), (120, 2), (3600, 60), (86_399, 900), (216_000, 3600), (10**8, 3600)]
)
def test_width_of_the_rows_follows_the_length_of_the_log(seconds, width):
    rows = [event(1, "sent"), event(2, "acked", at=T0 + timedelta(seconds=seconds))]
    assert width_of(*loaded(rows)) == width


def test_short_log_has_rows_of_a_second():
    rows = [
        event(n, "delivered", f"m{n}", attempt=1, token=n, due=T0, at=T0 + timedelta(seconds=n)) for n in range(1, 100)
    ]
    with reports(*loaded(rows), width=1) as made:
        tables = made.tables()
    for name in ("lateness", "rates"):
        assert tables[name]["seconds"].to_pylist() == [1] * 99
        assert tables[name]["begin"].to_pylist() == [T0 + timedelta(seconds=n) for n in range(1, 100)]
    text = page(tables)
    assert "Each point is 1 s" in text
    assert "Events a second" in text
    assert lateness_plot(tables["lateness"])[1] == 1


def test_totals_have_every_kind(rows):
    for row, kind in zip(rows["totals"], EventKind, strict=True):
        times = [one["event_at"] for one in LOG if one["kind"] == kind]
        assert row == {"kind": kind, "events": len(times), "first": min(times), "last": max(times)}


def test_log_report_counts_missing_entries(rows):
    offsets = {row["log_offset"] for row in LOG}
    relevant = {row["id"] for row in LOG if row["kind"] not in UNMOVED} - {None}
    assert rows["log"] == [
        {
            "events": len(LOG),
            "messages": len(relevant),
            "entries": len(offsets),
            "missing": max(offsets) - min(offsets) + 1 - len(offsets),
            "first": min(row["event_at"] for row in LOG),
            "last": max(row["event_at"] for row in LOG),
            "first_offset": min(offsets),
            "last_offset": max(offsets),
        }
    ]


def test_gaps_lie_between_existing_entries(rows):
    offsets = sorted({row["log_offset"] for row in LOG})
    gaps = [(low + 1, high - 1) for low, high in pairwise(offsets) if high > low + 1]
    assert min(offsets) < 65_536 < max(offsets)
    assert [(row["first"], row["last"]) for row in rows["gaps"]] == gaps
    assert sum(row["missing"] for row in rows["gaps"]) == rows["log"][0]["missing"] > 0


def test_funnel_counts_the_outcomes_of_each_attempt(rows):
    given, attempts, counts = {}, {}, defaultdict(Counter)
    for row in sorted(LOG, key=lambda row: (row["log_offset"], row["entry_index"])):
        id, token = row["id"], row["token"]
        if row["kind"] == "delivered" and token is not None:
            given[id] = token
        if row["attempt"] is not None:
            attempts[id] = row["attempt"]
        is_of_latest = token is not None and token == given.get(id)
        attempt = row["attempt"] or (attempts.get(id) if is_of_latest else None)
        if row["kind"] in ("delivered", "dead", *OUTCOMES):
            counts[attempt][row["kind"]] += 1
        if row["kind"] == "dead" and row["reason"] not in (None, "retries spent"):
            counts[attempt]["rejected"] += 1
    expected = []
    for attempt in sorted(counts, key=lambda one: one or 99):
        count = counts[attempt]
        share = pytest.approx(count["acked"] / count["delivered"]) if count["delivered"] else None
        numbers = {kind: count[kind] for kind in ("delivered", *OUTCOMES, "dead")}
        expected.append({"attempt": attempt, **numbers, "share": share})
    assert rows["funnel"] == expected
    assert [row["attempt"] for row in expected] == [1, 2, 3, None]


def test_errors_count_each_failed_delivery_once(rows):
    ids_by_error = defaultdict(list)
    for row in LOG:
        if row["kind"] == "nacked":
            ids_by_error[line(row["error"])].append(row["id"])
        elif row["kind"] == "expired":
            ids_by_error["lease expired"].append(row["id"])
        elif row["kind"] == "dead" and row["reason"] not in (None, "retries spent"):
            ids_by_error[line(row["reason"])].append(row["id"])
    expected = [
        {"error": text, "failures": len(ids), "messages": len(set(ids)), "example": min(ids)}
        for text, ids in sorted(ids_by_error.items(), key=lambda pair: (-len(pair[1]), pair[0].encode()))
    ]
    assert rows["errors"] == expected
    assert {"", "KeyError: 'a'", "日本: <script>", "later", "no such customer"} < {row["error"] for row in expected}


def test_dead_messages_are_counted_by_reason(rows):
    deaths = defaultdict(list)
    for row in LOG:
        if row["kind"] == "dead":
            deaths[line(row["reason"])].append(row)
    assert rows["dead"] == [
        {
            "reason": reason,
            "deaths": len(some),
            "messages": len({row["id"] for row in some}),
            "first": min(row["event_at"] for row in some),
            "last": max(row["event_at"] for row in some),
        }
        for reason, some in sorted(deaths.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    ]


def test_redeliveries_and_repeated_acks_are_explained_or_reported(rows):
    explained, found = Counter(), []
    for story in lives().values():
        before, settled = None, None
        for row in story:
            kind = row["kind"]
            last = kind in ("nacked", "expired") and row["retries_left"] is None
            if kind == "delivered":
                if before in ("nacked", "expired", "released"):
                    explained["delivered", before] += 1
                elif before is not None and before not in STARTS:
                    found.append((row["log_offset"], row["entry_index"], row["id"], kind, before))
            if kind in SETTLED and settled in SETTLED:
                found.append((row["log_offset"], row["entry_index"], row["id"], kind, settled))
            if kind in (*STARTS, *SETTLED):
                settled = kind
            if kind == "dead" and row["reason"] not in (None, "retries spent"):
                before = "rejected"
            elif kind not in UNMOVED:
                before = f"{kind} for good" if last else kind
    listed = [
        tuple(row[name] for name in ("log_offset", "entry_index", "id", "kind", "after")) for row in rows["duplicates"]
    ]
    assert listed == sorted(found)
    counts = {(row["kind"], row["after"], row["explained"]): row["events"] for row in rows["redeliveries"]}
    assert counts == {(*pair, True): number for pair, number in explained.items()} | {
        (*pair, False): number for pair, number in Counter(one[3:] for one in found).items()
    }
    assert set(explained) == {("delivered", "nacked"), ("delivered", "expired"), ("delivered", "released")}
    after = {one[3:] for one in found}
    assert {("delivered", "delivered"), ("delivered", "acked"), ("delivered", "rejected"), ("acked", "acked")} < after


def duplicates_in(*stories: str):
    """Return the duplicates in some histories, each as message, kind and previous kind."""
    rows, offset = [], 0
    for n, story in enumerate(stories):
        for kind in story.split():
            offset += 1
            left = None if kind.endswith("!") else 1
            rows.append(event(offset, kind.rstrip("!"), str(n), token=offset, attempt=1, retries_left=left))
    with reports(*loaded(rows)) as made:
        rows = made.tables()["duplicates"].to_pylist()
    return [(int(row["id"]), row["kind"], row["after"]) for row in rows]


def test_expected_redeliveries_are_not_duplicates():
    assert duplicates_in(
        "sent promoted delivered acked sent promoted delivered discarded",
        "sent delivered nacked retried delivered expired retried delivered released delivered acked",
        "sent delivered nacked replaced promoted delivered acked",
        "sent delivered nacked rescheduled promoted delivered acked",
        "sent delivered nacked! dead redriven promoted delivered acked",
        "sent cancelled sent delivered dead sent delivered acked",
        "delivered acked",  # the log begins in the middle of a life
        "acked sent delivered acked",
        "sent delivered expired retried acked",  # late
    ) == []  # fmt: skip


def test_unexplained_redeliveries_are_duplicates():
    assert duplicates_in(
        "sent delivered promoted delivered acked",
        "sent delivered acked delivered acked",
        "sent delivered acked acked",
        "sent delivered nacked! delivered",
        "sent cancelled delivered",
        "sent delivered nacked delivered delivered nacked",
    ) == [
        (0, "delivered", "delivered"),
        (1, "delivered", "acked"),
        (1, "acked", "acked"),
        (2, "acked", "acked"),
        (3, "delivered", "nacked for good"),
        (4, "delivered", "cancelled"),
        (5, "delivered", "delivered"),
    ]


@pytest.mark.spark
def test_session_time_zone_does_not_change_the_reports(spark, events):
    tables = []
    for zone in ("Asia/Kathmandu", "UTC"):
        spark.conf.set("spark.sql.session.timeZone", zone)
        tables.append(reports(SparkSql(spark), events).tables())
    for name, table in tables[0].items():
        assert tables[1][name].equals(table), name
    assert str(tables[0]["lateness"].schema.field("begin").type) == "timestamp[us, tz=UTC]"


@pytest.mark.spark
def test_both_engines_make_the_same_tables(spark, events):
    ours = reports(*loaded(row.values() for row in LOG)).tables()
    for name, table in reports(SparkSql(spark), events).tables().items():
        assert {one.name: one.type for one in table.schema} == {one.name: one.type for one in ours[name].schema}, name
        found = [
            [pytest.approx(one) if isinstance(one, float) else one for one in row.values()] for row in table.to_pylist()
        ]
        assert [list(row.values()) for row in ours[name].to_pylist()] == found, name


@pytest.mark.spark
def test_reports_release_cached_tables(spark, events):
    before = spark.catalog.listTables()
    made = reports(SparkSql(spark), events)
    made.tables()
    assert spark.catalog.listTables() == before
    assert made["totals"].count() == len(EventKind)  # and can be read all the same


def test_empty_log_has_empty_reports():
    tables = reports(*loaded([])).tables()
    full = {"log", "totals"}
    assert {name for name, table in tables.items() if table.num_rows} == full
    assert tables["log"].to_pylist()[0]["events"] == 0
    assert {row["events"] for row in tables["totals"].to_pylist()} == {0}


def test_log_numbered_by_time_has_no_gap_report():
    rows = [event(1_790_000_000_000_000_000 + n * 1000, "sent", str(n)) for n in range(3)]
    with reports(*loaded(rows)) as made:
        assert made.tables()["log"]["missing"].to_pylist() == [None]
        assert made.tables()["gaps"].num_rows == 0


def test_gap_can_span_several_partitions_of_offsets():
    rows = [event(offset, "sent", str(offset)) for offset in (5, 6, 70_000, 400_000, 400_002)]
    with reports(*loaded(rows)) as made:
        gaps = made.tables()["gaps"].to_pylist()
    assert [tuple(gap.values()) for gap in gaps] == [
        (7, 69_999, 69_993),
        (70_001, 399_999, 329_999),
        (400_001, 400_001, 1),
    ]


def test_unknown_kind_of_event_is_counted():
    rows = [event(1, "sent"), event(2, "beamed"), event(3, "delivered", token=1, attempt=1)]
    with reports(*loaded(rows)) as made:
        totals, again = (made.tables()[name].to_pylist() for name in ("totals", "redeliveries"))
    seen = [(row["kind"], row["events"]) for row in totals if row["events"]]
    assert seen == [
        ("sent", 1),
        ("delivered", 1),
        ("beamed", 1),
    ]
    assert [(row["kind"], row["after"], row["explained"]) for row in again] == [("delivered", "other", True)]


def test_number_of_listed_rows_is_limited():
    rows = [event(n, "nacked", str(n), error=f"E{n}") for n in range(1, MAX_ROWS + 50)]
    assert reports(*loaded(rows)).tables()["errors"].num_rows == MAX_ROWS


def test_invalid_column_is_refused():
    table = table_of([event(1, "sent")])
    engine = DuckDB()
    with pytest.raises(ConfigurationError, match="its column 'token' is missing and must be bigint"):
        reports(engine, engine.table(table.drop(["token"])))
    at = table.schema.get_field_index("event_at")
    text = table.set_column(at, "event_at", table["event_at"].cast("string"))
    with pytest.raises(ConfigurationError, match="its column 'event_at' is string and must be timestamp"):
        reports(engine, engine.table(text))


@pytest.mark.spark
def test_stream_is_refused(spark, tmp_path):
    with pytest.raises(ConfigurationError, match="not a stream"):
        report_on_spark(spark.readStream.format("rate").load(), tmp_path)


def test_other_columns_are_ignored():
    engine = DuckDB()
    table = table_of([event(1, "sent")]).drop(["holder", "run"])
    reports(engine, engine.table(table.append_column("part", [["x"]]))).release()


# Files


def test_each_table_is_written_to_one_file(made, rows, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "lateness.csv").write_text("old")
    write_files(made, tmp_path)
    names = {f"{name}.{end}" for name in made for end in ("csv", "parquet")}
    assert {file.name for file in tmp_path.iterdir()} == names | {"notes.txt"}
    with (tmp_path / "lateness.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["begin"] for row in read] == [f"{row['begin']:%Y-%m-%dT%H:%M:%SZ}" for row in rows["lateness"]]
    assert [float(row["p99_ms"]) for row in read] == pytest.approx([row["p99_ms"] for row in rows["lateness"]])
    with (tmp_path / "errors.csv").open(newline="", encoding="utf-8") as file:
        assert [row["error"] for row in csv.DictReader(file)] == [row["error"] for row in rows["errors"]]
    with (tmp_path / "totals.csv").open() as file:
        first = next(csv.DictReader(file))["first"]
    assert datetime.fromisoformat(first) == rows["totals"][0]["first"]
    assert pq.read_table(tmp_path / "rates.parquet").equals(made.tables()["rates"])


@pytest.mark.spark
def test_spark_reads_the_written_tables(spark, events, tmp_path):
    made = reports(SparkSql(spark), events)
    rows = {name: table.to_pylist() for name, table in made.tables().items()}
    write_files(made, tmp_path, formats=["parquet"])
    assert not list(tmp_path.glob("*.csv"))
    back = spark.read.parquet(str(tmp_path / "lateness.parquet"))
    assert back.dtypes == made["lateness"].dtypes
    assert back.selectExpr("unix_seconds(begin) as begin").first().begin == rows["lateness"][0]["begin"].timestamp()


def test_report_is_written_completely_or_not_at_all(tmp_path, monkeypatch):
    done = []
    made = report(*loaded(row.values() for row in LOG), tmp_path / "out", queue="orders", told=done.append)
    assert done == list(made)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<h1>orders</h1>" in page
    assert "日本: &lt;script&gt;" in page
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "out").iterdir()}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(import_module("delayq.report.report").csv, "write_csv", full)
    with pytest.raises(ConfigurationError, match="out: No space left on device"):
        write_files(made, tmp_path / "out")
    assert {file.name: file.stat().st_mtime_ns for file in (tmp_path / "out").iterdir()} == before


def test_report_without_html_writes_no_page(tmp_path):
    report(*loaded([event(1, "sent")]), tmp_path, html=False, formats="csv")
    assert {file.suffix for file in tmp_path.iterdir()} == {".csv"}


def test_unwritable_output_is_refused_before_any_computation(tmp_path):
    events = loaded([event(1, "sent")])
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"cannot write the report to .*file"):
        report(*events, tmp_path / "file")
    with pytest.raises(ConfigurationError, match="not 'cvs', did you mean 'csv'"):
        report(*events, tmp_path / "out", formats=["cvs"])
    assert not (tmp_path / "out").exists()
