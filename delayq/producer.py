"""Sending: from payloads and times to stored messages, in slices of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar, overload

import msgspec

from delayq.calls import Outgoing
from delayq.clock import Duration, milliseconds, timestamp
from delayq.codec import Codec
from delayq.config import check_retries
from delayq.errors import ConfigurationError, PayloadError, PayloadTooLargeError
from delayq.ids import new_id
from delayq.keys import check_id
from delayq.message import Tools
from delayq.operation import Operation

T = TypeVar("T")

SLICE = 500
"""Messages sent in one call: large enough to spread the round trip, short of blocking the server for 10 ms."""
SLICE_BYTES = 1 << 20
"""Payload bytes after which a slice ends before that."""
MOST_HEADERS = 16_384
"""Bytes of headers a message may carry, as stored."""

_encode_headers = msgspec.json.Encoder().encode


class SendStatus(StrEnum):
    """What a send did with an id."""

    NEW = "new"
    EXISTS = "exists"
    """A message of this id lives; it was left as it is."""
    REPLACED = "replaced"
    """A message of this id waited; it has the new payload and due time, and its attempts start anew."""
    RUNNING = "running"
    """A message of this id is being processed and was not replaced."""


_STATUS = {"1": SendStatus.NEW, "0": SendStatus.EXISTS, "2": SendStatus.REPLACED, "3": SendStatus.RUNNING}
_SPENT = "4"


@dataclass(frozen=True, slots=True)
class NewMessage(Generic[T]):
    """A message to be sent by `send_many` with times and options of its own; what is left out the call decides."""

    payload: T
    delay: Duration | None = None
    at: datetime | None = None
    retries: int | None = None
    id: str | None = None
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one send: the message's id, and whether this call stored it."""

    id: str
    status: SendStatus

    @property
    def new(self) -> bool:
        """Whether the message was stored by this call under an id that was free."""
        return self.status is SendStatus.NEW


class SentMany(Sequence[Sent]):
    """What became of each message of `send_many`, in order."""

    __slots__ = ("_digits", "ids")

    def __init__(self, ids: list[str], digits: str) -> None:
        """Pair ids with the digits the server answered."""
        self.ids = ids
        self._digits = digits

    @property
    def new(self) -> list[str]:
        """The ids that were stored by this call under ids that were free."""
        return [id for id, digit in zip(self.ids, self._digits, strict=True) if digit == "1"]

    def __len__(self) -> int:
        """Return how many messages were given."""
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> Sent: ...
    @overload
    def __getitem__(self, at: slice) -> SentMany: ...
    def __getitem__(self, at: int | slice) -> Sent | SentMany:
        """Return what became of one message, or of a range of them."""
        if isinstance(at, slice):
            return SentMany(self.ids[at], self._digits[at])
        return Sent(self.ids[at], _STATUS[self._digits[at]])

    def __repr__(self) -> str:
        """Show how many were sent and how many were new."""
        return f"<SentMany {len(self)} messages, {self._digits.count('1')} new>"


def due_text(delay: Duration | None, at: datetime | None) -> str | int:
    """Return a due time as the scripts take it: milliseconds from now, or `@` and milliseconds since 1970."""
    if at is not None:
        if delay is not None:
            raise ConfigurationError("give either delay or at, not both")
        return f"@{timestamp(at)}"
    return milliseconds(0 if delay is None else delay, "delay")


class Producer:
    """Turns what users send into operations; shared by the blocking and the asyncio face of a queue."""

    def __init__(self, tools: Tools, codec: Codec) -> None:
        """Send to the queue of `tools` with payloads encoded by `codec`."""
        self._tools = tools
        self._encode = codec.encode

    def send(self, message: NewMessage[Any], *, replace: bool) -> Operation[Sent]:
        """Send one message."""
        outgoing = self._outgoing(message, 0, self._tools.settings.default_retries)
        digits = yield from self._slice([outgoing], replace=replace)
        return Sent(outgoing.id, _STATUS[digits])

    def send_many(
        self, messages: Iterable[Any], *, delay: Duration, retries: int | None, replace: bool
    ) -> Operation[SentMany]:
        """Send payloads and `NewMessage`s; everything is checked and encoded before anything is sent."""
        due = milliseconds(delay, "delay")
        default = self._tools.settings.default_retries if retries is None else check_retries(retries)
        outgoing = [
            self._outgoing(message, due, default)
            if isinstance(message, NewMessage)
            else Outgoing(new_id(), due, default, self._payload(message), b"")
            for message in messages
        ]
        digits = ""
        for part in _slices(outgoing):
            digits += yield from self._slice(part, replace=replace)
        return SentMany([message.id for message in outgoing], digits)

    def _slice(self, messages: list[Outgoing], *, replace: bool) -> Operation[str]:
        tools = self._tools
        call = tools.calls.send(messages, replace=replace, max_length=tools.settings.max_length)
        (digits,) = yield [call]
        # An id whose last life is spent but not yet collected is free once that has been done.
        while _SPENT in digits:
            spent = [message for message, digit in zip(messages, digits, strict=True) if digit == _SPENT]
            again = tools.calls.send(spent, replace=replace, max_length=tools.settings.max_length)
            _, second = yield [tools.collect(tuple(message.id for message in spent)), again]
            later = iter(second)
            digits = "".join(next(later) if digit == _SPENT else digit for digit in digits)
        return str(digits)

    def _outgoing(self, message: NewMessage[Any], due: int, retries: int) -> Outgoing:
        at: str | int = due
        if message.delay is not None or message.at is not None:
            at = due_text(message.delay, message.at)
        return Outgoing(
            new_id() if message.id is None else check_id(message.id),
            at,
            retries if message.retries is None else check_retries(message.retries),
            self._payload(message.payload),
            _headers(message.headers) if message.headers else b"",
        )

    def _payload(self, payload: Any) -> bytes:
        encoded = self._encode(payload)
        if type(encoded) is not bytes:
            raise PayloadError(f"the codec must encode to bytes, not {type(encoded).__name__}")
        most = self._tools.settings.max_payload
        if len(encoded) > most:
            raise PayloadTooLargeError(f"the payload is {len(encoded)} bytes encoded; max_payload is {most}")
        return encoded


def _headers(headers: Mapping[str, str]) -> bytes:
    if not isinstance(headers, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in headers.items()
    ):
        raise ConfigurationError("headers must map str to str")
    try:
        encoded = _encode_headers(dict(headers))
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"headers must be encodable text: {error.reason}") from error
    if len(encoded) > MOST_HEADERS:
        raise ConfigurationError(f"headers take {len(encoded)} bytes as stored; at most {MOST_HEADERS} are allowed")
    return encoded


def _slices(messages: list[Outgoing]) -> Iterator[list[Outgoing]]:
    part: list[Outgoing] = []
    size = 0
    for message in messages:
        part.append(message)
        size += len(message.payload)
        if len(part) == SLICE or size >= SLICE_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
