"""The options of a send that are stored as attributes of the message: checks them, and refuses what an engine lacks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.message.attributes import Attributes, check_message_name, check_timeout
from delayq.broker.message.expiry import Missed, check_expiry
from delayq.broker.message.priority import check_priority
from delayq.broker.replies.results import check_retention
from delayq.values.times import Duration

KEPT = {
    **{option: option for option in ("retries", "headers", "name", "expires", "priority", "retention", "timeout")},
    "unique_for": "unique_for",
    "unique_after": "unique_after",
}
"""The options that stay when a message is replaced, and how they are stored; `missed` belongs to `expires`."""


def attributes_of(
    context: EngineContext,
    due: str | int,
    *,
    name: str | None = None,
    expires: Duration | datetime | None = None,
    missed: Missed = "dead",
    priority: int | None = None,
    holds: tuple[str, str] = ("", ""),
    retention: Duration | None = None,
    timeout: Duration | None = None,
) -> bytes:
    """Return the stored attributes of a message with this due time; raise `ConfigurationError` for invalid options."""
    expiry = check_expiry(expires, missed, due)
    attributes = Attributes(
        name="" if name is None else check_message_name(name),
        expires=expiry[0],
        missed=expiry[1],
        priority=0 if priority is None else check_priority(priority),
        unique_for=holds[0],
        unique_after=holds[1],
        retention=check_retention(retention, context.settings.retention),
        timeout=check_timeout(timeout),
    )
    needed = {
        Feature.NAMES: name is not None,
        Feature.EXPIRY: expires is not None,
        Feature.PRIORITIES: priority,
        Feature.HOLDS: any(holds),
        Feature.RESULTS: attributes.retention,
        Feature.TIMEOUTS: timeout is not None,
    }
    for feature, is_needed in needed.items():
        if is_needed:
            context.calls.capabilities.require(feature)
    return attributes.encode()


def keeping(attributes: bytes, given: Mapping[str, object]) -> bytes:
    """Return the attributes of a send that keeps, of the message it replaces, all whose option is not given: None."""
    kept = [stored for option, stored in KEPT.items() if given.get(option) is None]
    if given.get("expires") is None:
        kept.append("missed")
    return b" ".join(filter(None, [attributes, b"keep=" + ",".join(kept).encode()]))
