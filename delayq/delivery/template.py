"""Texts with fields of a payload: `{summary}`, or `{user.name}` for a nested field.

Payloads are data: fields are looked up by name in dictionaries, and their values are never called, formatted or used as
templates.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from delayq.errors import ConfigurationError, short_repr
from delayq.values.outcomes import Reject

_FIELD = re.compile(r"[\w-]+(?:\.[\w-]+)*")


class Template:
    """A text with fields; `{{` and `}}` stand for braces."""

    def __init__(self, text: str, name: str) -> None:
        """Parse a template; raises `ConfigurationError` for anything but plain fields."""
        if not isinstance(text, str):
            raise ConfigurationError(f"{name} must be a str, not {short_repr(text)}")
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError as error:
            raise ConfigurationError(f"{name} is not a valid template: {error}") from None
        for _, field, spec, conversion in parts:
            if field is not None and (spec or conversion or not _FIELD.fullmatch(field)):
                raise ConfigurationError(
                    f"{name} takes fields such as {{summary}} or {{user.name}}, not {short_repr(field)}"
                )
        self._parts = [(literal, field and field.split(".")) for literal, field, *_ in parts]

    @property
    def has_fields(self) -> bool:
        """Whether the text depends on a payload."""
        return any(path for _, path in self._parts)

    @property
    def prefix(self) -> str:
        """The text before the first field."""
        literals = []
        for literal, path in self._parts:
            literals.append(literal)
            if path:
                break
        return "".join(literals)

    def fill(self, fields: Mapping[str, Any], encode: Callable[[str], str] = str) -> str:
        """Return the text with the fields filled in, each value encoded; raises `Reject` if the payload lacks one."""
        return "".join(literal + (encode(_look_up(path, fields)) if path else "") for literal, path in self._parts)


def _look_up(path: list[str], fields: Mapping[str, Any]) -> str:
    found: Any = fields
    for name in path:
        if not isinstance(found, Mapping) or name not in found:
            raise Reject(f"the payload has no field {'.'.join(path)!r}")
        found = found[name]
    if found is None:
        return ""
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()
