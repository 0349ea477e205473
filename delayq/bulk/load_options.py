"""How rows become messages and are sent: the options that loads with and without Spark share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from delayq.broker.scripts import MAX_IDS
from delayq.errors import ConfigurationError, short_repr
from delayq.values.checks import check_int, check_retries

Conflict = Literal["skip", "replace", "fail"]
OnError = Literal["fail", "collect"]

CONFLICTS: tuple[Conflict, ...] = ("skip", "replace", "fail")
ON_ERRORS: tuple[OnError, ...] = ("fail", "collect")
MAX_PAYLOAD = 512 << 20
"""Bytes: the longest string that Redis stores."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How rows become messages and are sent."""

    batch_size: int
    """Messages per call."""
    max_rows_per_second: float | None
    """Limit per sender, on Spark per task; None for no limit."""
    on_conflict: Conflict
    on_error: OnError
    default_retries: int
    max_payload: int
    """Bytes."""

    @staticmethod
    def spelling(name: str) -> str:
        """Return the name of an option as the user writes it, for errors."""
        return name

    def setting(self, name: str, value: str) -> str:
        """Return how the user gives an option a value, for errors."""
        return f"{self.spelling(name)}={value}"


class CommandLineOptions(LoadOptions):
    """The same, given on the command line: `--on-error collect`."""

    @staticmethod
    def spelling(name: str) -> str:
        """Return the name of an option as the user writes it, for errors."""
        return f"--{name.replace('_', '-')}"

    def setting(self, name: str, value: str) -> str:
        """Return how the user gives an option a value, for errors."""
        return f"{self.spelling(name)} {value}"


def check_load(
    kind: type[LoadOptions] = LoadOptions,
    *,
    batch_size: int,
    max_rows_per_second: float | None,
    on_conflict: Any,
    on_error: Any,
    default_retries: int,
    max_payload: int,
) -> LoadOptions:
    """Validate the options of a load without Spark; raises `ConfigurationError`."""
    return kind(
        batch_size=check_int(batch_size, "batch_size", 1, MAX_IDS),
        max_rows_per_second=_rate(max_rows_per_second),
        on_conflict=check_choice(on_conflict, "on_conflict", CONFLICTS),
        on_error=check_choice(on_error, "on_error", ON_ERRORS),
        default_retries=check_retries(default_retries, "default_retries"),
        max_payload=check_int(max_payload, "max_payload", 1, MAX_PAYLOAD),
    )


def _rate(rate: object) -> float | None:
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0:
        raise ConfigurationError(f"max_rows_per_second must be a number above 0, not {short_repr(rate)}")
    return float(rate)


def check_choice(value: object, name: str, allowed: tuple[str, ...]) -> Any:
    """Return an option that is one of several; raise `ConfigurationError` for any other."""
    if value not in allowed:
        raise ConfigurationError(f"{name} must be {' or '.join(allowed)}, not {short_repr(value)}")
    return value
