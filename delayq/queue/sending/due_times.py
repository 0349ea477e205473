"""When a message is due: after a delay, at a time, within its hours, with jitter, or after the last of a burst."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from time import time
from typing import Any

from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.message.attributes import Attributes
from delayq.broker.message.jitter import check_jitter, later
from delayq.broker.message.same_id import Debounce
from delayq.broker.requests import Replace
from delayq.errors import ConfigurationError
from delayq.values.times import Duration, from_millis, timestamp, to_millis


def due_text(delay: Duration | None, at: datetime | None) -> str | int:
    """Return a due time in the form of the scripts: milliseconds from now, or `@` and milliseconds since 1970."""
    if at is None and delay is not None:
        return to_millis(delay, "delay")
    if at is None:
        raise ConfigurationError("give delay or at: when the message is due")
    if delay is not None:
        raise ConfigurationError("give delay or at, but not both")
    return f"@{timestamp(at)}"


def placed(context: EngineContext, due: str | int, id: str, options: Mapping[str, Any], replace: Replace) -> str | int:
    """Return the due time of an id by the options of its send: within its hours, and with its jitter.

    Raises `ConfigurationError` for hours and jitter that are not valid, or where there can be none.
    """
    hours, jitter = options.get("hours"), options.get("jitter")
    if hours is None and jitter is None:
        return due
    debounced = isinstance(replace, Debounce)
    if hours is not None and not debounced:
        due = _in_hours(context, due, options)
    if jitter is not None:
        context.calls.capabilities.require(Feature.DELAYS)
        if debounced:
            raise ConfigurationError("give debounce or jitter, but not both: debounce says when it is due")
        due = later(due, id, check_jitter(jitter))
        due = due if hours is None else _in_hours(context, due, options)
    return due


def _now(context: EngineContext) -> int:
    calls: Any = context.calls
    return calls.now or int(time() * 1000)


def _in_hours(context: EngineContext, due: str | int, options: Mapping[str, Any]) -> str | int:
    """Return a due time, or when the hours of these options open next if they are not open then.

    A due time that counts from now does so by the clock of this machine. Raises `ConfigurationError` for invalid hours,
    and for a message that expires before.
    """
    from delayq.schedules.hours import check_hours  # few messages have hours

    context.calls.capabilities.require(Feature.HOURS)
    hours, expires = check_hours(options["hours"], options.get("tz")), options.get("expires")
    if hours is None:
        return due
    now = _now(context)
    at = now + due if isinstance(due, int) else max(now, int(due[1:]))
    opens = hours.opening(at)
    if isinstance(expires, datetime) and timestamp(expires, "expires") <= opens:
        text = (
            f"expires {expires.isoformat()} is not after {from_millis(opens).isoformat()}, when the message is due in"
            f" its hours {hours.text} {hours.tz}: let it expire later, or change its hours or its delay"
        )
        raise ConfigurationError(text)
    return due if opens == at else f"@{opens}"


def debounced_in_hours(context: EngineContext, how: Debounce, attributes: bytes) -> Debounce:
    """Return how a burst with these attributes is debounced: until its hours open if it would end outside of them."""
    if b"hours=" not in attributes:
        return how
    from delayq.schedules.hours import until_open

    return until_open(how, Attributes.of(attributes), _now(context))
