"""Checks of values that options and arguments have in common; each raises `ConfigurationError`."""

from __future__ import annotations

from typing import Any

from delayq.errors import ConfigurationError, short_repr

MAX_RETRIES = 1_000_000
MAX_CONCURRENCY = 10_000


def check_int(value: Any, name: str, min: int, max: int) -> int:
    """Return a whole number within bounds; `ConfigurationError` for anything else, including a bool."""
    if type(value) is not int or not min <= value <= max:
        raise ConfigurationError(f"{name} must be a whole number from {min} to {max}, not {short_repr(value)}")
    return value


def check_optional_int(value: Any, name: str, min: int, max: int) -> int | None:
    """Return None, or a whole number within bounds."""
    return None if value is None else check_int(value, name, min, max)


def check_bool(value: Any, name: str) -> bool:
    """Return True or False; raise `ConfigurationError` for anything else."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, not {short_repr(value)}")
    return value


def check_concurrency(value: Any) -> int:
    """Return a valid number of callbacks at a time."""
    return check_int(value, "concurrency", 1, MAX_CONCURRENCY)


def check_retries(value: Any, name: str = "retries") -> int:
    """Return a valid number of redeliveries."""
    return check_int(value, name, 0, MAX_RETRIES)
