"""Lets messages join their groups, in place of a callback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from delayq.broker.calls import Calls
from delayq.broker.message.collected import entry_of
from delayq.broker.message.joining import Joining
from delayq.broker.replies import statuses
from delayq.broker.requests import ScriptCall, flat
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery


class Joined(NamedTuple):
    """A delivery whose payload becomes one of a group: what its script takes; times in milliseconds."""

    id: str
    token: int
    group: str
    quiet: int
    at_most: int | str
    retries: int
    headers: bytes
    attributes: bytes
    entry: bytes


def joined(delivery: InFlightDelivery) -> Joined:
    """Return what becomes of a delivery that is to join a group."""
    claimed = delivery.claimed
    joining = cast("Joining", Joining.of(delivery.attributes.joins))
    how = joining.how
    if delivery.attributes.hours:
        from delayq.schedules.hours import until_open  # few messages have hours

        how = until_open(how, delivery.attributes, delivery.server_now)
    return Joined(
        *delivery.receipt,
        joining.group,
        how.quiet,
        "" if how.at_most is None else how.at_most,
        claimed.retries_left,
        claimed.headers,
        joining.attributes(claimed.attributes),
        entry_of(claimed.payload, is_json=joining.is_json),
    )


def join_call(calls: Calls, max_payload: int, messages: Sequence[Joined]) -> ScriptCall[str]:
    """Settle leased messages as done, and add their payloads to their groups.

    Status: 1 done, 0 not leased; of the first ones, if one of the others is the group of another.
    """
    return calls.script("join", [calls.now, max_payload, *flat(messages)], statuses)
