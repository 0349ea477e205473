"""A cold tier on Spark: its files as a table, and an audit with them as in DuckDB."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import duckdb
import pytest

from delayq import ColdTierError, DelayQueue, NewMessage
from delayq.archive import DuckDB, archive, open_archive
from delayq.audit import audit
from delayq.bulk import cold_messages, move_cold, read_messages
from delayq.bulk.files.schemas import PLAN
from delayq.spark import audit as audit_on_spark
from delayq.spark import read_archive, read_cold
from tests.support.cold import cold_files
from tests.support.event_tables import table_of

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)


def test_cold_messages_are_a_table_and_are_audited_on_spark(redis_url, tmp_path, spark):
    folder, events = tmp_path / "cold", str(tmp_path / "archive")
    with DelayQueue("q", url=redis_url, codec="bytes", events=True) as queue:
        with pytest.raises(ColdTierError, match="is no folder of a cold tier"):
            read_cold(spark, str(tmp_path))
        dues = {
            id: NOON + timedelta(days=day) for id, day in {"a": 10, "b": 10, "c": 20, "gone": 30, "living": 40}.items()
        }
        queue.send_many([NewMessage(id.encode(), id=id, at=due) for id, due in dues.items()])
        plan = [(id, id, "r", 0, due, id, 0, "new", 3) for id, due in dues.items()]
        move_cold("q", folder, url=redis_url)
        queue.cancel("b")
        table = read_cold(spark, str(folder))
        files = duckdb.sql(f"SELECT id, due, retries, payload FROM '{folder}/day=*/*.parquet' ORDER BY id")
        rows = table.orderBy("id").toArrow()
        assert rows.select(["id", "due", "retries", "payload"]).to_pylist() == files.to_arrow_table().to_pylist()
        assert rows["payload"].to_pylist() == [id.encode() for id in sorted(dues)]
        assert [row.id for row in table.where(f"day = '{dues['c'].date()}'").collect()] == ["c"]

        cold_files(folder)[2].unlink()
        queue.send(b"living", id="living", at=dues["living"])
        at = queue.stats().at
        snapshot = read_messages("q", url=redis_url, include_payload=True).read_all()
        cold = cold_messages("q", folder, url=redis_url)
        archive("q", events, url=redis_url)
    duck = DuckDB()
    local = audit(
        *(duck, [duck.table(table_of(plan, PLAN))], open_archive(events).table(duck), duck.table(snapshot)),
        at=at,
        cold=duck.table(cold),
    )
    whole = audit_on_spark(
        *(spark.createDataFrame(table_of(plan, PLAN)), read_archive(spark, events), spark.createDataFrame(snapshot)),
        at=at,
        cold=spark.createDataFrame(cold),
    )
    assert whole.facts() == local.facts()
    assert [(one.what, one.id) for one in whole.examples] == [("missing", "gone")]
    assert whole.statuses["cold"] == 2

    facts = folder / "_delayq" / "facts.json"
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"version": 9}))
    with pytest.raises(ColdTierError, match="has version 9"):
        read_cold(spark, str(folder))
