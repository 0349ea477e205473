"""The whole pipeline on real flights with a killed worker: the audit passes, then finds planted faults."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import redis
from pyspark.sql import functions as F

from delayq.archive import archive
from delayq.broker.keys import Keys
from delayq.bulk.reminder_rules import Rule
from delayq.demo.demo_server import DemoServer
from delayq.demo.flights.flight_demo import flights, open_flight_demo
from delayq.errors import DelayqError
from delayq.spark import load, report
from delayq.spark.pipelines.plan import plan

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MONTH, FLIGHTS = 2, 24_951
SECONDS = 10


@pytest.mark.torture
def test_reminder_two_hours_before_is_correct_across_a_clock_change(spark, tmp_path):
    """The data also has each departure in UTC; in March the clocks of New York go forward."""
    scheduled = flights(spark, tmp_path, month=3)
    planned = plan(scheduled.drop("departure"), Rule("boarding", offset="-2h", payload=[]))
    both = planned.join(scheduled, planned.source == scheduled.id)
    wrong = both.where(F.expr("due <> departure - interval 2 hours")).count()
    assert (both.count(), wrong) == (28_834, 0)


@pytest.mark.torture
@pytest.mark.timeout(900)
def test_audit_of_a_month_of_flights_passes_and_finds_planted_faults(spark, start_redis, tmp_path):
    server = start_redis()
    printed: list[object] = []
    demo = open_flight_demo(spark, DemoServer(server.url, "a test's"), tmp_path / "demo", printed.append)
    client = redis.Redis.from_url(server.url)
    try:
        assert demo.make_plan(MONTH, SECONDS) == FLIGHTS
        demo.load()
        demo.consume()
        demo.archive()
        result = demo.audit()
        assert result.findings == {}, result.examples
        assert result.adds_up
        assert sum(result.statuses.values()) == FLIGHTS
        assert result.statuses["dead"] > 0
        assert result.statuses["delivered"] == FLIGHTS - result.statuses["dead"]
        assert any("SIGKILL" in str(text) for text in printed)

        made = report(demo.events, tmp_path / "report", queue=demo.queue.name)
        assert made.tables()["log"].to_pylist()[0]["messages"] == FLIGHTS
        assert "<svg" in (tmp_path / "report" / "report.html").read_text()

        # Planned afterwards and loaded; then deleted by hand.
        due = datetime.now(UTC) + timedelta(hours=1)
        late = demo.planned.limit(1).withColumn("id", F.lit("planned-late")).withColumn("due", F.lit(due))
        late.write.mode("append").parquet(str(demo.folder / "lapse"))
        again = load(demo.planned, demo.queue.name, url=server.url, prefix=demo.queue.prefix)
        assert (again.new, again.settled) == (1, FLIGHTS)
        keys = Keys.of(demo.queue.prefix, demo.queue.name)
        client.zrem(keys.pending, "planned-late")
        client.hdel(keys.messages, "planned-late")
        client.hdel(keys.retries, "planned-late")

        # Put back by hand after it was acked, and delivered once more.
        acked = demo.events.where("kind = 'acked'").first()
        client.zadd(keys.pending, {acked.id: 0})
        client.hset(keys.retries, acked.id, 0)
        client.hset(keys.messages, acked.id, "{}")
        with demo.queue.lease() as message:
            assert message.id == acked.id

        # Delete an entry of the log: that of a promotion, which no other check needs.
        last = client.xrevrange(keys.events, count=3)[-1]
        assert last[1][b"kind"] == b"promoted"
        client.xdel(keys.events, last[0])
        options = {"url": server.url, "prefix": demo.queue.prefix}
        with pytest.raises(DelayqError, match="1 "):
            archive(demo.queue.name, str(demo.folder / "archive"), **options)
        archive(demo.queue.name, str(demo.folder / "archive"), **options, fail_on_data_loss=False)

        result = demo.audit()
        assert not result.adds_up
        assert result.findings == {"missing": 1, "duplicate": 1, "event lost": 1}, result.examples
        assert {(one.what, one.id) for one in result.examples} == {
            ("missing", "planned-late"),
            ("duplicate", acked.id),
            ("event lost", ""),
        }
    finally:
        demo.queue.close()
        client.close()
