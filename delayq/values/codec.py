"""Codecs between payloads and bytes: JSON (typed with msgspec), text or bytes; never pickle."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Any, Protocol, TypeVar

import msgspec

from delayq.errors import (
    ConfigurationError,
    InvalidValueError,
    PayloadError,
    PayloadTooLargeError,
    UndecodableError,
    short_repr,
)
from delayq.values.plain import (
    NO_TYPE,
    ModelUnion,
    changed,
    is_model,
    models_in,
    read_model,
    to_base,
    to_model,
    to_plain,
)

T = TypeVar("T")

MAX_HEADER_BYTES = 16_384
"""Bytes of encoded headers per message."""

CHUNK = 100
"""Payloads that are encoded and compared at a time: more are no longer in the processor's cache, or collected."""
_encode_canonical = msgspec.json.Encoder(enc_hook=to_base, order="deterministic").encode
_encode_headers = msgspec.json.Encoder(enc_hook=to_base).encode


class Codec(Protocol):
    """Turns payloads into bytes and back."""

    def encode(self, payload: Any) -> bytes:
        """Return the bytes to store; raise `PayloadError` if the payload cannot be encoded."""
        ...

    def decode(self, data: bytes) -> Any:
        """Return the payload; raise `UndecodableError` if the bytes are not one."""
        ...


class JsonCodec:
    """JSON with msgspec: typed and validated if there is a payload type, else plain values."""

    def __init__(self, payload_type: Any = None) -> None:
        """`payload_type`: a pydantic model, or a type msgspec knows, such as a dataclass; None for plain JSON."""
        self._encode = msgspec.json.Encoder(enc_hook=to_base).encode
        self._check = None if payload_type in (None, Any) else _checker(payload_type)
        self._decode: Callable[[bytes], Any]
        if is_model(payload_type):
            self._decode = partial(read_model, payload_type)
            return
        try:
            wanted = Any if payload_type is None else payload_type
            self._decode = msgspec.json.Decoder(wanted, dec_hook=to_model).decode
        except TypeError as error:
            if not models_in(payload_type):
                text = f"payload_type {short_repr(payload_type)} cannot be decoded: {error}"
                raise ConfigurationError(text) from error
            union = ModelUnion(payload_type)
            self._decode, self._check = union.decode, union.check

    def encode(self, payload: Any) -> bytes:
        """Return compact JSON; `PayloadError` if the payload would not come back equal, and of its type."""
        if self._check is None:
            try:
                encoded: bytes = self._encode(payload)
                is_same = b"null" not in encoded and to_plain(payload) == payload
            except Exception:  # noqa: BLE001 - the last line says what it is
                is_same = False
            if is_same:  # as nearly always, and twice as fast
                return encoded
        return self._encode_all([payload])[0]

    def encode_many(self, payloads: list[Any]) -> list[bytes]:
        """Return what `encode` does of each payload, in less time."""
        chunks = (payloads[first : first + CHUNK] for first in range(0, len(payloads), CHUNK))
        return list(chain.from_iterable(map(self._encode_all, chunks)))

    def _encode_all(self, payloads: list[Any]) -> list[bytes]:
        try:
            if self._check is not None:
                for payload in payloads:
                    self._check(payload)
            encoded: list[bytes] = list(map(self._encode, payloads))
            why = self._change(payloads, encoded)  # what is wrong must fail now, not when the message is due
        except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError) as error:
            why = without_values(error)
        if why:
            raise PayloadError(f"payload cannot be encoded as JSON: {why}")
        return encoded

    def _change(self, payloads: list[Any], encoded: list[bytes]) -> str:
        """Return how one of these payloads would come back as another; '' if none would."""
        if self._check is not None:
            return changed(payloads, list(map(self._decode, encoded)))
        # Plain values need no decoding: only other types become something else, and null is written for nan, too.
        back = to_plain(payloads)
        why = changed(payloads, back) if back != payloads else ""
        for payload, one in zip(payloads, encoded, strict=True):
            if b"null" in one:
                why = why or changed(payload, self._decode(one))
        return f"{why}: {NO_TYPE}" if why else ""

    def encode_canonical(self, payload: Any) -> bytes:
        """Return the same JSON for equal payloads: by the payload type, and objects and sets in order."""
        encoded = self.encode(payload)
        return _encode_canonical(payload if self._check is None else self._decode(encoded))

    def decode(self, data: bytes) -> Any:
        """Return the value; `UndecodableError` if it is not JSON, is nested too deep or does not fit the type."""
        try:
            return self._decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UndecodableError(f"undecodable: {without_values(error)}") from None


_VALUES = re.compile(r" '.*'|(?<= unknown field) `.*`", re.DOTALL)
"""The parts of msgspec's errors that quote a payload: the value of an enum or tag, the name of a field."""


def without_values(error: Exception) -> str:
    """Return the text of an error without quoting the payload: errors are logged, and payloads may be private."""
    return _VALUES.sub("", str(error))


def _checker(payload_type: Any) -> Any:
    """Return a function that checks the type of a payload: with `isinstance` if possible, else by converting it."""
    if isinstance(payload_type, type) and payload_type not in (int, float):  # True is not an int here, but 1 is a float

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
        msgspec.convert(payload, payload_type, dec_hook=to_model)

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


# JSON allows these characters unescaped, but a terminal may interpret them.
_CONTROL = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def inert(json: bytes) -> str:
    """Return the same JSON, with the characters escaped that a terminal would interpret."""
    if json.isascii() and b"\x7f" not in json:  # as most of it, and many times as fast
        return json.decode()
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", json.decode())


def find_codec(codec: str | Codec, payload_type: Any, queue: str = "") -> Codec:
    """Return the codec for an option: `"json"`, `"text"`, `"bytes"` or an object with `encode` and `decode`.

    An object with `for_queue`, such as `Encrypted`, makes one for the `queue`.
    """
    if not isinstance(codec, str) and callable(bind := getattr(codec, "for_queue", None)):
        return bind(queue, payload_type)  # type: ignore[no-any-return]  # checked by shape, as below
    if codec == "json":
        return JsonCodec(payload_type)
    if payload_type is not None and isinstance(codec, str):
        raise ConfigurationError(f"payload_type goes with the json codec, not with {short_repr(codec)}")
    if codec == "text":
        return TextCodec()
    if codec == "bytes":
        return BytesCodec()
    if callable(getattr(codec, "encode", None)) and callable(getattr(codec, "decode", None)):
        return codec  # type: ignore[return-value]  # checked by shape, just above
    raise ConfigurationError(
        f"codec must be 'json', 'text', 'bytes' or have encode and decode, not {short_repr(codec)}"
    )


def codec_of_queue(codec: Codec, queue: str) -> Codec:
    """Return the same codec for another queue: itself, unless it encodes differently for each."""
    bind = getattr(codec, "for_queue", None)
    return bind(queue) if callable(bind) else codec


def codec_of_results(codec: Codec) -> Codec:
    """Return the codec for results and progress: the same one, unless it tells them from payloads."""
    bind = getattr(codec, "for_results", None)
    return bind() if callable(bind) else codec


def stable_encode(codec: Codec) -> Callable[[Any], bytes]:
    """Return the `encode` of a codec that makes equal bytes of equal payloads, for what is compared as stored."""
    stable: Callable[[Any], bytes] = getattr(codec, "encode_stable", codec.encode)
    return stable


def canonical_encode(codec: Codec) -> Callable[[Any], bytes]:
    """Return the `encode` of a codec that also makes them of objects whose fields are in another order."""
    canonical: Callable[[Any], bytes] = getattr(codec, "encode_canonical", None) or stable_encode(codec)
    return canonical


def encoder_of_many(codec: Codec) -> Callable[[list[Any]], list[bytes]]:
    """Return what encodes a list of payloads: the codec's own `encode_many`, or its `encode` for each."""
    many: Callable[[list[Any]], list[bytes]] | None = getattr(codec, "encode_many", None)
    return many or (lambda payloads: list(map(codec.encode, payloads)))


def recode(stored: bytes, codec: Any, other: Any) -> bytes:
    """Return a payload that one codec of `for_queue` has stored as another one stores it."""
    recoded: bytes = other.seal_stable(codec.unseal(stored))
    return recoded


def encode_payload(payload: Any, encode: Callable[[Any], bytes], max_bytes: int) -> bytes:
    """Return the encoded payload; `PayloadError` if it is not bytes or longer than `max_bytes`."""
    encoded = encode(payload)
    if type(encoded) is not bytes:
        raise PayloadError(f"the codec must encode to bytes, not {type(encoded).__name__}")
    if len(encoded) > max_bytes:
        raise PayloadTooLargeError(f"the payload is {len(encoded)} bytes encoded; max_payload is {max_bytes}")
    return encoded


decode_headers = msgspec.json.Decoder(dict[str, str]).decode
"""Reads stored headers that are not empty."""


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """Return the encoded headers; `ConfigurationError` if they are not text or too long."""
    if not isinstance(headers, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in headers.items()
    ):
        raise InvalidValueError("headers must map str to str")
    if not headers:
        return b""
    try:
        encoded = _encode_headers(dict(headers))
    except UnicodeEncodeError as error:
        raise InvalidValueError(f"headers must be encodable text: {error.reason}") from error
    if len(encoded) > MAX_HEADER_BYTES:
        raise InvalidValueError(f"headers take {len(encoded)} bytes as stored; at most {MAX_HEADER_BYTES} are allowed")
    return encoded
