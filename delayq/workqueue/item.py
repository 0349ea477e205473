"""The items of a work queue: an id, a text, and data, any bytes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, Self

from delayq.errors import ConfigurationError, PayloadError, UndecodableError, shown


class Item(dict[str, Any]):
    """An item: a dictionary of its `id` and its `data`, as in the original."""

    def __init__(self, data: bytes | bytearray | memoryview | str, id: str | int | uuid.UUID | None = None) -> None:
        """Make an item of bytes, or of a text, which becomes UTF-8.

        Without an id it gets a random one (a UUID); a number or a UUID becomes its text. Equal jobs that are not to be
        done twice have equal ids: see `WorkQueue.add_item`.
        """
        super().__init__(data=_bytes(data), id=uuid.uuid4().hex if id is None else _text(id))

    @classmethod
    def from_dict(cls, loaded: Mapping[str, Any]) -> Self:
        """Make an item of a mapping with `data` and perhaps `id`."""
        if not isinstance(loaded, Mapping) or "data" not in loaded:
            raise ConfigurationError(f"an item is made of a mapping with 'data', not {shown(loaded)}")
        return cls(loaded["data"], id=loaded.get("id"))

    @classmethod
    def parse(cls, s: str | bytes) -> Self:
        """Make an item of a JSON object with `data` and perhaps `id`."""
        try:
            loaded = json.loads(s)
        except (ValueError, TypeError, RecursionError) as error:
            raise UndecodableError(f"{shown(s)} is no JSON") from error
        return cls.from_dict(loaded)

    @classmethod
    def from_json_data(cls, data: Any, id: str | int | uuid.UUID | None = None) -> Self:
        """Make an item whose data is a value as JSON, without spaces."""
        try:
            return cls(json.dumps(data, separators=(",", ":")), id=id)
        except (TypeError, ValueError, RecursionError) as error:
            if isinstance(error, ConfigurationError):
                raise
            raise PayloadError(f"cannot be put as JSON: {error}") from error

    @classmethod
    def stored(cls, id: bytes, data: bytes) -> Self:
        """Make an item of what Redis holds, whatever its id is: one that is not UTF-8 keeps its bytes, too."""
        item = cls.__new__(cls)
        item.update(data=data, id=id.decode("utf-8", "surrogateescape"))
        return item

    def data(self) -> bytes:
        """Return the data."""
        return bytes(self["data"])

    def data_json(self) -> Any:
        """Return the data, read as JSON; `UndecodableError` if it is none."""
        try:
            return json.loads(self["data"])
        except (ValueError, RecursionError) as error:
            raise UndecodableError(f"the data of item {shown(self['id'])} is no JSON") from error

    def id(self) -> str:
        """Return the id."""
        return str(self["id"])


def id_bytes(id: str) -> bytes:
    """Return an id as it is stored."""
    if not isinstance(id, str):
        raise ConfigurationError(f"the id of an item must be a text, not {shown(id)}")
    try:
        return id.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"the id of an item must be a text that can be put as UTF-8, not {shown(id)}"
        ) from error


def _bytes(data: bytes | bytearray | memoryview | str) -> bytes:
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError as error:
            raise PayloadError("the text of an item cannot be put as UTF-8") from error
    if not isinstance(data, bytes | bytearray | memoryview):
        raise PayloadError(f"the data of an item must be bytes or a text, not {shown(data)}; see Item.from_json_data")
    return bytes(data)


def _text(id: str | int | uuid.UUID) -> str:
    if isinstance(id, bool) or not isinstance(id, str | int | uuid.UUID):
        raise ConfigurationError(f"the id of an item must be a text, a number or a UUID, not {shown(id)}")
    if id == "":  # other clients may have them; here it is a mistake
        raise ConfigurationError("the id of an item must not be empty")
    text = str(id)
    id_bytes(text)
    return text
