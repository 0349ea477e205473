"""`delayq why`: why a message waits, or why a queue gives out nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.cli.support.actions import QueueAction
from delayq.cli.support.exit_codes import CommandError, Exit
from delayq.cli.support.options import STORED_ID
from delayq.cli.support.several import queues_with
from delayq.cli.support.zones import zoned_text
from delayq.queue.inspecting.why.looked import Why

if TYPE_CHECKING:
    from delayq.queue.delay_queue import DelayQueue


def _why(queue: DelayQueue[Any], id: str | None) -> Why:
    """Return why it waits; raise `CommandError` for an unknown id."""
    found = queue.why(id)
    if id is not None and found.state is None:
        raise CommandError(f"{id} in {queue.name}: {zoned_text(found.reasons[0].text)}", Exit.NOT_FOUND)
    return found


_rows = [
    QueueAction(
        "why",
        Feature.WHY,
        """Tell why the message ID of QUEUE waits; without ID, why nothing, or not everything, of QUEUE goes out now.

        A line for each reason: it is not due, the queue or its name is paused, a rate or the places of a limit, a
        breaker, a retry, a lease, others of higher priority, or nobody who consumes. Exit code 3 for an unknown ID:
        the line tells whether its id is held after its end.

        JSON: {json}.
        """,
        call=_why,
        shown=lambda found, _: [zoned_text(reason.text) for reason in found.reasons],
        json=("queue *", Why),
        options=[click.argument("id", metavar="[ID]", type=STORED_ID, required=False)],
        of=queues_with,
    )
]
ACTIONS = {action.name: action for action in _rows}
