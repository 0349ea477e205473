"""Withdraws messages that a consumer has claimed and not started, so that they can be cancelled, moved or replaced.

Only the consumer knows whether a callback has just started, so it is asked to return the message. It does so if no
worker has taken it. The message is then held back for a second, in which the call that has asked acts on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from delayq.broker.batches import batched
from delayq.broker.context import EngineContext
from delayq.broker.scripts import MAX_IDS
from delayq.broker.transport.operation import Operation, Wait

PAUSES = (0.01, 0.02, 0.04, *repeat(0.1, 20))
"""Seconds between two looks, two seconds in all: consumers look four times a second for what they are to return."""


def withdraw(context: EngineContext, ids: Sequence[str]) -> Operation[list[str]]:
    """Withdraw leased messages whose callbacks have not started; returns the ids that are not leased any more.

    The others are being processed, or their consumer does not answer.
    """
    asked, free = list(ids), []
    for pause in PAUSES:
        replies: list[str] = yield [context.calls.withdraw(part) for part in batched(asked, MAX_IDS)]
        statuses = dict(zip(asked, "".join(replies), strict=True))
        free += [id for id, status in statuses.items() if status == "2"]
        asked = [id for id, status in statuses.items() if status == "1"]
        if not asked:
            break
        yield Wait(pause)
    return free
