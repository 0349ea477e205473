"""Message ids made from columns: equal rows have equal ids everywhere, different rows have different ids."""

import base64
import hashlib
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq.broker.keys import check_id
from delayq.bulk.message_ids import id_of
from delayq.errors import ConfigurationError
from delayq.spark.pipelines.message_ids import message_id

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = ["UTC", "America/New_York", "Pacific/Apia"]
TEXTS = [
    "",
    "a",
    "ab",
    "b",
    "é",
    "日本",
    "👍",
    "7",
    "true",
    "\x1f",
    "\x1f=",
    "a\x1f=b",
    "\x1e",
    "\x1f\x1e",
    "\x00",
    "=",
    None,
]
MOMENTS = [
    EPOCH,
    EPOCH - timedelta(microseconds=1),
    datetime(2013, 3, 10, 7, 30, tzinfo=UTC),
    datetime(2013, 11, 3, 5, 30, 0, 1, tzinfo=UTC),
    datetime(2013, 11, 3, 6, 30, 0, 999_999, tzinfo=UTC),
    datetime(1883, 11, 18, 17, tzinfo=UTC),
    datetime(2199, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    None,
]


@pytest.fixture(params=ZONES)
def zone(request, spark):
    """A time zone of the session."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def made(spark, rows, kinds):
    """Return the ids of rows, made by Spark, in order."""
    names = [f"c{number}" for number in range(len(kinds))]
    schema = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
    return [row[0] for row in spark.createDataFrame(rows, schema).coalesce(1).select(message_id(*names)).collect()]


def test_spark_and_python_make_the_same_ids_in_every_time_zone(spark, zone):
    pairs = [(one, other) for one in TEXTS for other in TEXTS]
    assert made(spark, pairs, ["STRING", "STRING"]) == [id_of(*pair) for pair in pairs]
    rows = [(at, at and at.date(), at and at.year, bool(at), "x") for at in MOMENTS]
    assert made(spark, rows, ["TIMESTAMP", "DATE", "INT", "BOOLEAN", "STRING"]) == [id_of(*row) for row in rows]


def test_type_unknown_to_python_gives_the_same_id_in_every_time_zone(spark, zone):
    from pyspark.sql import functions as F

    moment = F.timestamp_micros(F.lit(1_383_456_600_000_001))
    columns = [
        F.array(moment),
        F.struct(moment.alias("at")),
        F.expr("TIMESTAMP_NTZ '2013-03-10 02:30:00.5'"),
        F.lit(b"\x00\xff"),
        F.lit(1.5),
        F.lit("1.50").cast("decimal(10,2)"),
    ]
    ids = spark.range(1).select(*(message_id(each) for each in columns)).first()
    assert list(ids) == [
        id_of('{"v":["2013-11-03T05:30:00.000001Z"]}'),
        id_of('{"v":{"at":"2013-11-03T05:30:00.000001Z"}}'),
        id_of("2013-03-10 02:30:00.5"),
        base64.b64encode(hashlib.sha256(b"=\x00\xff").digest()[:16], b"._").decode()[:22],
        id_of("1.5"),
        id_of("1.50"),
    ]


@given(st.lists(st.none() | st.text("ab=\x1e\x1f\x00", max_size=4), min_size=1, max_size=4), st.data())
def test_different_rows_have_different_ids(row, data):
    other = data.draw(st.lists(st.none() | st.text("ab=\x1e\x1f\x00", max_size=4), min_size=1, max_size=4))
    assert (id_of(*row) == id_of(*other)) == (row == other)


@given(
    st.lists(st.none() | st.text(st.characters(codec="utf-8")) | st.integers() | st.booleans() | st.dates(), min_size=1)
)
def test_id_is_valid_and_22_characters_long(values):
    id = id_of(*values)
    assert check_id(id) == id
    assert len(id) == 22
    assert not id.startswith("-")


@given(st.datetimes(timezones=st.timezones()))
def test_instant_has_the_same_id_in_every_time_zone(moment):
    assert id_of(moment) == id_of(moment.astimezone(UTC)) == id_of((moment - EPOCH) // timedelta(microseconds=1))


def test_number_equals_its_text_and_null_differs_from_empty_text():
    assert id_of(7) == id_of("7")
    assert id_of(True) == id_of("true")
    assert id_of(date(2013, 1, 31)) == id_of("2013-01-31")
    assert len({id_of(None), id_of(""), id_of(None, None), id_of("", ""), id_of(None, "")}) == 5


def test_id_is_stable_across_versions():
    assert id_of("flight 1545", 0, EPOCH) == "NDChPqGN4m6zdK78FQLC8A"


@pytest.mark.parametrize("value", [1.5, b"x", datetime(2013, 1, 31), [1]])  # noqa: DTZ001 - naive on purpose
def test_unsupported_types_are_refused(value):
    with pytest.raises(ConfigurationError, match="id_of takes texts, whole numbers"):
        id_of(value)


def test_id_of_no_columns_is_refused():
    with pytest.raises(ConfigurationError, match="message_id needs at least one column"):
        message_id()
    with pytest.raises(ConfigurationError, match="id_of needs at least one value"):
        id_of()
