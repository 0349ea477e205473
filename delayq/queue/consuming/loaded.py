"""Loads what a running process may still need of its package, whose files may be replaced or removed meanwhile."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module

from delayq.broker.scripts import read_all

LATE = (
    "delayq.queue.hooks.firing_hooks",
    "delayq.queue.hooks.hooks",
    "delayq.queue.inspecting.forecast",
    "delayq.queue.sweeps.editing",
    "delayq.queue.sweeps.forgetting",
    "delayq.queue.sweeps.handler_check",
    "delayq.queue.inspecting.history",
    "delayq.queue.inspecting.memory_usage",
    "delayq.queue.inspecting.why.why",
    "delayq.queue.consuming.lifespans",
    "delayq.queue.control.limits",
    "delayq.queue.sweeps.rekeying",
    "delayq.queue.results.result_waits",
    "delayq.queue.scheduling.schedules",
    "delayq.queue.sweeps.search",
    "delayq.queue.sweeps.selection",
    "delayq.queue.tasks.tasks",
    "delayq.queue.consuming.unhandled",
    "delayq.schedules.definition",
    "delayq.schedules.hours",
    "delayq.schedules.messages",
    "delayq.schedules.selection",
    "delayq.schedules.store",
    "delayq.worker.delivery.collected_ack",
    "delayq.worker.parts.schedule_replanning",
)
"""The modules that others import at first use."""


@cache
def load_all() -> None:
    """Load them, the scripts and every public name: what starts to consume or to serve needs no file any more."""
    for engine in ("", "streams", "workqueue"):
        read_all(engine)
    for name in LATE:
        import_module(name)
    package = sys.modules["delayq"]
    for name in package.__all__:
        getattr(package, name)
