"""Payloads for people: decoded as far as possible, since Redis does not store a queue's codec; and back again."""

from __future__ import annotations

import base64
import re
from itertools import accumulate
from typing import Any

import msgspec

from delayq.errors import ConfigurationError, short_repr
from delayq.privacy.ciphertext import is_encrypted
from delayq.privacy.redaction import RedactedPayload

MAX_INDENTED = 1 << 16
"""Bytes of JSON that is written with indents, at most."""
MAX_NESTING = 32
"""Levels of such JSON: the indents of a small payload with very many would fill the memory."""
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_STEPS = {ord(one): 1 for one in "[{"} | {ord(one): -1 for one in "]}"}


def decode_payload(stored: bytes, size: int) -> tuple[Any, str, bool]:
    """Return a payload of `size` bytes, its encoding (json, text, base64, encrypted or redacted), and if it is cut.

    One that is encrypted is returned in base64. One that is redacted is JSON with some values replaced.
    """
    if isinstance(stored, RedactedPayload):
        return msgspec.json.decode(stored), "redacted", False
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


def payload_text(payload: Any, encoding: str) -> str:
    """Return a payload as a text for people, by its encoding as `decode_payload` returns it: JSON with indents."""
    return indented(payload) if encoding in ("json", "redacted") else str(payload)


def indented(payload: Any) -> str:
    """Return a payload as JSON with indents; on one line if it is large or nested deeply."""
    encoded = msgspec.json.encode(payload)
    if len(encoded) > MAX_INDENTED or _nesting(encoded) > MAX_NESTING:
        return encoded.decode()
    return msgspec.json.format(encoded, indent=2).decode()


def _nesting(encoded: bytes) -> int:
    return max(accumulate(_STEPS.get(byte, 0) for byte in _STRINGS.sub(b"", encoded)), default=0)


def stored_payload(payload: Any, encoding: Any) -> bytes:
    """Return a whole payload as it is stored, by its encoding as `decode_payload` returns it.

    Raises `ConfigurationError`, which does not quote the payload, if it is not of its encoding, or for any other.
    """
    if encoding == "json":
        return msgspec.json.encode(payload)
    if encoding == "redacted":
        raise ConfigurationError("payload is redacted, without its hidden values: list or export it with --reveal")
    if encoding not in ("text", "base64", "encrypted"):
        raise ConfigurationError(f"encoding must be json, text or base64, not {short_repr(encoding)}")
    if not isinstance(payload, str):
        raise ConfigurationError(f"payload must be a text, as its encoding is {encoding}")
    try:
        return payload.encode() if encoding == "text" else base64.b64decode(payload, validate=True)
    except ValueError:
        raise ConfigurationError(f"payload is not {encoding}, as its encoding says") from None
