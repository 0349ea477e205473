"""The outbox: messages that are sent if, and once, a transaction of SQL commits; and the inbox, their other end.

`send`, `cancel` and `reschedule` write a row in the transaction of the caller, and a `relay` does in Redis what
committed rows say. `once` lets a message have its effect on a database once. `aio` has the same for asyncio. See
`delayq docs outbox`; it needs `pip install 'delayq[sql]'`.
"""

from delayq.outbox import aio
from delayq.outbox.inbox import once, prune
from delayq.outbox.relay import OutboxRelay, relay
from delayq.outbox.tables import create, metadata
from delayq.outbox.upkeep import Backlog, RefusedRow, backlog, drop, refused, retry
from delayq.outbox.writing import cancel, reschedule, send

__all__ = [
    "send",
    "cancel",
    "reschedule",
    "once",
    "prune",
    "create",
    "metadata",
    "relay",
    "OutboxRelay",
    "backlog",
    "Backlog",
    "refused",
    "RefusedRow",
    "retry",
    "drop",
    "aio",
]
