"""What tests of audits of a cold tier share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from delayq import NewMessage

DUE = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=30)


def send(queue, *ids):
    queue.send_many([NewMessage(id.encode(), id=id, at=DUE) for id in ids])


def found(result):
    return [(one.what, one.id) for one in result.examples]


def deliver(queue, number):
    for _ in range(number):
        with queue.lease():
            pass
