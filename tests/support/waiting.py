"""Waiting for what must come about, in place of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable

import redis

from delayq.broker.keys import Keys


def wait_until(
    condition: Callable[[], object], timeout: float = 60, message: str = "", *, every: float = 0.005
) -> None:
    """Return as soon as `condition()` is true, asked `every` so often; fail the test after `timeout` seconds.

    An exception of the condition passes through. Not for use under a frozen clock: it would wait for ever.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            what = message or getattr(condition, "__qualname__", repr(condition))
            raise AssertionError(f"not within {timeout:g} s: {what}")
        time.sleep(every)


def wait_until_started(url: str, *ids: str, queue: str = "reminders") -> None:
    """Wait until the consumer of these messages has reported that their callbacks have started."""
    with redis.Redis.from_url(url) as client:
        key = Keys.of("delayq", queue).deliveries
        wait_until(lambda: all(record and record.endswith(b" +") for record in client.hmget(key, ids)))
