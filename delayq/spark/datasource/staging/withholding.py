"""Messages that a batch has claimed and does not get: they have expired, are outside their hours, or join a group."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.broker.context import QueueContext
from delayq.broker.message.attributes import Attributes
from delayq.broker.replies import ClaimedMessage
from delayq.broker.staged import StagedMessages, read_staged, withhold
from delayq.broker.transport.operation import Operation
from delayq.queue.consuming.lease import settle_all
from delayq.values.times import monotonic
from delayq.worker.delivery.disposition import Completion, before_start
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery


def withhold_unready(
    context: QueueContext, reader: str, numbers: Sequence[int], *, now: int, lease: int
) -> Operation[None]:
    """Settle what may not start at the server's time `now` (ms), as any consumer does, and leave it out of the batch.

    It is noted first, and once: a crash leaves it leased, so that it comes again, and no batch has it meanwhile.
    """
    for number in numbers:
        (found,) = yield [read_staged(context.calls, reader, [number])]
        for messages in found:
            unready = {} if messages.withheld else dict(_unready(messages, context, now, lease))
            if unready:
                yield [withhold(context.calls, reader, number, [*unready])]
                yield from settle_all(context, [*unready.values()])


def _unready(messages: StagedMessages, context: QueueContext, now: int, lease: int) -> list[tuple[int, Completion]]:
    at, found = monotonic(), list[tuple[int, Completion]]()
    for row, text in enumerate(messages.attributes):
        attributes = Attributes.of(text)
        if attributes.expires or attributes.hours or attributes.joins:
            claimed = ClaimedMessage(
                messages.ids[row].decode("utf-8", "surrogateescape"),
                messages.tokens[row],
                messages.payloads[row],
                messages.retries[row],
                messages.dues[row],
                messages.attempts[row],
                messages.headers[row],
                text,
            )
            delivery = InFlightDelivery(claimed, at, now, at + lease / 1000, attributes)
            if completion := before_start(delivery, at, context):
                found.append((row, completion))
    return found
