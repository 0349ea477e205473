"""Checks of values that options and arguments have in common; each raises `ConfigurationError`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from delayq.errors import ConfigurationError, InvalidValueError, did_you_mean, short_repr
from delayq.values.other_names import option_hint

MAX_RETRIES = 1_000_000
MAX_CONCURRENCY = 10_000
MAX_LISTED = 30
"""Options that the error for an unknown one lists."""
_OWNER = re.compile(r"[A-Za-z0-9._-]{1,64}")


def check_int(value: Any, name: str, min: int, max: int) -> int:
    """Return a whole number within bounds; `ConfigurationError` for anything else, including a bool."""
    if type(value) is not int or not min <= value <= max:
        raise InvalidValueError(f"{name} must be a whole number from {min} to {max}, not {short_repr(value)}")
    return value


def check_optional_int(value: Any, name: str, min: int, max: int) -> int | None:
    """Return None, or a whole number within bounds."""
    return None if value is None else check_int(value, name, min, max)


def check_bool(value: Any, name: str) -> bool:
    """Return True or False; raise `ConfigurationError` for anything else."""
    if not isinstance(value, bool):
        raise InvalidValueError(f"{name} must be True or False, not {short_repr(value)}")
    return value


def check_choice(value: Any, name: str, *allowed: str) -> str:
    """Return one of the allowed texts; raise `ConfigurationError` for anything else."""
    if not isinstance(value, str) or value not in allowed:
        raise InvalidValueError(f"{name} must be {' or '.join(map(repr, allowed))}, not {short_repr(value)}")
    return value


def check_owner(owner: Any) -> str:
    """Return the service that declares schedules, '' for None; raise `ConfigurationError` for an invalid name."""
    if owner is None:
        return ""
    if not isinstance(owner, str) or not _OWNER.fullmatch(owner):
        raise InvalidValueError(f"owner must be 1 to 64 of A-Z a-z 0-9 . _ -, not {short_repr(owner)}")
    return owner


def check_options(options: Iterable[str], known: Collection[str]) -> None:
    """Raise `ConfigurationError` for unknown options, with what it is called here or the closest match."""
    for name in options:
        if name not in known:
            containing = [option for option in known if len(name) >= len("lease") and name in option]
            near = f", did you mean {containing[0]!r}?" if containing else did_you_mean(name, known)
            listed = f": known are {', '.join(known)}" if len(known) <= MAX_LISTED else ""
            raise ConfigurationError(f"unknown option {short_repr(name)}{option_hint(name) or near or listed}")


def check_concurrency(value: Any) -> int:
    """Return a valid number of callbacks at a time."""
    return check_int(value, "concurrency", 1, MAX_CONCURRENCY)


def check_retries(value: Any, name: str = "retries") -> int:
    """Return a valid number of redeliveries."""
    return check_int(value, name, 0, MAX_RETRIES)
