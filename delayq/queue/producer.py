"""Sending: from payloads and times to stored messages, in slices of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar, cast, overload

import msgspec

from delayq.clock import Duration, milliseconds, timestamp
from delayq.codec import Codec
from delayq.config import check_retries
from delayq.errors import (
    ConfigurationError,
    NotReplicatedError,
    OutcomeUnknown,
    PayloadError,
    PayloadTooLargeError,
    QueueFullError,
)
from delayq.ids import new_id, new_ids
from delayq.keys import check_id
from delayq.message import Tools
from delayq.operation import Operation
from delayq.values import Call, Outgoing, OutgoingTable

T = TypeVar("T")

SLICE = 500
"""Messages sent in one call: large enough to spread the round trip, short of blocking the server for 10 ms."""
SLICE_BYTES = 1 << 20
"""Payload bytes after which a slice ends before that."""
ROUND = 20 * SLICE
"""Messages sent in one round trip."""
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
    SETTLED = "settled"
    """A message of this id was settled within the queue's `dedupe_window`; it is not sent again."""


_STATUS = {
    "1": SendStatus.NEW,
    "0": SendStatus.EXISTS,
    "2": SendStatus.REPLACED,
    "3": SendStatus.RUNNING,
    "5": SendStatus.SETTLED,
}
SPENT = "4"
"""Answered for an id that is spent but not yet collected: see `send_again`."""


@dataclass(frozen=True, slots=True)
class NewMessage(Generic[T]):
    """A message to be sent by `send_many` with times and options of its own; what is left out the call decides.

    Its `repr` leaves payload and headers out, which may be private.
    """

    payload: T = field(repr=False)
    delay: Duration | None = None
    at: datetime | None = None
    retries: int | None = None
    id: str | None = None
    headers: Mapping[str, str] | None = field(default=None, repr=False)


class Sent(NamedTuple):
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
    if at is None and delay is not None:
        return milliseconds(delay, "delay")
    if at is None or delay is not None:
        raise ConfigurationError("give a delay, or at, and not both")
    return f"@{timestamp(at)}"


class Producer:
    """Turns what users send into operations; shared by the blocking and the asyncio face of a queue."""

    def __init__(self, tools: Tools, codec: Codec) -> None:
        """Send to the queue of `tools` with payloads encoded by `codec`."""
        self._tools = tools
        self._encode = codec.encode

    @property
    def is_limited(self) -> bool:
        """Whether a send may be refused for what the queue holds."""
        return self._tools.settings.max_length is not None

    def outgoing(
        self, payload: Any, due: str | int, retries: int | None, id: str | None, headers: Mapping[str, str] | None
    ) -> Outgoing:
        """Return a message ready to be sent, due as `due_text` says it; raises what is wrong with it."""
        return Outgoing(
            new_id() if id is None else check_id(id),
            due,
            self._tools.settings.default_retries if retries is None else check_retries(retries),
            encode_payload(payload, self._encode, self._tools.settings.max_payload),
            b"" if headers is None else encode_headers(headers),
        )

    def send(self, messages: list[Outgoing], *, replace: bool = False) -> Operation[list[Sent]]:
        """Send messages in one call."""
        try:
            digits, *_ = yield [self._call(messages, replace=replace), *self._tools.confirming]
            if SPENT in digits:
                digits = yield from self._send_spent(messages, digits, replace=replace)
        except (OutcomeUnknown, QueueFullError, NotReplicatedError) as error:
            error.ids = tuple(message.id for message in messages)
            raise
        return [Sent(message.id, _STATUS[digit]) for message, digit in zip(messages, digits, strict=True)]

    def send_many(
        self, messages: Iterable[Any], *, delay: Duration, retries: int | None, replace: bool, run: str | None
    ) -> Operation[SentMany]:
        """Send payloads and `NewMessage`s; everything is checked and encoded before anything is sent."""
        due = milliseconds(delay, "delay")
        ledger = "" if run is None else check_id(run, "run")
        default = self._tools.settings.default_retries if retries is None else check_retries(retries)
        if isinstance(messages, str | bytes | bytearray | Mapping) or not isinstance(messages, Iterable):
            kind = type(messages).__name__
            raise ConfigurationError(f"messages must be several payloads, such as a list; one {kind} is not")
        ready = self._ready(messages if isinstance(messages, list) else list(messages), due, default)
        ids: list[str] = []
        digits = ""
        confirming = self._tools.confirming
        try:
            for first in range(0, len(ready), ROUND):
                part = ready[first : first + ROUND]
                calls = self._calls(part, ids, due, default, replace=replace, run=ledger)
                answers = yield chain(calls, confirming)
                digits += "".join(answers[: len(answers) - len(confirming)])
            if SPENT in digits:
                digits = yield from self._send_spent(ready, digits, replace=replace, run=ledger)
        except (OutcomeUnknown, QueueFullError, NotReplicatedError) as error:
            error.ids = tuple(id for at, id in enumerate(ids) if digits[at : at + 1] in ("", SPENT))
            raise
        return SentMany(ids, digits)

    def _ready(self, messages: list[Any], due: int, retries: int) -> list[Outgoing] | list[bytes]:
        """Check and encode messages; plain payloads all at once, since nothing is sent meanwhile."""
        if not any(issubclass(kind, NewMessage) for kind in set(map(type, messages))):
            encoded: list[bytes] = list(map(self._encode, messages))
            are_bytes = set(map(type, encoded)) <= {bytes}
            if are_bytes and max(map(len, encoded), default=0) <= self._tools.settings.max_payload:
                return encoded
        return [
            self._outgoing(message if isinstance(message, NewMessage) else NewMessage(message), due, retries)
            for message in messages
        ]

    def _send_spent(
        self, ready: Sequence[Outgoing] | Sequence[bytes], digits: str, *, replace: bool, run: str = ""
    ) -> Operation[str]:
        """Send those again whose ids were still to be collected; returns all digits."""
        spent = [at for at, digit in enumerate(digits) if digit == SPENT]
        for first in range(0, len(spent), SLICE):
            places = spent[first : first + SLICE]
            again = [cast("Outgoing", ready[at]) for at in places]
            later = yield from send_again(self._tools, again, replace=replace, run=run)
            known = dict(zip(places, later, strict=True))
            digits = "".join(known.get(at, digit) for at, digit in enumerate(digits))
        return digits

    def _calls(
        self, ready: list[Outgoing] | list[bytes], ids: list[str], due: int, retries: int, *, replace: bool, run: str
    ) -> Iterator[Call[str]]:
        """Make the calls of one round, slice by slice, while the slices before are on their way; notes their ids."""
        for part in _slices(ready):
            n = len(part)
            if isinstance(part[0], bytes):
                table = OutgoingTable(new_ids(n), [due] * n, [retries] * n, part, [b""] * n)
            else:
                table = OutgoingTable(*zip(*part, strict=True))
            ids += table.ids
            yield self._call(table, replace=replace, run=run)

    def _call(self, messages: list[Outgoing] | OutgoingTable, *, replace: bool, run: str = "") -> Call[str]:
        return self._tools.calls.send(messages, replace=replace, max_length=self._tools.settings.max_length, run=run)

    def _outgoing(self, message: NewMessage[Any], due: int, retries: int) -> Outgoing:
        at: str | int = due
        if message.delay is not None or message.at is not None:
            at = due_text(message.delay, message.at)
        left = retries if message.retries is None else message.retries
        return self.outgoing(message.payload, at, left, message.id, message.headers)


def _slices(ready: list[Outgoing] | list[bytes]) -> Iterator[list[Outgoing] | list[bytes]]:
    """Cut what is ready into slices; large payloads make them shorter."""
    for first in range(0, len(ready), SLICE):
        part = ready[first : first + SLICE]
        payloads = part if isinstance(part[0], bytes) else [message.payload for message in part]
        sizes = list(map(len, payloads))
        if sum(sizes) <= SLICE_BYTES:
            yield part
            continue
        begin = size = 0
        for end, length in enumerate(sizes, 1):
            size += length
            if size >= SLICE_BYTES or end == len(part):
                yield part[begin:end]
                begin, size = end, 0


def encode_payload(payload: Any, encode: Callable[[Any], bytes], most: int) -> bytes:
    """Return a payload as it is stored; `PayloadError` if it is not encoded to bytes, and to at most so many."""
    encoded = encode(payload)
    if type(encoded) is not bytes:
        raise PayloadError(f"the codec must encode to bytes, not {type(encoded).__name__}")
    if len(encoded) > most:
        raise PayloadTooLargeError(f"the payload is {len(encoded)} bytes encoded; max_payload is {most}")
    return encoded


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """Return headers as they are stored; `ConfigurationError` if they are no texts or too many."""
    if not isinstance(headers, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in headers.items()
    ):
        raise ConfigurationError("headers must map str to str")
    if not headers:
        return b""
    try:
        encoded = _encode_headers(dict(headers))
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"headers must be encodable text: {error.reason}") from error
    if len(encoded) > MOST_HEADERS:
        raise ConfigurationError(f"headers take {len(encoded)} bytes as stored; at most {MOST_HEADERS} are allowed")
    return encoded


def send_again(tools: Tools, messages: Sequence[Outgoing], *, replace: bool, run: str = "") -> Operation[str]:
    """Send messages whose ids are spent but not yet collected: collect those, and they are free."""
    ids = tuple(message.id for message in messages)
    digits = SPENT
    while SPENT in digits:
        call = tools.calls.send(messages, replace=replace, max_length=tools.settings.max_length, run=run)
        _, digits, *_ = yield [tools.collect(ids), call, *tools.confirming]
    return digits
