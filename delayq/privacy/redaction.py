"""Fields of payloads that are hidden from those who inspect a queue: which ones, and what is shown instead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from delayq.errors import ConfigurationError, short_repr
from delayq.privacy.ciphertext import describe_encrypted, is_encrypted
from delayq.values.text import clean, pluralize, truncate

HIDDEN = "[redacted]"
"""What is shown in place of a hidden value."""
MAX_PATHS = 100
MAX_PATH = 200
"""Characters of a path."""
ANY, DEEP = "*", "**"
Paths = tuple[tuple[str, ...], ...]
_NAME = re.compile(r"\*\*?|[^*\[\]$/\s]([^*\[\]]*[^*\[\]\s])?")
"""A name of a path. Those with brackets, or that begin with $ or /, are of another notation and would hide nothing."""
_WHOLE = msgspec.json.encode(HIDDEN)
_read_paths = msgspec.json.Decoder(list[str]).decode


class RedactedPayload(bytes):
    """A payload as JSON, with some of its values replaced by `HIDDEN`: not what is stored."""

    __slots__ = ()


class Redacted:
    """The codec of a queue that is inspected: payloads are their bytes, with the hidden values replaced."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Hide the values at these paths."""
        self._paths: Paths = tuple(tuple(path.split(".")) for path in paths)
        self._hides_all = (DEEP,) in self._paths

    def encode(self, payload: bytes) -> bytes:
        """Return the bytes as they are."""
        return payload

    def decode(self, data: bytes) -> bytes:
        """Return the bytes as they are if they have no hidden value, else a `RedactedPayload`.

        What is no JSON, or cut, may have one anywhere: it is hidden as a whole. Encrypted bytes stay as they are.
        """
        if is_encrypted(data):
            return data
        if self._hides_all:
            return RedactedPayload(_WHOLE)
        try:
            value = msgspec.json.decode(data)
            shown, found = _redact(value, self._paths)
            fresh = msgspec.json.encode(shown)
            if found or (fresh != data and _has_name_twice(data)):  # of which the value has only the last
                return RedactedPayload(fresh)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return RedactedPayload(_WHOLE)
        return data


def has_hidden(payload: bytes) -> bool:
    """Tell whether a payload has `HIDDEN` where a value was: then it is not what was stored."""
    try:
        return _holds(msgspec.json.decode(payload))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def check_redact(paths: Any) -> tuple[str, ...] | None:
    """Return the paths of an option; raise `ConfigurationError` for any that is none."""
    if paths is None:
        return None
    if not isinstance(paths, Sequence) or isinstance(paths, str | bytes) or len(paths) > MAX_PATHS:
        text = f"redact must be a list of at most {MAX_PATHS} paths, such as ['card.number', '*.email'], not"
        raise ConfigurationError(f"{text} {short_repr(paths)}")
    for path in paths:
        if not isinstance(path, str) or len(path) > MAX_PATH or not all(map(_NAME.fullmatch, path.split("."))):
            text = "redact: a path must be names with dots between them, such as 'card.number' or '**.email',"
            raise ConfigurationError(f"{text} of at most {MAX_PATH} characters, not {short_repr(path)}")
    return tuple(paths)


def write_paths(paths: Sequence[str]) -> bytes:
    """Return paths as `meta` has them."""
    return msgspec.json.encode(paths)


def read_paths(stored: bytes | None) -> list[str]:
    """Return the paths that `meta` has, none by default; everything is hidden by what another program has written."""
    try:
        return _read_paths(stored) if stored else []
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return [DEEP]


def codec_for_inspectors(paths: Sequence[str]) -> Redacted | str:
    """Return the codec with which a queue is inspected: bytes as they are stored, without what the paths lead to."""
    return Redacted(paths) if paths else "bytes"


def _redact(value: Any, paths: Paths) -> tuple[Any, bool]:
    """Return a value without what the paths lead to, and whether there was anything."""
    if isinstance(value, dict):
        found = {name: _redact_item(name, one, paths) for name, one in value.items()}
        return {name: shown for name, (shown, _) in found.items()}, any(hidden for _, hidden in found.values())
    if isinstance(value, list):
        items = [_redact_item(str(at), one, paths, also=paths) for at, one in enumerate(value)]
        return [shown for shown, _ in items], any(hidden for _, hidden in items)
    return value, False


def _redact_item(name: str, value: Any, paths: Paths, also: Paths = ()) -> tuple[Any, bool]:
    """Return the value of a field, or of a place in a list, without what the paths lead to, and whether there was any.

    A name with dots counts as several, one in the other. A path need not name a place: `also` are those that go on.
    """
    left: set[tuple[str, ...]] = {*paths}
    for part in name.split("."):
        left = {rest for path in left for rest in _rest(path, part)}
        if () in left:
            return HIDDEN, True
    return _redact(value, tuple(left | {*also}))


def _rest(path: tuple[str, ...], name: str) -> Iterator[tuple[str, ...]]:
    """Yield what is left of a path below a field; () if it leads to the field."""
    if path[0] == DEEP:
        yield path
        yield from _rest(path[1:], name) if len(path) > 1 else [()]
    elif path[0] in (ANY, name):
        yield path[1:]


def _has_name_twice(data: bytes) -> bool:
    """Tell whether an object in JSON has two fields with the same name."""
    found = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        found.append(len({name for name, _ in pairs}) < len(pairs))

    json.loads(data, object_pairs_hook=look)
    return any(found)


def _holds(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds, value.values()))
    return any(map(_holds, value)) if isinstance(value, list) else value == HIDDEN


MAX_PREVIEW = 200
"""Characters of a payload shown in a table."""


def preview(payload: bytes, size: int) -> str:
    """Return a payload as one line of text; one that is encrypted or not text as its size, or with its first bytes."""
    if is_encrypted(payload):
        return describe_encrypted(size)
    if isinstance(payload, RedactedPayload):
        size = len(payload)
    try:
        # A truncated payload may end within a character.
        text = payload.decode("utf-8", "strict" if len(payload) == size else "ignore")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return f"{pluralize(size, 'byte')}: {payload[:16].hex(' ')}{' …' if size > 16 else ''}"  # noqa: PLR2004
    return truncate(clean(text), MAX_PREVIEW, more=len(payload) < size)
