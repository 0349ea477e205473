"""Delivers the reminders of the demo: `delayq worker delayq.demo.holidays.holiday_worker:queue`."""

from __future__ import annotations

import os
import time
from datetime import datetime
from typing import Literal

import msgspec

from delayq.options import QueueOptions
from delayq.queue.delay_queue import DelayQueue
from delayq.values.backoff import Backoff
from delayq.values.outcomes import Discard
from delayq.worker.delivery.message import Message

NAME = "DELAYQ_DEMO_QUEUE"
"""The environment variable with the name of the queue."""
OPTIONS: QueueOptions = {
    "prefix": "delayq-demo",
    "lease": 2,  # short: a killed worker's reminders are delivered again within the run
    "concurrency": 64,
    "prefetch": 0,  # so that the workers share a rush evenly
    "nack_delay": Backoff.exponential(0.1, max=1),
    "grace": 2,
}


class HolidayReminder(msgspec.Struct, frozen=True):
    """The payload: a holiday by its local name, and when the reminder is due there, in real time."""

    country: str
    holiday: str
    at: datetime
    zone: str
    result: Literal["reached", "busy", "bounces", "unsubscribed"] = "reached"
    """How its callback ends: it succeeds, fails at the first attempt, fails at every attempt, or discards it."""


queue = DelayQueue(os.environ.get(NAME, "reminders"), payload_type=HolidayReminder, **OPTIONS)


@queue.callback
def remind(message: Message[HolidayReminder]) -> None:
    """Take as long as handing a mail to a server nearby, and end with the reminder's simulated result."""
    time.sleep(0.05)
    result = message.payload.result
    if result == "bounces" or (result == "busy" and message.attempt == 1):
        raise ConnectionError("the mail server refuses it")
    if result == "unsubscribed":
        raise Discard("unsubscribed")
