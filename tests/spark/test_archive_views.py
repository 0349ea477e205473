"""Views of an archive: a row for each life of a message, and for each delivery."""

from datetime import UTC, datetime, timedelta

import pytest

from delayq import DelayQueue, Discard, Reject
from delayq.archive import archive
from delayq.archive.sql_engine import rows_of
from delayq.archive.views import lives
from delayq.bulk.files.schemas import EVENTS, columns_of
from delayq.spark import create_views
from tests.spark.test_recipes import blocks
from tests.support.event_tables import loaded
from tests.support.waiting import wait_until

T0 = datetime(2026, 11, 23, 9, 0, tzinfo=UTC)


def log(*events):
    """Make a log of an event a minute: kind and id, and other columns."""
    rows = []
    for n, (kind, id, more) in enumerate(events, 1):
        row = {"log_offset": n, "entry_index": 0, "event_at": T0 + timedelta(minutes=n), "kind": kind, "id": id} | more
        rows.append([row.get(name) for name in columns_of(EVENTS)])
    return loaded(rows)


def minute(n):
    return T0 + timedelta(minutes=n)


def test_life_begins_with_a_send_and_ends_with_an_outcome():
    engine, events = log(
        ("sent", "acked", {"due": minute(2), "run": "night"}),
        ("promoted", "acked", {"due": minute(2)}),
        ("delivered", "acked", {"due": minute(2), "token": 1, "attempt": 1}),
        ("nacked", "acked", {"token": 1, "retries_left": 2, "error": "busy"}),
        ("retried", "acked", {"token": 1}),
        ("delivered", "acked", {"due": minute(2), "token": 2, "attempt": 2}),
        ("acked", "acked", {"token": 2}),
        ("sent", "acked", {"due": minute(30)}),
        ("rescheduled", "acked", {"due": minute(40)}),
        ("sent", "replaced", {"due": minute(30)}),
        ("replaced", "replaced", {"due": minute(31)}),
        ("cancelled", "replaced", {}),
        ("acked", "before", {"token": 9}),
        ("sent", "dead", {"due": minute(14)}),
        ("delivered", "dead", {"due": minute(14), "token": 3, "attempt": 1}),
        ("dead", "dead", {"token": 3, "attempt": 1, "reason": "no such address", "error": "no such address"}),
        ("redriven", "dead", {"due": minute(17)}),
        ("purged", None, {}),
        ("sent", "after", {"due": minute(30)}),
        ("dead_purged", "dead", {"token": 3}),
        ("dead_imported", "dead", {"due": minute(2), "token": 2, "attempt": 4, "reason": "no", "error": "no"}),
        ("dead_imported", "elsewhere", {"due": minute(2), "token": 2, "attempt": 4, "reason": "no", "error": "no"}),
        ("audit", "replaced", {"holder": "ada", "reason": "cancel: replaced: cancelled."}),
    )
    # What has not ended when all is purged has ended then.
    rows = {(row["id"], row["life"]): row for row in rows_of(engine, lives(engine, events))}
    found = {key: (row["begun_by"], row["outcome"], row["ended_at"]) for key, row in rows.items()}
    assert found == {
        ("acked", 1): ("sent", "acked", minute(7)),
        ("acked", 2): ("sent", "purged", minute(18)),
        ("replaced", 1): ("sent", "replaced", minute(11)),
        ("replaced", 2): ("replaced", "cancelled", minute(12)),
        ("before", 0): (None, "acked", minute(13)),
        ("dead", 1): ("sent", "dead", minute(16)),
        ("dead", 2): ("redriven", "purged", minute(18)),
        ("after", 1): ("sent", None, None),
    }
    first, second = rows["acked", 1], rows["acked", 2]
    names = ("run", "deliveries", "attempts", "lateness_ms", "error", "first_delivered_at")
    assert tuple(first[name] for name in names) == ("night", 2, 2, 60_000, "busy", minute(3))
    assert second["due"] == minute(40)


@pytest.mark.spark
def test_queries_of_the_handbook_run_on_an_archive(spark, redis_url, tmp_path):
    def handle(message):
        if message.payload == "reject":
            raise Reject("no such address")
        if message.payload == "discard":
            raise Discard

    with DelayQueue("letters", url=redis_url, events=True) as queue:
        for payload in ("ack", "reject", "discard"):
            queue.send_delay_msg(payload, id=payload)
        queue.send_delay_msg("later", "1h", id="later")
        queue.callback(handle)
        queue.run(burst=True)
        wait_until(lambda: queue.counts().dead == 1)
    path = str(tmp_path / "archive")
    archive("letters", path, url=redis_url)

    assert create_views(spark, path, prefix="letters_") == ("letters_events", "letters_lives", "letters_lateness")
    assert spark.table("letters_events").count() > 8
    create_views(spark, path)
    by_hour, outcomes, dead = (
        [row.asDict() for row in spark.sql(query).collect()] for query in blocks("Questions in SQL")
    )
    assert sum(row["deliveries"] for row in by_hour) == 3
    assert all(0 <= row["p99_ms"] <= row["max_ms"] for row in by_hour)
    assert {row["outcome"]: row["lives"] for row in outcomes} == {"acked": 1, "discarded": 1, "dead": 1, "open": 1}
    assert [(row["id"], row["attempts"], row["reason"]) for row in dead] == [("reject", 1, "no such address")]
