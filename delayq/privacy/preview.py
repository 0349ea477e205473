"""Payloads as one line of text, for tables."""

from __future__ import annotations

from delayq.privacy.ciphertext import describe_encrypted, is_encrypted
from delayq.privacy.redaction import RedactedPayload
from delayq.values.text import clean, pluralize, truncate

MAX_PREVIEW = 200
"""Characters of a payload shown in a table."""


def preview(payload: bytes, size: int) -> str:
    """Return a payload as one line of text; one that is encrypted or not text as its size, or with its first bytes."""
    if is_encrypted(payload):
        return describe_encrypted(size)
    if isinstance(payload, RedactedPayload):
        size = len(payload)
    try:
        # A truncated payload may end within a character.
        text = payload.decode("utf-8", "strict" if len(payload) == size else "ignore")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return f"{pluralize(size, 'byte')}: {payload[:16].hex(' ')}{' …' if size > 16 else ''}"  # noqa: PLR2004
    return truncate(clean(text), MAX_PREVIEW, more=len(payload) < size)
