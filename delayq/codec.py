"""Payloads to bytes and back: JSON by default, typed through msgspec; text and bytes as they are; never pickle."""

from __future__ import annotations

import json
import re
from typing import Any, Protocol, TypeVar

import msgspec

from delayq.errors import ConfigurationError, PayloadError, UndecodableError, shown

T = TypeVar("T")


class Codec(Protocol):
    """Turns payloads into bytes and back."""

    def encode(self, payload: Any) -> bytes:
        """Return the bytes to store; raise `PayloadError` for what cannot be encoded."""
        ...

    def decode(self, data: bytes) -> Any:
        """Return the payload; raise `UndecodableError` for bytes that are none."""
        ...


class JsonCodec:
    """JSON by msgspec: typed and validated when a payload type is given, plain values otherwise."""

    def __init__(self, payload_type: Any = None) -> None:
        """`payload_type`: a msgspec Struct, dataclass, TypedDict or any type msgspec knows; None for plain JSON."""
        try:
            decoder = msgspec.json.Decoder(Any if payload_type is None else payload_type)
        except TypeError as error:
            raise ConfigurationError(f"payload_type {shown(payload_type)} cannot be decoded: {error}") from error
        self._decode = decoder.decode
        self._encode = msgspec.json.Encoder().encode
        self._convert = None if payload_type in (None, Any) else _checker(payload_type)

    def encode(self, payload: Any) -> bytes:
        """Return compact JSON; with a payload type, what would not come back as that type is refused."""
        try:
            if self._convert is not None:
                self._convert(payload)
            encoded: bytes = self._encode(payload)
            if self._convert is not None:
                self._decode(encoded)  # a field of a wrong type would make the message undecodable when it is due
            if b"null" in encoded:  # what msgspec writes for nan and infinity too, which would come back as None
                json.dumps(msgspec.to_builtins(payload), allow_nan=False)
        except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError) as error:
            raise PayloadError(f"payload cannot be encoded as JSON: {_without_values(error)}") from None
        return encoded

    def decode(self, data: bytes) -> Any:
        """Return the value; `UndecodableError` if it is not JSON, is nested too deep or does not fit the type."""
        try:
            return self._decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UndecodableError(f"undecodable: {_without_values(error)}") from None


_VALUES = re.compile(r" '.*'|(?<= unknown field) `.*`", re.DOTALL)
"""Where msgspec quotes a payload: the value of an enum or of a tag, the name of a field."""


def _without_values(error: Exception) -> str:
    """Return what is wrong with a payload without a word of it: errors are logged and kept, payloads may be private."""
    return _VALUES.sub("", str(error))


def _checker(payload_type: Any) -> Any:
    """Return a check that a payload is of its type: by class where there is one, else by converting it."""
    if isinstance(payload_type, type) and payload_type not in (int, float):  # True is no int here, but 1 is a float

        def check(payload: Any) -> None:
            if not isinstance(payload, payload_type):
                raise TypeError(f"expected {payload_type.__name__}, got {type(payload).__name__}")

        try:
            isinstance(None, payload_type)
        except TypeError:  # a TypedDict and other classes that refuse isinstance
            pass
        else:
            return check

    def convert(payload: Any) -> None:
        msgspec.convert(payload, payload_type)

    return convert


class TextCodec:
    """Payloads are `str`, stored as UTF-8."""

    def encode(self, payload: Any) -> bytes:
        """Return the text as UTF-8."""
        if not isinstance(payload, str):
            raise PayloadError(f"the text codec takes str, not {type(payload).__name__}")
        try:
            return payload.encode()
        except UnicodeEncodeError as error:
            raise PayloadError(f"payload is not encodable text: {error.reason}") from error

    def decode(self, data: bytes) -> str:
        """Return the text."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise UndecodableError(f"undecodable: {error.reason}") from error


class BytesCodec:
    """Payloads are `bytes`, stored as they are."""

    def encode(self, payload: Any) -> bytes:
        """Return the bytes themselves."""
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise PayloadError(f"the bytes codec takes bytes, not {type(payload).__name__}")
        return bytes(payload)

    def decode(self, data: bytes) -> bytes:
        """Return the bytes themselves."""
        return data


# JSON lets these stand as they are, but a terminal may obey them.
_OBEYED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def inert(json: bytes) -> str:
    """Return the same JSON with nothing left in it that a terminal would obey."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.decode())


def find_codec(codec: str | Codec, payload_type: Any) -> Codec:
    """Return the codec an option names: `"json"`, `"text"`, `"bytes"` or an object with `encode` and `decode`."""
    if codec == "json":
        return JsonCodec(payload_type)
    if payload_type is not None and isinstance(codec, str):
        raise ConfigurationError(f"payload_type goes with the json codec, not with {shown(codec)}")
    if codec == "text":
        return TextCodec()
    if codec == "bytes":
        return BytesCodec()
    if callable(getattr(codec, "encode", None)) and callable(getattr(codec, "decode", None)):
        return codec  # type: ignore[return-value]  # checked by shape, just above
    raise ConfigurationError(f"codec must be 'json', 'text', 'bytes' or have encode and decode, not {shown(codec)}")
