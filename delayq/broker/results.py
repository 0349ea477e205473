"""Results: what is kept of a message with retention once it is settled, as the scripts write it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from delayq.broker.message.attributes import Attributes
from delayq.broker.replies import ClaimedMessage
from delayq.errors import PayloadError, PayloadTooLargeError, UndecodableError
from delayq.values.codec import Codec
from delayq.values.plain import AnnotatedType
from delayq.values.times import HORIZON, LATEST, Duration, to_millis

MAX_PROGRESS = 4096
"""Bytes of an encoded progress report."""
MAX_NOTE = 2048
"""Characters of a note that are stored."""


class Ending(StrEnum):
    """How a message with retention was settled."""

    RETURNED = "returned"
    """Done, with a result."""
    NOTHING = "nothing"
    """Done; the result is None."""
    UNKEPT = "unkept"
    """Done, but its result was too large or could not be encoded; the note says so."""
    DISCARDED = "discarded"
    """Discarded; the note says why."""


class Completed(NamedTuple):
    """A delivery that is done and has retention (ms), with its result."""

    id: str
    token: int
    retention: int
    ending: str
    attributes: bytes
    note: str
    result: bytes


def completed(claimed: ClaimedMessage, ending: str, note: str, result: bytes) -> Completed | None:
    """Return how a delivery is completed; None if its message has no retention."""
    attributes = Attributes.of(claimed.attributes)
    if attributes.retention <= 0:
        return None
    kept = attributes._replace(progress="").encode()
    return Completed(claimed.id, claimed.token, attributes.retention, ending, kept, note, result)


class KeptRecord(NamedTuple):
    """What is kept of a message that was settled; times in milliseconds since 1970."""

    ending: str
    attempts: int
    due: int
    completed: int
    token: int
    attributes: bytes
    note: str
    result: bytes

    @classmethod
    def read(cls, stored: bytes) -> KeptRecord | None:
        """Parse a record; None for what another program has written."""
        head, _, body = stored.partition(b"\n")
        try:
            ending, *cells = head.decode().split(" ")
            attempts, due, completed, token, attributes, note = map(int, cells)
        except ValueError:
            return None
        if not (0 <= due <= LATEST and 0 <= completed <= LATEST):
            return None
        at = attributes + note
        text = body[attributes:at].decode("utf-8", "replace")
        return cls(ending, attempts, due, completed, token, body[:attributes], text, body[at:])


def check_retention(retention: Duration | None, default: int) -> int:
    """Return how long the result of a message is kept (ms), 0 if it is not; `default` in milliseconds."""
    return default if retention is None else to_millis(retention, "retention", max=HORIZON)


class ResultCodec:
    """Encodes results and progress by the codec of the queue, whatever the type of its payloads."""

    __slots__ = ("decode", "encode", "keeps_text", "max_result", "types")

    def __init__(self, codec: Codec, max_result: int, *, keeps_text: bool = True) -> None:
        """Refuse results of more than `max_result` bytes; note why, or the class of the error alone."""
        self.keeps_text = keeps_text
        self.encode = codec.encode
        self.decode: Callable[[bytes], Any] = codec.decode
        self.max_result = max_result
        self.types: Mapping[str, AnnotatedType] = MappingProxyType({})
        """What the tasks of this process return, by the names of their messages."""

    def pack(self, value: object, attributes: Attributes) -> tuple[str, str, bytes]:
        """Return how a message ends whose callback returned this: the ending, a note, the encoded result."""
        try:
            return self.pack_checked(value, attributes)
        except PayloadError as error:
            return Ending.UNKEPT, str(error)[:MAX_NOTE] if self.keeps_text else type(error).__name__, b""

    def pack_checked(self, value: object, attributes: Attributes) -> tuple[str, str, bytes]:
        """Return the same for a result that is given by hand; raise `PayloadError` for one that cannot be kept."""
        if value is None:
            return Ending.NOTHING, "", b""
        kind = self.types.get(attributes.name)
        return Ending.RETURNED, "", self.encoded(value, "result", self.max_result, kind)

    def encoded(self, value: object, what: str, most: int, kind: AnnotatedType | None = None) -> bytes:
        """Return an encoded value; raise `PayloadError` if it cannot be encoded or is longer than `most` bytes.

        What only comes back equal by the annotated type `kind` is encoded, too.
        """
        try:
            try:
                encoded = self.encode(value)
            except PayloadError:
                if kind is None:
                    raise
                encoded = self.encode(kind.plain(value))
        except PayloadError as error:
            raise PayloadError(str(error).replace("payload", what, 1)) from None
        except Exception as error:
            raise PayloadError(f"{what} cannot be encoded: {type(error).__name__}") from error
        if type(encoded) is not bytes:
            raise PayloadError(f"the codec must encode to bytes, not {type(encoded).__name__}")
        if len(encoded) > most:
            limit = "max_result is" if what == "result" else "allowed are"
            raise PayloadTooLargeError(f"the {what} is {len(encoded)} bytes encoded; {limit} {most}")
        return encoded

    def read(self, record: KeptRecord) -> Any:
        """Return the result of a record, by the annotation of its task; its bytes if they cannot be decoded."""
        if record.ending != Ending.RETURNED:
            return None
        value = self._value(record.result)
        kind = self.types.get(Attributes.of(record.attributes).name) if self.types else None
        return value if kind is None else kind.read(value)

    def pack_progress(self, value: object) -> str:
        """Return a progress report as it is stored; raise `PayloadError` for one that cannot be."""
        return base64.b64encode(self.encoded(value, "progress", MAX_PROGRESS)).decode()

    def read_progress(self, text: str) -> Any:
        """Return a progress report; None for none."""
        try:
            return self._value(base64.b64decode(text, validate=True)) if text else None
        except ValueError:
            return None

    def resumed_progress(self, text: str) -> Any:
        """Return a progress report to go on from; raise `UndecodableError` for one that cannot be read."""
        try:
            return self.decode(base64.b64decode(text, validate=True)) if text else None
        except Exception as error:
            raise UndecodableError(f"the progress cannot be decoded: {type(error).__name__}") from error

    def _value(self, data: bytes) -> Any:
        try:
            return self.decode(data)
        except Exception:  # noqa: BLE001 - a user's codec may raise anything
            return data
