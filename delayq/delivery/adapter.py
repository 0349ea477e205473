"""Base class of all delivery adapters: a callback that passes a message on and logs a failure to do so."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any

from delayq.outcomes import Outcome
from delayq.worker.message import Message

log = logging.getLogger("delayq.deliver")


class Adapter(ABC):
    """A callback that passes messages on. All threads of a worker share one instance."""

    def __call__(self, message: Message[Any]) -> None:
        """Pass the message on; raises `Retry` or `Reject` with the reason if that fails.

        For a `Retry` without a delay, the queue's `nack_delay` decides when the message is delivered again.
        """
        try:
            self.hand_on(message)
        except Outcome as outcome:
            kind, extra = type(outcome).__name__.lower(), {"id": message.id, "attempt": message.attempt}
            log.warning("message %s, attempt %d: %s: %s", message.id, message.attempt, kind, outcome, extra=extra)
            raise

    @abstractmethod
    def hand_on(self, message: Message[Any]) -> None:
        """Pass the message on, or raise `Retry` or `Reject`."""

    def close(self) -> None:
        """Close all connections and end all running programs."""
        return
