"""The metrics and the probes of one worker process: what its consumers count, and whether they go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from delayq.metrics.families import REGISTRY, Collector, Families, Metric
from delayq.queue.consuming.consumer import AnyConsuming, QueueMeter, dead_loop, meters_of, why_unready
from delayq.worker.parts.meter import DURATION_BOUNDS, start_counting

ALIVE_WITHIN = 60.0
"""Seconds without a turn after which the loop of a consumer counts as dead, beyond its tick."""


class WorkerMonitor(Collector):
    """Reads the consumers of this process, in any thread; asks no Redis, and no lock of theirs.

    Its metrics come with those that the program itself has registered with prometheus-client.
    """

    def __init__(self) -> None:
        """Let the consumers count that start from now on."""
        start_counting()
        self.consumers: Callable[[], Sequence[AnyConsuming | None]] = tuple
        """Returns the consumers of this process, None for each that has not started."""

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the consumers that run."""
        yield from REGISTRY.collect()
        families = Families()
        families.add_build()
        families.gauge("delayq_worker_up", "1 if the worker consumes, as /readyz says, else 0", not self.unready())
        running = [one for one in self.consumers() if one is not None and one.running]
        for meter in [meter for consuming in running for meter in meters_of(consuming)]:
            _add_meter(families, meter)
        yield from families

    def dead(self) -> str:
        """Return which loop does not go on, '' if all do; while a worker drains, its loops may wait for callbacks."""
        return dead_loop(self.consumers(), ALIVE_WITHIN)

    def unready(self) -> str:
        """Return why this worker does not consume all of its queues, '' if it does."""
        return why_unready(self.consumers())


def _add_meter(families: Families, one: QueueMeter) -> None:
    queue, meter = one.queue, one.meter
    families.counter("delayq_worker_delivered_total", "Messages claimed by this process", meter.delivered, queue=queue)
    families.gauge("delayq_worker_in_flight", "Messages that this process has claimed", one.held, queue=queue)
    families.gauge("delayq_worker_running", "Callbacks that run in this process", one.running, queue=queue)
    for (name, outcome), number in meter.ended.copy().items():
        labels = {"queue": queue, "name": name, "outcome": outcome}
        documentation = "What became of the messages that this process had claimed"
        families.counter("delayq_worker_messages_total", documentation, number, **labels)
    for name, durations in meter.durations.copy().items():
        documentation = "How long callbacks of this process took"
        numbers, seconds = durations.numbers, durations.seconds
        families.histogram(
            "delayq_callback_duration_seconds", documentation, DURATION_BOUNDS, numbers, seconds, queue=queue, name=name
        )
