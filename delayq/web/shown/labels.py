"""What pages call things that have other names in Redis and in the code."""

from __future__ import annotations

from collections.abc import Mapping

from delayq.broker.keys import META_TOTALS
from delayq.queue.inspecting.event_log import EventKind

_EVENTS: dict[str, str] = {
    EventKind.PROMOTED: "due",
    EventKind.ACKED: "done",
    EventKind.NACKED: "failed",
    EventKind.EXPIRED: "lease expired",
    EventKind.RETRIED: "ready again",
    EventKind.RELEASED: "given back",
    EventKind.MISSED: "too late to start",
    EventKind.REDRIVEN: "sent again",
    EventKind.AUDIT: "action",
    EventKind.SPILLED: "moved to the cold tier",
    EventKind.RESTORED: "back from the cold tier",
    EventKind.COLD_DROPPED: "dropped from the cold tier",
    EventKind.DEAD_IMPORTED: "imported into the dead letter",
    EventKind.DEAD_PURGED: "purged from the dead letter",
    EventKind.DEAD_TRIMMED: "trimmed from the dead letter",
}
_TOTALS: dict[str, str] = {
    "acked": "done",
    "missed": "too late to start",
    "nacked": "failed attempts",
    "released": "given back",
    "expired": "leases expired",
    "trimmed": "trimmed from the dead letter",
    "redriven": "sent again",
    "dead_imported": "imported into the dead letter",
    "dead_purged": "purged from the dead letter",
    "events_lost": "events lost",
}
_ENCODINGS = {"json": "JSON", "base64": "bytes, as Base64"}


def event_label(kind: str) -> str:
    """Return what has happened to a message, by the kind of the event; of later versions, their own word."""
    return _EVENTS.get(kind, kind.replace("_", " "))


def encoding_label(encoding: str) -> str:
    """Return how a payload is shown."""
    return _ENCODINGS.get(encoding, encoding)


def totals_of(totals: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return what was counted since the queue was created, in the order of a message's life; nothing that is 0."""
    return [(_TOTALS.get(kind, kind), totals[kind]) for kind in META_TOTALS if totals.get(kind)]
