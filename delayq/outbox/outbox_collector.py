"""The metrics of an outbox for Prometheus: how much waits in it, and for how long."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Engine

from delayq.metrics.families import Collector, Families, Metric
from delayq.outbox.upkeep import backlog


class OutboxCollector(Collector):
    """Reads an outbox at each scrape, for a registry of prometheus-client or `delayq outbox relay --port`."""

    def __init__(self, engine: Engine) -> None:
        """Read from this database."""
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        """Read the figures; raises an error of SQLAlchemy if the database does not answer."""
        families = Families()
        families.add_build()
        with self._engine.connect() as connection:
            found = backlog(connection)
        for queue, one in found.items():
            gauges = {
                "delayq_outbox_rows": ("Rows of the outbox that a relay has yet to send", one.waiting),
                "delayq_outbox_oldest_seconds": ("How long the oldest of these rows has waited", one.oldest),
                "delayq_outbox_refused_rows": ("Rows that Redis refuses, and those that follow them", one.refused),
            }
            for metric, (documentation, value) in gauges.items():
                families.gauge(metric, documentation, value, queue=queue)
        return families
