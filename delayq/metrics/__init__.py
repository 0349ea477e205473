"""Metrics for Prometheus: what queues tell without any worker, and what worker processes count (extra `prometheus`).

`delayq metrics` and `delayq worker --http-port` serve them. `QueueCollector` puts those of queues into a registry of
your own program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq._lazy import attach

if TYPE_CHECKING:
    from delayq.metrics.queue_collector import QueueCollector as QueueCollector

__all__, __getattr__, __dir__ = attach(__name__)
