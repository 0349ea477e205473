"""Delivery into a log: a JSON line on stdout, or a record of a logger."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

import msgspec

from delayq.codec import inert
from delayq.deliver.adapter import Adapter
from delayq.deliver.envelope import envelope
from delayq.message import Message


class Log(Adapter):
    """Writes each message as one line: the JSON that a webhook gets, payload and headers included."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        """Write to stdout; with a logger, an INFO record there whose extras are `delivered`, `id` and `attempt`."""
        self._logger = logger
        self._lock = threading.Lock()

    def hand_on(self, message: Message[Any]) -> None:
        """Write the line, to its end."""
        json = envelope(message)
        line = inert(json)
        if self._logger is not None:
            facts = {"id": message.id, "attempt": message.attempt, "delivered": msgspec.json.decode(json)}
            self._logger.info("delivered %s", line, extra=facts)
            return
        with self._lock:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
