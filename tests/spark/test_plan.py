"""Plans: due times, payloads, changes since the previous plan, and refused input."""

import json
import random
from datetime import UTC, date, datetime, timedelta
from zoneinfo import available_timezones

import pytest
from pyspark.sql import functions as F

from delayq.broker.keys import check_id
from delayq.bulk.files.schemas import PLAN
from delayq.bulk.message_ids import id_of
from delayq.bulk.reminder_rules import NOT_IANA, Rule
from delayq.errors import ConfigurationError
from delayq.spark.pipelines.plan import plan
from tests.support.plans import (
    INVALID_ROWS,
    NEW_YORK,
    NOT_LOCAL_TIMES,
    RULES,
    ZONES,
    at,
    expected,
    instant_of,
    moments,
    wall_clock,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TWO_HOURS = Rule("two-hours", offset="-2h")


def micros(moment):
    return (moment - EPOCH) // timedelta(microseconds=1)


def found(planned):
    """Return the rows of a plan as (id, source, rule, occurrence, due, payload, revision, action), sorted."""
    rows = planned.withColumn("due", F.unix_micros("due")).collect()
    return sorted((*row[:4], EPOCH + timedelta(microseconds=row[4]), *row[5:]) for row in rows)


def dues(planned):
    """Return (source, rule) → due times, in order of the occurrences."""
    reply = {}
    for _, source, rule, occurrence, due, *_ in sorted(found(planned), key=lambda row: row[3]):
        so_far = reply.setdefault((source, rule), [])
        assert occurrence == len(so_far)
        so_far.append(due)
    return reply


@pytest.fixture
def things(spark):
    """Make a table of things from rows."""
    return lambda rows, schema="id STRING, time TIMESTAMP, zone STRING": spark.createDataFrame(rows, schema)


@pytest.fixture
def in_zone(spark):
    """Change the time zone of the session."""
    before = spark.conf.get("spark.sql.session.timeZone")
    yield lambda zone: spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.session.timeZone", before)


def test_each_thing_gets_a_reminder_with_its_own_payload_and_id(things):
    departs = at("2013-01-01T05:15:00-05:00")
    schema = "flight INT, id STRING, zone STRING, `the carrier.x` STRING, seen TIMESTAMP, time TIMESTAMP"
    rows = [(1545, "EWR-1545", NEW_YORK, 'U"A', departs, departs), (None, "LGA-1714", NEW_YORK, None, None, departs)]
    planned = plan(things(rows, schema), TWO_HOURS)
    assert planned.schema.simpleString() == things([], PLAN).schema.simpleString()
    due = departs - timedelta(hours=2)
    first, second = sorted(found(planned), key=lambda row: row[1])
    assert first[1:5] == ("EWR-1545", "two-hours", 0, due)
    assert first[6:] == (0, "new", 3)
    assert [row[0] for row in (first, second)] == [
        check_id(id_of(source, "two-hours", 0, due, 0)) for source in ("EWR-1545", "LGA-1714")
    ]
    assert first[5] == (
        '{"source":"EWR-1545","rule":"two-hours","occurrence":0,"due":"2013-01-01T08:15:00.000000Z",'
        '"flight":1545,"seen":"2013-01-01T10:15:00.000000Z","the carrier.x":"U\\"A"}'
    )
    payload = json.loads(second[5])
    assert (payload["flight"], payload["seen"], payload["the carrier.x"]) == (None, None, None)


def test_rule_selects_the_columns_of_the_payload(things):
    rows = [(7, date(2013, 1, 31), "Asia/Kathmandu", "KTM", 1.5)]
    rules = [TWO_HOURS, Rule("bare", payload=[]), Rule("when", payload=["time", "zone", "dest", "time"])]
    planned = plan(things(rows, "id BIGINT, time DATE, zone STRING, dest STRING, fare DOUBLE"), rules)
    carried = {row[2]: json.loads(row[5]) for row in found(planned)}
    common = {"source": "7", "occurrence": 0, "due": "2013-01-30T18:15:00.000000Z"}
    assert carried == {
        "two-hours": common | {"rule": "two-hours", "due": "2013-01-30T16:15:00.000000Z", "dest": "KTM", "fare": 1.5},
        "bare": common | {"rule": "bare"},
        "when": common | {"rule": "when", "time": "2013-01-31", "zone": "Asia/Kathmandu", "dest": "KTM"},
    }


# Due times compared with zoneinfo, in zones with unusual clock changes


def test_due_times_agree_with_zoneinfo(things, in_zone):
    in_zone("Europe/Berlin")
    cases = {f"{zone} {number}": (moment, zone) for zone in ZONES for number, moment in enumerate(moments(zone))}
    assert len(cases) > 900
    planned = dues(plan(things([(id, *case) for id, case in cases.items()]), RULES))
    for id, (moment, zone) in cases.items():
        for rule in RULES:
            assert planned.pop((id, rule.name)) == expected(rule, moment, zone), (id, moment, rule)
    assert not planned


def test_documented_behaviour_at_clock_changes(things):
    rows = [
        ("gap", at("2013-03-11T09:00:00-04:00"), NEW_YORK),
        ("twice", at("2013-11-04T09:00:00-05:00"), NEW_YORK),
        ("second", at("2013-11-03T01:30:00-05:00"), NEW_YORK),
        ("skipped", at("2011-12-31T20:00:00+14:00"), "Pacific/Apia"),
    ]
    rules = [
        Rule("half-past-two", offset="-1d", at="02:30"),
        Rule("half-past-one", offset="-1d", at="01:30"),
        Rule("day", offset="-1d"),
        Rule("24-hours", offset="-24h"),
        Rule("sundays", weekdays="sun"),
    ]
    planned = {key: due for key, (due,) in dues(plan(things(rows), rules)).items()}
    assert planned["gap", "half-past-two"] == at("2013-03-10T03:30:00-04:00")
    assert planned["gap", "day"] == at("2013-03-10T09:00:00-04:00")
    assert planned["gap", "24-hours"] == at("2013-03-10T09:00:00-04:00")
    assert planned["twice", "half-past-one"] == at("2013-11-03T01:30:00-04:00")
    assert planned["twice", "day"] == at("2013-11-03T09:00:00-05:00")
    assert planned["second", "sundays"] == at("2013-11-03T01:30:00-05:00")
    assert planned["second", "24-hours"] == at("2013-11-02T02:30:00-04:00")
    assert planned["skipped", "day"] == at("2011-12-31T20:00:00+14:00")


def test_reminder_keeps_its_local_time_across_a_clock_change(things):
    rule = Rule("daily", offset="-3d", at="09:00", repeats=4, every="1d")
    ((_, planned),) = dues(plan(things([("a", at("2013-03-12T08:00:00-04:00"), NEW_YORK)]), rule)).items()
    assert [wall_clock(due, NEW_YORK).isoformat() for due in planned] == [
        f"2013-03-{day:02}T09:00:00" for day in (9, 10, 11, 12)
    ]


def test_occurrences_at_the_same_instant_are_one_reminder(things):
    rule = Rule("working-days", at="09:00", weekdays="mon-fri", repeats=5, every="1d")
    ((_, planned),) = dues(plan(things([("a", at("2013-01-03T12:00:00+01:00"), "Europe/Berlin")]), rule)).items()
    assert [due.day for due in planned] == [3, 4, 7]


def test_local_time_is_read_in_the_zone_of_the_row(things, in_zone):
    in_zone(NEW_YORK)  # where 02:30 did not exist on that day
    cases = [
        ("Europe/Berlin", "2013-03-10 02:30:00.000001"),
        (NEW_YORK, "2013-03-10 02:30"),
        (NEW_YORK, "2013-11-03T01:30:00"),
        ("Asia/Kathmandu", "1969-12-31 23:59:59.9"),
        ("+05:45", "2013-01-31"),
    ]
    rows = [(str(number), text, zone) for number, (zone, text) in enumerate(cases)]
    texts = things(rows, "id STRING, time STRING, zone STRING")
    as_texts = dues(plan(texts, TWO_HOURS))
    assert as_texts == dues(plan(texts.withColumn("time", F.col("time").cast("timestamp_ntz")), TWO_HOURS))
    for number, (zone, text) in enumerate(cases):
        wall = datetime.fromisoformat(text)
        instant = wall.replace(tzinfo=UTC) - timedelta(hours=5.75) if zone == "+05:45" else instant_of(wall, zone)
        assert as_texts[str(number), "two-hours"] == [instant - timedelta(hours=2)]


# Changes since the previous plan


def test_same_plan_in_another_session_keeps_every_reminder(spark, things, in_zone, tmp_path):
    rows = [(f"{zone} {n}", moment, zone, n) for zone in ZONES for n, moment in enumerate(list(moments(zone))[::40])]
    schema = "id STRING, time TIMESTAMP, zone STRING, n INT"
    first = plan(things(rows, schema), RULES)
    first.write.parquet(str(tmp_path / "first"))
    stored = spark.read.parquet(str(tmp_path / "first"))
    in_zone(NEW_YORK)
    shuffled = things(random.sample(rows, len(rows)), schema).repartition(5)
    again = shuffled.select("n", "zone", "id", "time")
    assert found(plan(again, RULES[::-1])) == found(stored)
    kept = found(plan(again, RULES[::-1], previous=stored))
    assert kept == [(*row[:7], "keep", row[8]) for row in found(stored)]


def summary(planned):
    """Return source → [(action, day due, payload field x, revision)]."""
    reply = {}
    for _, source, _, _, due, payload, revision, action, _ in found(planned):
        reply.setdefault(source, []).append((action, due.day, json.loads(payload)["x"], revision))
    return {source: sorted(rows) for source, rows in reply.items()}


SCHEMA = "id STRING, time TIMESTAMP, zone STRING, x STRING"
ON_TIME = Rule("on-time")


def on(day, hour=12):
    return datetime(2026, 3, day, hour, tzinfo=UTC)


def test_plan_marks_reminders_as_new_kept_or_cancelled(spark, things):
    same, moves, changes, goes = (("same", on(1)), ("moves", on(1)), ("changes", on(1)), ("goes", on(1)))
    first = plan(things([(*row, "UTC", "x") for row in (same, moves, changes, goes)], SCHEMA), ON_TIME)
    rows = [(*same, "UTC", "x"), ("moves", on(2), "UTC", "x"), (*changes, "UTC", "y"), ("comes", on(1), "UTC", "x")]
    second = plan(things(rows, SCHEMA), ON_TIME, previous=spark.createDataFrame(first.collect(), PLAN))
    assert summary(second) == {
        "same": [("keep", 1, "x", 0)],
        "moves": [("cancel", 1, "x", 0), ("new", 2, "x", 0)],
        "changes": [("cancel", 1, "x", 0), ("new", 1, "y", 1)],
        "goes": [("cancel", 1, "x", 0)],
        "comes": [("new", 1, "x", 0)],
    }
    before = {row[0] for row in found(first)}
    assert {row[0] for row in found(second) if row[7] != "new"} == before
    assert not {row[0] for row in found(second) if row[7] == "new"} & before


def test_cancels_are_kept_until_their_due_time(spark, things):
    before = [
        ("past", "a", "on-time", 0, on(1), "{}", 0, "cancel", 3),
        ("gone", "b", "on-time", 0, on(1), "{}", 0, "new", 3),
        ("due", "c", "on-time", 0, on(2), "{}", 0, "cancel", 3),
        ("planned", "d", "on-time", 0, on(3), "{}", 0, "keep", 3),
    ]
    none, previous = things([], SCHEMA), things(before, PLAN)
    assert [row[0] for row in found(plan(none, ON_TIME, previous=previous))] == ["due", "gone", "past", "planned"]
    assert {row[7] for row in found(plan(none, ON_TIME, previous=previous))} == {"cancel"}
    assert [row[0] for row in found(plan(none, ON_TIME, previous=previous, since=on(2)))] == ["due", "planned"]
    assert [row[0] for row in found(plan(none, ON_TIME, previous=previous, since=on(2, 13)))] == ["planned"]


class Queue:
    """A model of a queue that refuses a cancelled id for ever."""

    def __init__(self):
        self.living = {}
        self.settled = set()

    def load(self, rows):
        for id, source, rule, occurrence, due, payload, _, action, _ in rows:
            if action == "cancel":
                self.living.pop(id, None)
                self.settled.add(id)
            elif id not in self.living:
                assert id not in self.settled, (id, source)
                self.living[id] = (source, rule, occurrence, due, payload)


@pytest.mark.parametrize("as_a_log", [False, True])
def test_queue_that_loads_plans_has_the_planned_reminders(spark, things, as_a_log):
    """Things come, go, move and change, at random and in parallel; some plans are never loaded."""
    choice = random.Random(4).choice
    rules = [ON_TIME, Rule("two-a-day", repeats=2, every="6h", payload=[])]
    queue, previous, log = Queue(), None, []
    for step in range(6):
        rows = [(f"{n}", on(choice([1, 2])), "UTC", choice("xy")) for n in range(150) if choice([True, True, False])]
        rows = found(plan(things(rows, SCHEMA), rules, previous=previous))
        assert len({row[0] for row in rows if row[7] != "cancel"}) == sum(row[7] != "cancel" for row in rows)
        log = [*log, *rows] if as_a_log else rows
        previous = spark.createDataFrame(log, PLAN)
        if step % 2:
            queue.load(rows)
            planned = [row[1:6] for row in rows if row[7] != "cancel"]
            assert sorted(queue.living.values()) == sorted(planned)
    assert {row[7] for row in rows} == {"new", "keep", "cancel"}
    assert max(row[6] for row in rows) > 1


def test_plan_has_the_retries_of_each_rule(things):
    rules = [Rule("patient", retries=9), Rule("other")]
    planned = plan(things([("a", on(1), "UTC")]), rules)
    assert {row["rule"]: row["retries"] for row in planned.collect()} == {"patient": 9, "other": 3}


# Refused input


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("id STRING, zone STRING", "column 'time' is missing: id, time and zone are required; the table has id, zone"),
        ("ID STRING, time TIMESTAMP, zone STRING", "column 'id' is missing: id, time and zone are required"),
        ("id DOUBLE, time TIMESTAMP, zone STRING", "column 'id' must be a STRING or a whole number, not"),
        (
            "id INT, time BIGINT, zone STRING",
            "column 'time' must be a TIMESTAMP, a TIMESTAMP_NTZ, a DATE",
        ),
        ("id INT, time DATE, zone INT", "column 'zone' must be a STRING, the IANA name of a time zone"),
        (
            "id INT, time DATE, zone STRING, Due INT",
            "column 'Due' has the name of a standard payload field",
        ),
        (
            "id INT, time DATE, zone STRING, citi INT",
            "rule 'r': payload: there is no column 'city', did you mean 'cit",
        ),
        (
            "id INT, time DATE, zone STRING, x INT",
            "rule 'r': payload: there is no column 'city'; the table has id, time,",
        ),
    ],
)
def test_invalid_columns_are_refused(things, schema, message):
    payload = ["city"] if "payload: " in message else None
    with pytest.raises(ConfigurationError) as error:
        plan(things([], schema), Rule("r", payload=payload))
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(("rows", "message"), INVALID_ROWS)
def test_invalid_rows_are_refused_with_their_number_and_an_example(things, rows, message):
    with pytest.raises(ConfigurationError) as error:
        plan(things(rows), TWO_HOURS)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("text", NOT_LOCAL_TIMES)
def test_text_that_is_not_a_local_time_is_refused(things, text):
    table = things([("a", "2013-01-31", "UTC"), ("b", text, "UTC")], "id STRING, time STRING, zone STRING")
    with pytest.raises(ConfigurationError) as error:
        plan(table, TWO_HOURS)
    assert str(error.value).startswith(f"time is invalid in 1 of 2 rows, for example {text!r} of 'b'; a text must")


def test_duplicate_column_is_refused(things):
    table = things([]).withColumn("x", F.lit(1))
    with pytest.raises(ConfigurationError, match="column 'x' exists more than once"):
        plan(table.select("*", F.lit(2).alias("X")), TWO_HOURS)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("id STRING", "previous is not a plan: its column 'source' is missing and must be string"),
        (
            PLAN.replace("due TIMESTAMP", "due STRING"),
            "previous is not a plan: its column 'due' is string and must be",
        ),
    ],
)
def test_previous_must_be_a_plan(things, schema, message):
    with pytest.raises(ConfigurationError) as error:
        plan(things([]), TWO_HOURS, previous=things([], schema))
    assert str(error.value).startswith(message)


def test_naive_time_is_refused(things):
    with pytest.raises(ConfigurationError, match="since must carry a time zone"):
        plan(things([]), TWO_HOURS, since=datetime(2026, 1, 1))  # noqa: DTZ001 - naive on purpose


def test_refused_abbreviations_are_not_iana_names():
    assert not set(NOT_IANA) & available_timezones()
