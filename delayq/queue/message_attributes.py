"""The options of a send that are stored as attributes of the message: checks them, and refuses what an engine lacks."""

from __future__ import annotations

from datetime import datetime

from delayq.broker.after_outage import AfterOutage, check_after_outage
from delayq.broker.attributes import Attributes, check_message_name, check_timeout
from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.expiry import Missed, check_expiry
from delayq.broker.priority import check_priority
from delayq.broker.results import check_retention
from delayq.times import Duration


def attributes_of(
    context: EngineContext,
    due: str | int,
    *,
    name: str | None = None,
    expires: Duration | datetime | None = None,
    missed: Missed = "dead",
    priority: int = 0,
    holds: tuple[str, str] = ("", ""),
    retention: Duration | None = None,
    timeout: Duration | None = None,
    after_outage: AfterOutage | None = None,
) -> bytes:
    """Return the stored attributes of a message with this due time; raise `ConfigurationError` for invalid options."""
    latest = check_after_outage(after_outage)
    expiry = check_expiry(expires, missed, due, latest=latest)
    attributes = Attributes(
        name="" if name is None else check_message_name(name),
        expires=expiry[0],
        missed=expiry[1],
        latest=latest,
        priority=check_priority(priority),
        unique_for=holds[0],
        unique_after=holds[1],
        retention=check_retention(retention, context.settings.retention),
        timeout=check_timeout(timeout),
    )
    needed = {
        Feature.NAMES: name is not None,
        Feature.EXPIRY: expires is not None,
        Feature.AFTER_OUTAGE: latest,
        Feature.PRIORITIES: priority,
        Feature.HOLDS: any(holds),
        Feature.RESULTS: attributes.retention,
        Feature.TIMEOUTS: timeout is not None,
    }
    for feature, is_needed in needed.items():
        if is_needed:
            context.calls.capabilities.require(feature)
    return attributes.encode()
