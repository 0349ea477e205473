"""What delivers the reminders of the Spark demo, served by `delayq worker delayq.spark.demo.worker:queue`.

Which reminders fail is decided by their ids: some the first time, a few for good.
"""

from __future__ import annotations

import os
import time
import zlib
from typing import Any

from delayq.config import QueueOptions
from delayq.message import Message
from delayq.outcomes import Reject
from delayq.queue import DelayQueue

NAME = "DELAYQ_SPARK_DEMO_QUEUE"
"""The variable that tells a worker the name of the queue."""
OPTIONS: QueueOptions = {
    "prefix": "delayq-spark-demo",
    "lease": 2,  # a killed worker's reminders are to come back within the run
    "concurrency": 32,
    "nack_delay": "250ms",
}

WORK = 0.005
"""Seconds a callback takes."""

queue: DelayQueue[Any] = DelayQueue(os.environ.get(NAME, "flights"), **OPTIONS)


@queue.callback
def remind(message: Message[Any]) -> None:
    """Tell the passengers of a flight; every 400th cannot be told, and every 97th not at once."""
    time.sleep(WORK)
    number = zlib.crc32(message.id.encode())
    if number % 4000 == 0:
        raise Reject("no passengers")
    if number % 400 == 0:
        raise ConnectionError("no such gate")
    if number % 97 == 0 and message.attempt == 1:
        raise TimeoutError("the gate does not answer")
