"""Options as Spark hands them over, texts under names in any case, and how each kind of text is read."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from delayq.clock import HORIZON, milliseconds, timestamp
from delayq.errors import ConfigurationError, shown

T = TypeVar("T")

_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")

_COMMON = ("queue", "url", "urlEnv", "prefix")
_OF_SPARK = ("path", "paths", "checkpointLocation", "queryName")
"""Options that Spark adds by itself."""


class Given:
    """Options as they were given; names in any case, as Spark takes them."""

    def __init__(self, raw: Mapping[str, str], known: tuple[str, ...] | None) -> None:
        """Refuse names that are not known; None knows all."""
        self._texts = {name.lower(): text for name, text in raw.items()}
        if known is None:
            return
        allowed = (*_COMMON, *known)
        accepted = {name.lower() for name in (*allowed, *_OF_SPARK)}
        for name in raw:
            if name.lower() not in accepted:
                hint = did_you_mean(name, allowed) or f"; there are {', '.join(allowed)}"
                raise ConfigurationError(f"unknown option {shown(name)}{hint}")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def text(self, name: str) -> str:
        """Return an option's text, '' if it was not given."""
        return self._texts.get(name.lower(), "")

    def one(self, name: str, default: T, read: Callable[[str, str], T]) -> T:
        """Return what `read` makes of an option's text and name, or the default."""
        text = self._texts.get(name.lower())
        return default if text is None else read(text, name)

    def choice(self, name: str, default: str, allowed: tuple[str, ...]) -> Any:
        """Return one of the allowed words, in lower case."""
        text = self._texts.get(name.lower(), default)
        if text.lower() not in allowed:
            raise ConfigurationError(f"{name} must be {_either(allowed)}, not {shown(text)}")
        return text.lower()

    def switch(self, name: str, *, default: bool) -> bool:
        """Return whether an option is true."""
        return bool(self.choice(name, str(default).lower(), ("true", "false")) == "true")

    def whole(self, name: str, default: int, *, least: int, most: int) -> int:
        """Return a whole number within bounds."""
        text = self._texts.get(name.lower(), str(default))
        number = integer(text)
        if number is None or not least <= number <= most:
            raise ConfigurationError(f"{name} must be a whole number from {least} to {most}, not {shown(text)}")
        return number


def did_you_mean(name: str, known: tuple[str, ...]) -> str:
    """Return the end of a sentence that names the closest of some names, '' if none is close."""
    spelled = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), spelled, n=1)
    return f", did you mean {spelled[close[0]]!r}?" if close else ""


def _either(allowed: tuple[str, ...]) -> str:
    return f"{', '.join(allowed[:-1])} or {allowed[-1]}"


def integer(text: str) -> int | None:
    """Return a text of digits as a number, None for any other text."""
    # No spaces, signs, underscores or digits of other scripts, all of which int() takes.
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None  # noqa: PLR2004 - 64 bits


def rate(text: str, name: str) -> float | None:
    """Read a number of rows a second."""
    number = float(text) if _NUMBER.fullmatch(text) else 0.0
    if number <= 0:
        raise ConfigurationError(f"{name} must be a number of rows above 0, such as 5000, not {shown(text)}")
    return number


def window(text: str, name: str) -> int | None:
    """Read a duration, "0" for none, as milliseconds."""
    return 0 if text == "0" else milliseconds(text, name, most=HORIZON)


def instant(text: str, name: str) -> int | None:
    """Read an instant in ISO 8601 with an offset, as milliseconds since 1970, rounded up."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{name} must look like 2026-01-31T09:00:00+00:00, not {shown(text)}") from None
    return timestamp(at, name)
