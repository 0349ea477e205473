"""The form of an encrypted payload: a mark, the id of its key, a nonce, and what AES-GCM returns."""

from __future__ import annotations

import re

MARK = b"\x93dq\x01"
"""How every encrypted payload begins. No JSON, UTF-8 or text does: 0x93 begins no character."""
NONCE = 12
"""Bytes of a nonce."""
TAG = 16
"""Bytes of the tag, by which a change is noticed."""
KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""The ids of keys; they are stored with each payload, readable by everyone."""


def is_encrypted(stored: bytes) -> bool:
    """Tell whether a stored payload, or the beginning of one, is an encrypted one; no key is needed."""
    return stored.startswith(MARK)


def describe_encrypted(size: int) -> str:
    """Return what to show of an encrypted payload of so many bytes."""
    return f"encrypted, {size:,} B"


def head_of(key_id: str) -> bytes:
    """Return how payloads that are encrypted with this key begin."""
    return MARK + bytes([len(key_id)]) + key_id.encode()


def read_key_id(stored: bytes) -> str | None:
    """Return the id of the key of an encrypted payload; None if it is none, or if too little of it is there."""
    if not is_encrypted(stored) or len(stored) <= len(MARK):
        return None
    at = len(MARK) + 1
    id = stored[at : at + stored[len(MARK)]].decode("ascii", "replace")
    return id if len(id) == stored[len(MARK)] and KEY_ID.fullmatch(id) else None
