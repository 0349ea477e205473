"""What every delivery adapter is: a callback that hands one message on, and says in the log when it could not."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any

from delayq.message import Message
from delayq.outcomes import Outcome

log = logging.getLogger("delayq.deliver")


class Adapter(ABC):
    """A callback that hands messages on. Made once, it is used by all threads of a worker."""

    def __call__(self, message: Message[Any]) -> None:
        """Hand the message on; raises `Retry` or `Reject` with the reason if that cannot be done.

        A `Retry` without a delay leaves it to the queue's `nack_delay` when the message is delivered again.
        """
        try:
            self.hand_on(message)
        except Outcome as outcome:
            kind, marks = type(outcome).__name__.lower(), {"id": message.id, "attempt": message.attempt}
            log.warning("message %s, attempt %d: %s: %s", message.id, message.attempt, kind, outcome, extra=marks)
            raise

    @abstractmethod
    def hand_on(self, message: Message[Any]) -> None:
        """Hand the message on, or raise `Retry` or `Reject`."""

    def close(self) -> None:
        """Close what is open and end what still runs, for good."""
        return
