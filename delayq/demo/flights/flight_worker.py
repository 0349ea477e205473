"""Delivers the reminders of the Spark demo: `delayq worker delayq.demo.flights.flight_worker:queue`.

The id decides whether a reminder fails: some do at the first attempt, a few at every attempt.
"""

from __future__ import annotations

import os
import time
import zlib
from typing import Any

from delayq.options import QueueOptions
from delayq.queue.delay_queue import DelayQueue
from delayq.values.outcomes import Reject
from delayq.worker.delivery.message import Message

NAME = "DELAYQ_SPARK_DEMO_QUEUE"
"""The environment variable with the name of the queue."""
OPTIONS: QueueOptions = {
    "prefix": "delayq-spark-demo",
    "lease": 2,  # short: a killed worker's reminders are delivered again within the run
    "concurrency": 32,
    "nack_delay": "250ms",
}

WORK = 0.005
"""Seconds a callback takes."""

queue: DelayQueue[Any] = DelayQueue(os.environ.get(NAME, "flights"), **OPTIONS)


@queue.callback
def remind(message: Message[Any]) -> None:
    """Remind the passengers of a flight; every 400th reminder fails, and every 97th fails once."""
    time.sleep(WORK)
    number = zlib.crc32(message.id.encode())
    if number % 4000 == 0:
        raise Reject("no passengers")
    if number % 400 == 0:
        raise ConnectionError("no such gate")
    if number % 97 == 0 and message.attempt == 1:
        raise TimeoutError("the gate does not answer")
