"""Base class of all delivery adapters: a callback that passes a message on and logs why it is to be tried again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from delayq.outcomes import Retry
from delayq.safe_log import SafeLog
from delayq.worker.message import Message

log = SafeLog("delayq.deliver")


class Adapter(ABC):
    """A callback that passes messages on. All threads of a worker share one instance."""

    def __call__(self, message: Message[Any]) -> None:
        """Pass the message on; raises `Retry`, `Reject` or `StopWorker` with the reason if that fails.

        For a `Retry` without a delay, the queue's `nack_delay` decides when the message is delivered again.
        """
        try:
            self.hand_on(message)
        except Retry as retry:  # the consumer logs a rejection itself
            extra = {"id": message.id, "attempt": message.attempt}
            log.warning("message %s, attempt %d: retry: %s", message.id, message.attempt, retry, extra=extra)
            raise

    @abstractmethod
    def hand_on(self, message: Message[Any]) -> None:
        """Pass the message on, or raise `Retry`, `Reject` or `StopWorker`."""

    def close(self) -> None:
        """Close all connections and end all running programs."""
        return
