"""Entries of the dead letter, as the scripts write them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from delayq.broker.keys import check_stored_id
from delayq.values.times import from_millis

BATCH = 100
"""Entries redriven or purged in one call: they contain their payloads."""


class Death(NamedTuple):
    """Why and when a message died."""

    reason: str
    error: str
    attempts: int
    retries: int
    due: datetime
    died: datetime
    headers: bytes
    attributes: bytes
    payload: bytes


_ENTRY = re.compile(r"(.+):[0-9]{1,20}", re.DOTALL)
_DEATH = re.compile(rb"([0-9]{1,13} ){6,7}[0-9]{1,13}\n")


def check_entry(which: str) -> str:
    """Return a valid id or entry (`id:token`); raise `ConfigurationError` for any other."""
    entry = _ENTRY.fullmatch(which) if isinstance(which, str) else None
    check_stored_id(entry[1] if entry else which)
    return which


def read_death(stored: bytes) -> Death | None:
    """Parse an entry of the dead letter: a line of counts and lengths, then the texts and the payload.

    None for what another program has written, or if the message of an entry is gone.
    """
    if not _DEATH.match(stored):
        return None
    head, _, body = stored.partition(b"\n")
    attempts, retries, due, died, reason, error, headers, attributes = map(int, f"{head.decode()} 0".split()[:8])
    at_error, at_headers, at_attributes = reason, reason + error, reason + error + headers
    at_payload = at_attributes + attributes
    return Death(
        reason=body[:at_error].decode("utf-8", "replace"),
        error=body[at_error:at_headers].decode("utf-8", "replace"),
        attempts=attempts,
        retries=retries,
        due=from_millis(due),
        died=from_millis(died),
        headers=body[at_headers:at_attributes],
        attributes=body[at_attributes:at_payload],
        payload=body[at_payload:],
    )
