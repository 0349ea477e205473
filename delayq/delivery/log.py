"""Delivery to a log: a JSON line on stdout, or a record of a logger."""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import Any

import msgspec

from delayq.delivery.adapter import Adapter, TroubleHereError
from delayq.delivery.envelope import envelope
from delayq.delivery.trouble import is_shortage
from delayq.values.codec import inert
from delayq.values.outcomes import StopWorker
from delayq.worker.delivery.message import Message


class Log(Adapter):
    """Writes each message as one line: the same JSON as a webhook gets, with payload and headers.

    If stdout cannot be written, the consumer stops by `StopWorker`: its reader is gone, say, or the disk is full.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        """Write to stdout, or to `logger` as INFO records with the fields `delivered`, `id` and `attempt`."""
        self._logger = logger
        self._lock = threading.Lock()
        self._broken: str | None = None

    def hand_on(self, message: Message[Any]) -> None:
        """Write one complete line."""
        json = envelope(message)
        line = inert(json)
        if self._logger is not None:
            extra = {"id": message.id, "attempt": message.attempt, "delivered": msgspec.json.decode(json)}
            self._logger.info("delivered %s", line, extra=extra)
            return
        with self._lock:
            self._write(f"{line}\n")

    def _write(self, line: str) -> None:
        if self._broken is None:
            try:
                sys.stdout.write(line)
                sys.stdout.flush()
            except (OSError, ValueError, AttributeError) as error:  # without stdout, it is None
                reason = "it is closed" if sys.stdout is None else getattr(error, "strerror", None) or str(error)
                if isinstance(error, OSError) and is_shortage(error):
                    raise TroubleHereError(f"standard output cannot be written: {reason}") from error
                self._broken = reason
            else:
                self._works_here()
                return
        raise StopWorker(f"standard output cannot be written: {self._broken}")

    def close(self) -> None:
        """Drop what could not be written: the interpreter tries again at its end, and would say so."""
        if self._broken is not None:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - it stays open
