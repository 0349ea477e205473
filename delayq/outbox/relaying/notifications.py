"""PostgreSQL tells relays of commits, by NOTIFY: how a connection of its drivers for threads waits for that."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from typing import Any

from delayq.values.times import monotonic

CHANNEL = "delayq_outbox"
"""Where PostgreSQL tells relays that rows were committed."""
SLICE = 0.2
"""Seconds after which a waiting relay notices that it is stopped; the database is not asked."""


def wait_for_commit(raw: Any, seconds: float, stopped: threading.Event) -> None:
    """Wait until a connection of psycopg or psycopg2 is told of a commit, for so long, or until stopped.

    Raises the errors of the driver.
    """
    told: Callable[[Any, float], bool] = _told_by_psycopg if callable(raw.notifies) else _told_by_psycopg2
    end = monotonic() + seconds
    while not stopped.is_set() and (left := end - monotonic()) > 0:
        if told(raw, min(left, SLICE)):
            return


def _told_by_psycopg(raw: Any, seconds: float) -> bool:
    return len(list(raw.notifies(timeout=seconds, stop_after=1))) > 0


def _told_by_psycopg2(raw: Any, seconds: float) -> bool:
    raw.poll()
    if not raw.notifies:
        select.select([raw], [], [], seconds)
        raw.poll()
    told = bool(raw.notifies)
    raw.notifies.clear()
    return told
