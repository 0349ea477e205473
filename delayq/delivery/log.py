"""Delivery to a log: a JSON line on stdout, or a record of a logger."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

import msgspec

from delayq.codec import inert
from delayq.delivery.adapter import Adapter
from delayq.delivery.envelope import envelope
from delayq.worker.message import Message


class Log(Adapter):
    """Writes each message as one line: the same JSON as a webhook gets, with payload and headers."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        """Write to stdout, or to `logger` as INFO records with the fields `delivered`, `id` and `attempt`."""
        self._logger = logger
        self._lock = threading.Lock()

    def hand_on(self, message: Message[Any]) -> None:
        """Write one complete line."""
        json = envelope(message)
        line = inert(json)
        if self._logger is not None:
            extra = {"id": message.id, "attempt": message.attempt, "delivered": msgspec.json.decode(json)}
            self._logger.info("delivered %s", line, extra=extra)
            return
        with self._lock:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
