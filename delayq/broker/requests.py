"""Requests to Redis: script calls, plain commands, and the rows that a call carries.

`calls` makes them, an executor runs them, and `replies` parses the replies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from delayq.broker.message.same_id import Debounce
from delayq.broker.scripts import Script

T = TypeVar("T")

UNSTARTED = " ?"
"""Ends the consumer id of a claim whose consumer reports which messages have started."""
Argument = str | bytes | int
Replace = bool | Literal["after", "moved up"] | Debounce
"""What a send replaces: nothing, what is not running, or this and else it waits `after` the running one.

`moved up` replaces what is not leased by a successor that waits. `Debounce` replaces the one before it of a burst.
"""


@dataclass(slots=True)
class ScriptCall(Generic[T]):
    """A script to run, and the parser of its reply. The protocol adds slot and sequence."""

    script: Script
    keys: tuple[str | bytes, ...]
    args: Sequence[Argument]
    parse: Callable[[Any], T]


@dataclass(frozen=True, slots=True)
class RedisCommand(Generic[T]):
    """A plain Redis command that may run more than once."""

    args: tuple[Argument, ...]
    parse: Callable[[Any], T]
    follows: bool = False
    """Whether it refers to the requests before it in its round trip, so that a retry sends all of them again."""
    expects: str | tuple[str, ...] = ()
    """The beginnings of errors that count as a reply: the error is parsed in place of one."""


class Receipt(NamedTuple):
    """The right to settle one delivery of one message."""

    id: str
    token: int


Period = tuple[int | str, int | str]
"""From a first time (ms) up to an end, which is not included."""
ALWAYS: Period = ("-inf", "+inf")
OWN_ID = "unique"
"""In place of a due time, for an engine without delays: the sender chose the id, so it must be unique."""


class Outgoing(NamedTuple):
    """A message to send: `due` is milliseconds from now, or `@` and milliseconds since 1970."""

    id: str
    due: str | int
    retries: int
    payload: bytes
    headers: bytes
    attributes: bytes = b""


class OutgoingTable(NamedTuple):
    """Messages to send, one column per field of `Outgoing`: faster for many messages."""

    ids: Sequence[str]
    dues: Sequence[str | int]
    retries: Sequence[int]
    payloads: Sequence[bytes]
    headers: Sequence[bytes]
    attributes: Sequence[bytes]


class NewTable(OutgoingTable):
    """Messages whose ids were made for this send: nothing can have them, so nothing is looked up."""

    __slots__ = ()


Messages = Sequence[Outgoing] | OutgoingTable


class Release(NamedTuple):
    """A delivery that does not count, and how long (ms) the message waits: 0 to return it to the head of the queue."""

    id: str
    token: int
    delay: int = 0
    attributes: bytes = b""
    """The attributes that the message has from now on; empty to leave them."""
    unstarted: bool = False
    """Whether no callback was started: then it gives its start back to the rates of its limits."""


class Failure(NamedTuple):
    """A delivery that failed, and how long the message waits."""

    id: str
    token: int
    delay: int
    error: str
    span: str = ""
    """The span in which the attempt was made, as `Attributes.span`; '' for none."""


class Rejection(NamedTuple):
    """A delivery that moves to the dead letter at once."""

    id: str
    token: int
    reason: str
    error: str


def flat(rows: Iterable[tuple[Argument, ...]]) -> list[Argument]:
    """Return the arguments of several rows, one after the other."""
    return [*chain.from_iterable(rows)]
