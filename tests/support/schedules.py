"""A clock to turn for the schedules of a queue, and what they fire."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from delayq.values.times import timestamp

START = datetime(2026, 11, 20, 7, 30, tzinfo=UTC)
"""A Friday, half past eight in Berlin."""
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class Clock:
    """The time that the scripts of some queues use."""

    def __init__(self) -> None:
        self.now = START

    def of(self, queue):
        """Let a queue use this clock."""
        queue.context.calls = replace(queue.context.calls, clock=lambda: timestamp(self.now))
        return queue

    def advance(self, by: timedelta) -> None:
        self.now += by


seen_ids: list[str] = []


def see(message) -> None:
    seen_ids.append(message.id)


def ran(queue) -> list[str]:
    """Process all due messages, including those of schedules; return their ids in order."""
    seen_ids.clear()
    queue.callback(see)
    queue.run(burst=True)
    return [*seen_ids]
