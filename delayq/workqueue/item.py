"""The items of a work queue: a text id and any bytes as data."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, Self

from delayq.errors import ConfigurationError, PayloadError, UndecodableError, short_repr


class Item(dict[str, Any]):
    """An item: a dictionary of its `id` and its `data`, as in the original."""

    def __init__(self, data: bytes | bytearray | memoryview | str, id: str | int | uuid.UUID | None = None) -> None:
        """Make an item from bytes, or from a text, which is encoded as UTF-8.

        Without an id it gets a random one (a UUID). A number or a UUID is converted to text. Give equal jobs the same
        id to avoid doing them twice: see `WorkQueue.add_item`.
        """
        super().__init__(data=_bytes(data), id=uuid.uuid4().hex if id is None else _text(id))

    @classmethod
    def from_dict(cls, loaded: Mapping[str, Any]) -> Self:
        """Make an item from a mapping with `data` and optionally `id`."""
        if not isinstance(loaded, Mapping) or "data" not in loaded:
            raise ConfigurationError(f"an item must be a mapping with 'data', not {short_repr(loaded)}")
        return cls(loaded["data"], id=loaded.get("id"))

    @classmethod
    def parse(cls, s: str | bytes) -> Self:
        """Make an item from a JSON object with `data` and optionally `id`."""
        try:
            loaded = json.loads(s)
        except (ValueError, TypeError, RecursionError) as error:
            raise UndecodableError(f"an item must be a JSON object, not {short_repr(s)}") from error
        return cls.from_dict(loaded)

    @classmethod
    def from_json_data(cls, data: Any, id: str | int | uuid.UUID | None = None) -> Self:
        """Make an item whose data is a value encoded as compact JSON."""
        try:
            text = json.dumps(data, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            raise PayloadError(f"data cannot be encoded as JSON: {error}") from error
        return cls(text, id=id)

    @classmethod
    def stored(cls, id: bytes, data: bytes) -> Self:
        """Make an item from what Redis holds. An id that is not UTF-8 keeps its bytes."""
        item = cls.__new__(cls)
        item.update(data=data, id=id.decode("utf-8", "surrogateescape"))
        return item

    def data(self) -> bytes:
        """Return the data."""
        return bytes(self["data"])

    def data_json(self) -> Any:
        """Return the data decoded from JSON; raise `UndecodableError` if it is not JSON."""
        try:
            return json.loads(self["data"])
        except (ValueError, RecursionError) as error:
            raise UndecodableError(f"the data of item {short_repr(self['id'])} is not valid JSON") from error

    def id(self) -> str:
        """Return the id."""
        return str(self["id"])


def id_bytes(id: str) -> bytes:
    """Return an id as stored."""
    if not isinstance(id, str):
        raise ConfigurationError(f"item id must be a str, not {short_repr(id)}")
    try:
        return id.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"item id must be valid UTF-8 text, not {short_repr(id)}") from error


def _bytes(data: bytes | bytearray | memoryview | str) -> bytes:
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError as error:
            raise PayloadError(
                "item data must be bytes or valid UTF-8 text: encode other text to bytes first"
            ) from error
    if not isinstance(data, bytes | bytearray | memoryview):
        raise PayloadError(f"item data must be bytes or a str, not {short_repr(data)}; see Item.from_json_data")
    return bytes(data)


def _text(id: str | int | uuid.UUID) -> str:
    if isinstance(id, bool) or not isinstance(id, str | int | uuid.UUID):
        raise ConfigurationError(f"item id must be a str, an int or a UUID, not {short_repr(id)}")
    if id == "":  # other clients may allow it; here it is a mistake
        raise ConfigurationError("item id must not be empty: leave it out for a random one")
    text = str(id)
    id_bytes(text)
    return text
