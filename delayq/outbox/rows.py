"""Rows of the outbox, without any database: checked and encoded as a send would be, and what is left of their delays.

Who writes rows by other means than SQLAlchemy takes their values from `send_row`, `cancel_row` and `reschedule_row`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from delayq.broker.keys import check_id
from delayq.broker.requests import Outgoing
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.delay_base import DelayBase
from delayq.queue.sending.due_times import due_text
from delayq.queue.sending.message_options import replacing

LIFE = "delayq-life"
"""The header by which `once` tells one life of an id from the next; only messages with ids of their own have it."""
SEND, REPLACE, CANCEL, RESCHEDULE = "send", "replace", "cancel", "reschedule"
"""What a row does."""
_DEFAULT_PREFIX = "delayq"
_REPEATED = {
    "debounce": "two sends of a burst are not one",
    "collect": "its payload would be collected twice",
    "group": "its payload would be collected twice",
}
"""The options of a send that the relay could not repeat, and why not."""


NOW = {
    "postgresql": "CAST(extract(epoch from clock_timestamp()) * 1000 AS BIGINT)",
    "sqlite": "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    "mysql": "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000 AS SIGNED)",
    "mariadb": "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000 AS SIGNED)",
}
"""The time of a database (ms since 1970), of the statement and not of its transaction, in its SQL."""


class OutboxRow(NamedTuple):
    """One row, by the names of the columns; those that it lacks are filled in by the database."""

    queue: str
    """The name of the queue; with another prefix than `delayq` in front, as `PREFIX:NAME`."""
    id: str
    operation: str
    due: str
    """Milliseconds from the insert, or `@` and milliseconds since 1970; '' for a cancel."""
    retries: int = 0
    payload: bytes = b""
    headers: bytes = b""
    attributes: bytes = b""


class TakenRow(NamedTuple):
    """A row as the relay reads it."""

    seq: int
    id: str
    operation: str
    due: str
    retries: int
    payload: bytes
    headers: bytes
    attributes: bytes
    inserted: int
    """When it was inserted (ms since 1970), by the database's clock."""

    def due_at(self, now: int) -> str | int:
        """Return its due time as scripts take it: what is left of a delay at a time of the database's clock (ms)."""
        if self.due == "0":  # as most
            return 0
        return self.due if self.due[0] == "@" else max(0, int(self.due) - max(0, now - self.inserted))

    def outgoing(self, now: int) -> Outgoing:
        """Return the message that a `send` or `replace` stores."""
        parts = (bytes(self.payload), bytes(self.headers), bytes(self.attributes))  # some drivers return views
        return Outgoing(self.id, self.due_at(now), self.retries, *parts)


class Taken(NamedTuple):
    """A batch of rows, in order, with the database's time (ms) at which they were read."""

    rows: dict[str, list[TakenRow]]
    """By the stored name of their queue; those that follow a refused row of their id are left out."""
    now: int
    more: bool
    """Whether there may be more rows."""
    held: bool
    """Whether another relay works on some of the queues."""


NOTHING = Taken({}, 0, more=False, held=False)


def stored_name(queue: DelayBase[Any, Any]) -> str:
    """Return how rows name a queue; raise `ConfigurationError` for what is no delay queue."""
    if not isinstance(queue, DelayBase):
        raise ConfigurationError(f"an outbox sends to a DelayQueue or an AsyncDelayQueue, not to {short_repr(queue)}")
    return queue.name if queue.prefix == _DEFAULT_PREFIX else f"{queue.prefix}:{queue.name}"


def send_row(
    queue: DelayBase[Any, Any],
    payload: Any,
    delay: Any = None,
    *,
    at: datetime | None = None,
    retries: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> tuple[OutboxRow, bool]:
    """Return the row of a send, and whether its id is the caller's own, so that its order matters.

    Raises what the send itself would: `ConfigurationError` or `PayloadError`.
    """
    name, options = stored_name(queue), dict(options or {})
    due = due_text(0 if delay is None and at is None else delay, at)
    replace = replacing(options, at or delay or 0)
    for option, why in _REPEATED.items():
        if options.get(option) is not None:
            raise ConfigurationError(f"an outbox takes no {option}: after a crash the relay sends again, and {why}")
    if replace not in (True, False):
        raise ConfigurationError(f"an outbox replaces with replace=True or not at all, not with {short_repr(replace)}")
    headers, id = options.get("headers"), options.get("id")
    own = id is not None or options.get("unique") is not None
    if own:
        headers = {**(headers or {}), LIFE: secrets.token_hex(8)}
    message = queue.producer.outgoing(payload, due, retries, id, headers, options=options, replace=replace)
    return row_of(name, message, REPLACE if replace else SEND), own


def row_of(name: str, message: Outgoing, operation: str = SEND) -> OutboxRow:
    """Return the row of a message that is encoded, to the queue with a stored name."""
    return OutboxRow(name, message.id, operation, str(message.due), *message[2:])


def cancel_row(queue: DelayBase[Any, Any], id: str) -> OutboxRow:
    """Return the row that cancels a message; raise `ConfigurationError` for an invalid id."""
    return OutboxRow(stored_name(queue), check_id(id), CANCEL, "")


def reschedule_row(queue: DelayBase[Any, Any], id: str, delay: Any = None, at: datetime | None = None) -> OutboxRow:
    """Return the row that changes the due time of a message; raise `ConfigurationError` for an invalid id or time."""
    return OutboxRow(stored_name(queue), check_id(id), RESCHEDULE, str(due_text(delay, at)))
