"""Texts that say why a delivery failed, as they are stored."""

from __future__ import annotations

from delayq.errors import ConfigurationError, short_repr

MAX_ERROR = 2048
"""Characters of an error text that are stored."""
SNOOZED_OUT = "snoozed {:,} times, as often as max_snoozes allows"
"""The error of a message that was snoozed too often."""

WITHHELD = (
    "undecodable: Redis closes the connection while it sends the payload of {:,} bytes:"
    " is its client-output-buffer-limit too small for this?"
)
"""The error of a message that cannot be claimed with its payload."""


def truncate(text: str, name: str = "error") -> str:
    """Return an error or reason as it is stored: cut to the maximum length, unencodable characters replaced."""
    if not isinstance(text, str):
        raise ConfigurationError(f"{name} must be a str, not {short_repr(text)}")
    return text[:MAX_ERROR].encode("utf-8", "replace").decode()
