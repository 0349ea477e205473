"""The app of the image: a queue and its callback. Put yours in its place."""

from __future__ import annotations

from typing import Any

from delayq import DelayQueue, Message

queue: DelayQueue[Any] = DelayQueue("reminders", lateness_slo="99% within 5s")


@queue.callback
def remind(message: Message[Any]) -> None:
    """Process one message."""
    print("remember", message.payload)
