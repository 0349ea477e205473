"""Options for sends of the same id: how long an id is reserved, and how a burst of sends becomes one message."""

from __future__ import annotations

from typing import Any, NamedTuple

from delayq.broker.message.collected import check_collect
from delayq.errors import ConfigurationError
from delayq.values.times import Duration, to_millis


class Debounce(NamedTuple):
    """The last send of a burst wins; times in milliseconds."""

    quiet: int
    """How long after the last send the message is due."""
    at_most: int | None
    """How long after the first send it is due at the latest; None for no limit."""
    collect: int = 0
    """How many payloads become one message at most; 0 for the last one alone."""


def check_debounce(debounce: Duration | None, at_most: Duration | None, collect: int | None = None) -> Debounce | None:
    """Return how sends are debounced, None if they are not; raise `ConfigurationError` for what cannot be."""
    if debounce is None:
        if collect is not None:
            raise ConfigurationError("collect goes with debounce: say how long to wait for another payload")
        if at_most is not None:
            raise ConfigurationError("at_most goes with debounce: say how long to wait for another send")
        return None
    quiet = to_millis(debounce, "debounce", min=1)
    limit = None if at_most is None else to_millis(at_most, "at_most", min=1)
    if limit is not None and limit < quiet:
        raise ConfigurationError("at_most must not be shorter than debounce: it limits how often this is put off")
    return Debounce(quiet, limit, check_collect(collect))


def check_reserved(
    unique_for: Duration | None, unique_after: Duration | None, id: str | None, *, replace: Any
) -> tuple[str, str]:
    """Return the attributes `unique_for` and `unique_after` as they are stored; '' for each that is not given."""
    if unique_for is unique_after is None:
        return "", ""
    times = {"unique_for": unique_for, "unique_after": unique_after}
    first, second = ("" if time is None else str(to_millis(time, name, min=1)) for name, time in times.items())
    option = "unique_for" if first else "unique_after"
    if replace:
        other = "debounce" if isinstance(replace, Debounce) else "replace"
        raise ConfigurationError(f"give {option} or {other}, but not both: the first send wins, or the last")
    if id is None:
        raise ConfigurationError(f"{option} needs an id, or unique='payload'")
    return first, second


def missing_id(replace: Any) -> ConfigurationError:
    """Return the error of a send that replaces nothing, since it has no id."""
    if isinstance(replace, Debounce):
        if replace.collect:
            return ConfigurationError("collect needs the id of the group")
        return ConfigurationError("debounce needs an id, or unique='payload'")
    return ConfigurationError("replace needs the id of the message to replace")
