"""Imports the dead messages of an exported file into the dead letter of a queue, with the times of their deaths."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from delayq.broker.batches import batched, byte_slices
from delayq.broker.context import QueueContext
from delayq.broker.requests import ImportedDeath, Outgoing
from delayq.broker.scripts import COLLECT_LIMIT
from delayq.bulk.message_lines import MessageLine, outgoing_of
from delayq.bulk.table_sender import CALLS_PER_ROUND_TRIP, TableSender
from delayq.checks import check_int
from delayq.errors import DelayqError, ServerError
from delayq.queue.producer import BATCH_BYTES
from delayq.states import State
from delayq.times import timestamp
from delayq.worker.error_texts import truncate

SPENT = "retries spent"
"""The reason of a message that was about to die when it was exported."""
MAX_ATTEMPTS = 1 << 31
NEEDS_ADMIN = "dead messages need the role admin: leave them out with dead='skip' (--dead skip)"


def dead_messages_of(lines: Sequence[MessageLine], context: QueueContext, max_payload: int) -> list[ImportedDeath]:
    """Return the dead messages of lines; raise `ConfigurationError` for values that they cannot have.

    Nothing begins anew: they keep their expiry, their snoozes and all else, which a redrive leaves out later.
    """
    anew = [msgspec.structs.replace(line, state=State.PENDING) for line in lines]
    messages = outgoing_of(anew, context, max_payload)
    return [
        ImportedDeath(
            id=message.id,
            died="" if line.died is None else timestamp(line.died, "died"),
            due="" if line.due is None else timestamp(line.due, "due"),
            retries=message.retries,
            attempts=check_int(line.attempts, "attempts", 0, MAX_ATTEMPTS),
            reason=truncate(line.reason or (SPENT if line.state == State.GARBAGE else ""), "reason"),
            error=truncate(line.error),
            headers=message.headers,
            attributes=message.attributes,
            payload=message.payload,
        )
        for line, message in zip(lines, map(Outgoing._make, zip(*messages, strict=True)), strict=True)
    ]


class ImportSender(TableSender):
    """Sends the messages of an import, and puts the dead ones into the dead letter."""

    dead = 0
    """Messages that were put into the dead letter."""

    def bury(self, messages: Sequence[ImportedDeath]) -> None:
        """Put messages into the dead letter, many in one round trip; then trim it to the limits of the queue."""
        sizes = [len(one.payload) + len(one.headers) + len(one.reason) + len(one.error) for one in messages]
        slices = byte_slices(sizes, BATCH_BYTES, self._batch_size)
        for parts in batched((messages[part] for part in slices), 1 if self._limiter else CALLS_PER_ROUND_TRIP):
            if self._limiter:
                self._limiter.wait(len(parts[0]))
            for reply in self._executor.run(self._context.calls.dead_import(part, run=self._run) for part in parts):
                if isinstance(reply, ServerError) and "permission" in str(reply):
                    raise ServerError(f"{reply}; {NEEDS_ADMIN}")
                if isinstance(reply, DelayqError):
                    raise reply
                self.dead += reply.count("1")
                self.rows += len(reply)
        trimmed = COLLECT_LIMIT if messages else 0
        while trimmed == COLLECT_LIMIT:  # one call trims so many
            trimmed = self._executor.call(self._context.calls.collect(self._context.settings)).trimmed
