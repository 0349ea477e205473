"""The whole pipeline on real flights, with a worker killed: it adds up; then sabotaged, which is found."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import redis
from pyspark.sql import functions as F

from delayq.demo.server import Server
from delayq.errors import DelayqError
from delayq.keys import Keys
from delayq.spark import archive, load, report
from delayq.spark.demo.flights import flights
from delayq.spark.demo.run import open_course
from delayq.spark.plan import plan
from delayq.spark.rules import Rule

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MONTH, FLIGHTS = 2, 24_951
SECONDS = 10


def test_a_reminder_two_hours_before_is_right_over_the_change_to_summer_time(spark, tmp_path):
    """The package gives each departure in UTC as well; in March the clocks of New York went forward."""
    things = flights(spark, tmp_path, month=3)
    planned = plan(things.drop("departure"), Rule("boarding", offset="-2h", payload=[]))
    both = planned.join(things, planned.source == things.id)
    wrong = both.where(F.expr("due <> departure - interval 2 hours")).count()
    assert (both.count(), wrong) == (28_834, 0)


def test_a_month_of_flights_adds_up_and_what_is_sabotaged_is_found(spark, start_redis, tmp_path):
    server = start_redis()
    told: list[object] = []
    course = open_course(spark, Server(server.url, "a test's"), tmp_path / "demo", told.append)
    client = redis.Redis.from_url(server.url)
    try:
        assert course.make_plan(MONTH, SECONDS) == FLIGHTS
        course.load()
        course.consume()
        course.archive()
        account = course.audit()
        assert account.findings == {}, account.examples
        assert account.adds_up
        assert sum(account.statuses.values()) == FLIGHTS
        assert account.statuses["dead"] > 0
        assert account.statuses["delivered"] == FLIGHTS - account.statuses["dead"]
        assert any("SIGKILL" in str(text) for text in told)

        made = report(course.events, tmp_path / "report", queue=course.queue.name)
        assert made.tables()["log"].to_pylist()[0]["messages"] == FLIGHTS
        assert "<svg" in (tmp_path / "report" / "report.html").read_text()

        # Planned afterwards and loaded; then deleted by hand.
        due = datetime.now(UTC) + timedelta(hours=1)
        late = course.planned.limit(1).withColumn("id", F.lit("planned-late")).withColumn("due", F.lit(due))
        late.write.mode("append").parquet(str(course.folder / "lapse"))
        again = load(course.planned, course.queue.name, url=server.url, prefix=course.queue.prefix)
        assert (again.new, again.settled) == (1, FLIGHTS)
        keys = Keys.of(course.queue.prefix, course.queue.name)
        client.zrem(keys.pending, "planned-late")
        client.hdel(keys.messages, "planned-late")
        client.hdel(keys.retries, "planned-late")

        # Put back by hand after it was acked, and delivered once more.
        acked = course.events.where("kind = 'acked'").first()
        client.zadd(keys.pending, {acked.id: 0})
        client.hset(keys.retries, acked.id, 0)
        client.hset(keys.messages, acked.id, "{}")
        with course.queue.lease() as message:
            assert message.id == acked.id

        # An entry of the log deleted: that of a promotion, which nothing else would miss.
        last = client.xrevrange(keys.events, count=3)[-1]
        assert last[1][b"kind"] == b"promoted"
        client.xdel(keys.events, last[0])
        options = {"url": server.url, "prefix": course.queue.prefix}
        with pytest.raises(DelayqError, match="1 "):
            archive(spark, course.queue.name, str(course.folder / "archive"), **options)
        archive(spark, course.queue.name, str(course.folder / "archive"), **options, fail_on_data_loss=False)

        account = course.audit()
        assert not account.adds_up
        assert account.findings == {"missing": 1, "duplicate": 1, "event lost": 1}, account.examples
        assert {(one.what, one.id) for one in account.examples} == {
            ("missing", "planned-late"),
            ("duplicate", acked.id),
            ("event lost", ""),
        }
    finally:
        course.queue.close()
        client.close()
