"""Payloads for people: decoded as far as possible, since Redis does not store a queue's codec."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from delayq.privacy.ciphertext import is_encrypted


def decode_payload(stored: bytes, size: int) -> tuple[Any, str, bool]:
    """Return a payload of `size` bytes, its encoding (json, text, base64 or encrypted), and whether it is truncated.

    One that is encrypted is returned in base64.
    """
    truncated = len(stored) < size
    if is_encrypted(stored):
        return base64.b64encode(stored).decode(), "encrypted", truncated
    if not truncated:
        try:
            return msgspec.json.decode(stored), "json", False
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
    try:
        return stored.decode("utf-8", "ignore" if truncated else "strict"), "text", truncated
    except UnicodeDecodeError:
        return base64.b64encode(stored).decode(), "base64", truncated
