"""What tests of the cold tier share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from delayq.queue.sweeps.stored_messages import StoredMessage, StoredPosition, read_stored
from delayq.values.states import MESSAGE_STATES

FOREVER = "3000d"


def as_stored(queue):
    """Return the messages of a queue as they are stored, by id."""
    found, position = [], StoredPosition()
    while position is not None:
        table, position = queue.executor.perform(read_stored(queue.context, position, MESSAGE_STATES))
        found += map(StoredMessage._make, zip(*table, strict=True))
    return {message.id: message for message in sorted(found)}


def cold_files(folder):
    """Return the files by day in the folder of a tier."""
    return sorted(folder.glob("day=*/*.parquet"))


def day_later(number):
    """Return how long it is until noon (UTC) of a later day."""
    now = datetime.now(UTC)
    return now.replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=number) - now


def days(*numbers):
    """Return later days."""
    return [(datetime.now(UTC) + timedelta(days=number)).date().isoformat() for number in numbers]
