"""What is known of a message, and a page of such: what `queue.get` and `queue.list` return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from delayq.values.states import State


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """A message in the queue or the dead letter. Fields that do not apply to its state are None.

    Its `repr` omits payload and headers, which may be private.
    """

    id: str
    state: State
    payload: Any = field(repr=False)
    """The decoded payload; the raw bytes if they cannot be decoded, or if a page contains only a preview of them. None
    for a completed message."""
    size: int
    """Size of the stored payload in bytes."""
    due: datetime | None
    attempts: int
    retries_left: int
    deadline: datetime | None
    """When the lease or the nack delay ends."""
    token: int | None
    consumer: str | None
    """The id of the consumer that processes it, or processed it last."""
    headers: Mapping[str, str] = field(repr=False)
    error: str
    """The last error; '' if there was none."""
    reason: str = ""
    """Why it died, was discarded, or has no result; '' for none of these."""
    died: datetime | None = None
    entry: str | None = None
    """Its entry in the dead letter, `id:token`, which distinguishes two deaths of one id."""
    name: str = ""
    """The name it was sent with; '' for none."""
    key: str = ""
    """The key it was sent with; '' for none."""
    snoozes: int = 0
    """How often it was snoozed, or released with a delay."""
    expires: datetime | None = None
    """When it expires if it has not started by then; None for never."""
    group: str = ""
    """The id of the group that it joins once it is due; '' for none."""
    hours: str = ""
    """The hours in which it may be delivered; '' for at any time."""
    tz: str = ""
    """The time zone of its hours; '' without them."""
    priority: int = 0
    """The priority it was sent with."""
    timeout: float | None = None
    """How many seconds its callback may run; None as its task or its queue says."""
    cancel_requested: bool = False
    """Whether it was cancelled while it runs: it is asked to stop."""
    progress: Any = field(default=None, repr=False)
    """What its callback has reported last; None for nothing."""
    retention: timedelta | None = None
    """How long its result is kept once it is done; None if it is not."""
    completed: datetime | None = None
    """When it was settled; None if it is alive or dead, or has no retention."""
    kept_until: datetime | None = None
    """Until when its result is kept."""
    result: Any = field(default=None, repr=False)
    """What its callback returned; the bytes if they cannot be decoded."""
    sent: datetime | None = None
    """When it was sent, as `Message.sent`: by the sender's clock; None for an id of your own."""
    unhandled: int = 0
    """How often a worker has sent it back because none of its functions takes its name, its arguments or its schedule;
    a snooze or a redrive begins anew."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some messages of a state, and the cursor of the next page (None if this is the last)."""

    messages: list[MessageInfo]
    cursor: str | None
