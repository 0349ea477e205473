"""A queue with an event log and a cold tier, and its audit."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from delayq import DelayQueue
from delayq.archive import DuckDB, archive, open_archive
from delayq.archive.sql_engine import rows_of
from delayq.audit import audit
from delayq.bulk import cold_messages, move_cold, read_messages
from delayq.bulk.files.schemas import EVENTS, PLAN, arrow_schema
from tests.support.cold_audits import DUE
from tests.support.event_tables import table_of


@pytest.fixture
def queue(redis_url):
    with DelayQueue("q", url=redis_url, codec="bytes", events=True) as made:
        yield made


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cold"


@pytest.fixture
def move(redis_url, folder):
    """`move()` makes a pass that keeps 7 days."""
    return lambda **options: move_cold("q", folder, url=redis_url, **options)


@pytest.fixture
def run_audit(queue, redis_url, tmp_path, folder):
    """Audit a plan of these ids, which is also sent here."""

    def call(*ids, with_files=True, cancel=(), later=timedelta(), change=list, **options):
        engine = DuckDB()
        at = queue.stats().at + timedelta(milliseconds=1)
        snapshot = engine.table(read_messages("q", url=redis_url, include_payload=True).read_all())
        cold = engine.table(cold_messages("q", folder, url=redis_url)) if with_files else None
        archive("q", str(tmp_path / "archive"), url=redis_url)
        events = open_archive(str(tmp_path / "archive")).table(engine)
        if change is not list:
            events = engine.table(pa.Table.from_pylist(change(rows_of(engine, events)), arrow_schema(EVENTS)))
        rows = [(id, id, "r", 0, DUE, id, 0, "cancel" if id in cancel else "new", 3) for id in ids]
        plan = engine.table(table_of(rows, PLAN))
        return audit(engine, [plan], events, snapshot, at=at + later, cold=cold, **options)

    return call
