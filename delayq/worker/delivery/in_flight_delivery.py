"""What a process holds of a message that it has claimed, until it is settled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from delayq.broker.message.attributes import NONE, Attributes
from delayq.broker.replies import ClaimedMessage, ClaimReply
from delayq.broker.requests import Receipt
from delayq.errors import ConfigurationError, short_repr
from delayq.values.backoff import FailurePolicy

MAX_ERROR = 2048
"""Characters of an error text that are stored."""
SNOOZED_OUT = "snoozed {:,} times, as often as max_snoozes allows"
"""The error of a message that was snoozed too often."""

WITHHELD = (
    "undecodable: Redis closes the connection while it sends the payload of {:,} bytes:"
    " is its client-output-buffer-limit too small for this?"
)
"""The error of a message that cannot be claimed with its payload."""


def truncate(text: str, name: str = "error") -> str:
    """Return an error or reason as it is stored: cut to the maximum length, unencodable characters replaced."""
    if not isinstance(text, str):
        raise ConfigurationError(f"{name} must be a str, not {short_repr(text)}")
    return text[:MAX_ERROR].encode("utf-8", "replace").decode()


_receipt: Callable[[tuple[str, int]], Receipt] = partial(tuple.__new__, Receipt)
"""Makes a receipt in the fastest way: each delivery needs one."""


class Batch(msgspec.Struct, eq=False, gc=False):
    """The deliveries passed to one call of a callback; each refers to its batch."""

    started: float
    """The local time."""
    _open: list[bool]
    queue: str = ""
    """The name of the queue, for the log."""

    @property
    def running(self) -> bool:
        """Whether the callback has not ended and is not overdue."""
        return bool(self._open)

    def conclude(self) -> bool:
        """Return True to the first caller only: the runner whose callback ended, or the loop that abandons it."""
        try:
            return self._open.pop()
        except IndexError:
            return False


class InFlightDelivery(msgspec.Struct, eq=False, gc=False):
    """A message that this process has claimed and not yet settled; times are local and monotonic, in seconds.

    The consumer loop reads and writes it; the runner that takes it sets its batch. There may be many at a time, so they
    are untracked by the garbage collector (`gc=False`): nothing they refer to refers back to them.
    """

    claimed: ClaimedMessage
    claimed_at: float
    server_now: int
    """The server's time (ms) of the claim."""
    deadline: float
    attributes: Attributes
    """Those of the message, parsed once: many steps ask for one of them."""
    batch: Batch | None = None
    lost: bool = False
    settled: bool = False
    reported: bool = False
    """Whether Redis knows that the callback has started."""
    policy: FailurePolicy | None = None
    """What its failures mean; None as the queue says."""
    result: tuple[str, str, bytes] | None = None
    """How it ends if it has retention, see `ResultCodec.pack`; None for nothing to keep."""
    timeout: int = 0
    """How long its callback may run (ms); 0 as the queue says."""
    timed_out: bool = False
    """Whether its callback has run for longer, so that its attempt has failed."""
    cancel_requested: bool = False
    """Whether it is asked to stop."""
    span: str = ""
    """The span in which its callback runs, as `Attributes.span`; '' if none is recorded."""
    failed_by_hand: bool | None = None
    """Whether the callback has settled it by hand as failed; None if it has not settled it, or has released it."""
    done: frozenset[int] = frozenset()
    """Which of its collected payloads the callback has settled, by their indexes."""
    by_hand: str = ""
    """The script with which the callback has settled it by hand, if Redis has accepted that."""

    @property
    def receipt(self) -> Receipt:
        """The right to settle this delivery."""
        claimed = self.claimed
        return _receipt((claimed.id, claimed.token))


def deliveries_of(claimed: ClaimReply, now: float, deadline: float) -> list[InFlightDelivery]:
    """Return the deliveries of a claim that was answered at a local time, with leases until another one."""
    server_now, attributes_of = claimed.now, Attributes.of
    return [
        InFlightDelivery(one, now, server_now, deadline, attributes_of(one.attributes) if one.attributes else NONE)
        for one in claimed.messages
    ]


def log_label(deliveries: Sequence[InFlightDelivery], queue: str = "") -> tuple[str, dict[str, Any]]:
    """Return how log messages name the deliveries of one callback, and the fields of the log record."""
    first, batch = deliveries[0], deliveries[0].batch
    queue = queue or ("" if batch is None else batch.queue)
    if len(deliveries) > 1:
        label, fields = label_of("", "", queue)
        ids = [delivery.claimed.id for delivery in deliveries]
        return f"{label.removesuffix('message ')}batch of {len(deliveries)} messages", {"queue": queue, "ids": ids}
    label, fields = label_of(first.claimed.id, first.attributes.name, queue)
    return label, {**fields, "attempt": first.claimed.attempt}


def label_of(id: str, name: str, queue: str) -> tuple[str, dict[str, Any]]:
    """Return how log messages name a message, by the name of its task if it has one, and the fields of the record.

    A record has a `name` of its own, that of the logger.
    """
    where = f"{queue}: " if queue else ""
    return f"{where}{name or 'message'} {id}", {"queue": queue, "id": id, "message_name": name}
