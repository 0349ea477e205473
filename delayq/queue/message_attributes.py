"""The options of a send that are stored as attributes of the message: checks them, and refuses what an engine lacks."""

from __future__ import annotations

from datetime import datetime

from delayq.broker.attributes import Attributes, check_message_name
from delayq.broker.engine import EngineCapabilities, Feature
from delayq.broker.expiry import Missed, check_expiry
from delayq.broker.priority import check_priority
from delayq.times import Duration


def attributes_of(
    capabilities: EngineCapabilities,
    due: str | int,
    *,
    name: str | None,
    expires: Duration | datetime | None,
    missed: Missed,
    priority: int,
    holds: tuple[str, str],
) -> bytes:
    """Return the stored attributes of a message with this due time; raise `ConfigurationError` for invalid options."""
    name_text = "" if name is None else check_message_name(name)
    expiry, priority = check_expiry(expires, missed, due), check_priority(priority)
    if name is not None:
        capabilities.require(Feature.NAMES)
    if expires is not None:
        capabilities.require(Feature.EXPIRY)
    if priority:
        capabilities.require(Feature.PRIORITIES)
    if any(holds):
        capabilities.require(Feature.HOLDS)
    return Attributes(name_text, 0, *expiry, priority, *holds).encode()
