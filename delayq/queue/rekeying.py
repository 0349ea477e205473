"""Stored payloads of a queue that encrypts: encrypted from their encoded bytes."""

from __future__ import annotations

from typing import Any

from delayq.queue.base import QueueBase


def seal(queue: QueueBase[Any, Any], encoded: bytes) -> bytes:
    """Return an encoded payload as the queue stores it: encrypted if its codec encrypts."""
    sealing = getattr(queue._codec, "seal", None)  # noqa: SLF001 - of a queue, for the command line
    return encoded if sealing is None else sealing(encoded)
