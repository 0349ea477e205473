"""The outbox: messages that are sent if, and once, a transaction of SQL commits; and the inbox, their other end.

`send`, `cancel` and `reschedule` write a row in the transaction of the caller, and a `relay` does in Redis what
committed rows say. `once` lets a message have its effect on a database once. `aio` has the same for asyncio. See
`delayq docs outbox`; it needs `pip install 'delayq[sql]'`.
"""

from typing import TYPE_CHECKING

from delayq._lazy import attach

if TYPE_CHECKING:  # loaded at first use: who writes rows by other means needs no SQLAlchemy
    from delayq.outbox.inbox import once as once
    from delayq.outbox.inbox import prune as prune
    from delayq.outbox.relay import OutboxRelay as OutboxRelay
    from delayq.outbox.relay import relay as relay
    from delayq.outbox.tables import create as create
    from delayq.outbox.tables import metadata as metadata
    from delayq.outbox.upkeep import Backlog as Backlog
    from delayq.outbox.upkeep import RefusedRow as RefusedRow
    from delayq.outbox.upkeep import backlog as backlog
    from delayq.outbox.upkeep import drop as drop
    from delayq.outbox.upkeep import refused as refused
    from delayq.outbox.upkeep import retry as retry
    from delayq.outbox.writing import cancel as cancel
    from delayq.outbox.writing import reschedule as reschedule
    from delayq.outbox.writing import send as send

__all__, __getattr__, __dir__ = attach(__name__)
