"""What goes out to Redis, as values: a script's call, a plain command, and the rows that a call carries.

`calls` makes them, `executor` carries them out, and `answers` has what comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from delayq.script import Script

T = TypeVar("T")
Argument = str | bytes | int


@dataclass(slots=True)
class Call(Generic[T]):
    """A script to run: what goes out, and how the answer is read. Slot and sequence are the executor's to add."""

    script: Script
    keys: tuple[str | bytes, ...]
    args: Sequence[Argument]
    parse: Callable[[Any], T]


@dataclass(frozen=True, slots=True)
class Command(Generic[T]):
    """A plain Redis command that may be carried out more than once."""

    args: tuple[Argument, ...]
    parse: Callable[[Any], T]
    follows: bool = False
    """Whether it is about what stands before it in its round trip, which is sent again as a whole if at all."""
    expects: str = ""
    """What an error begins with that is as good as an answer: it is parsed in the place of one."""


class Receipt(NamedTuple):
    """The right to settle one delivery of one message."""

    id: str
    token: int


class Outgoing(NamedTuple):
    """A message on its way in: `due` is milliseconds from now, or `@` and milliseconds since 1970."""

    id: str
    due: str | int
    retries: int
    payload: bytes
    headers: bytes


class OutgoingTable(NamedTuple):
    """Messages on their way in, a column for each field of `Outgoing`: many are sooner sent so than one by one."""

    ids: Sequence[str]
    dues: Sequence[str | int]
    retries: Sequence[int]
    payloads: Sequence[bytes]
    headers: Sequence[bytes]


class Failure(NamedTuple):
    """A delivery that failed, and how long the message waits."""

    id: str
    token: int
    delay: int
    error: str


class Rejection(NamedTuple):
    """A delivery that goes to the dead letter at once."""

    id: str
    token: int
    reason: str
    error: str


class Placing(NamedTuple):
    """A schedule on its way in, if it still has this revision ('0' for none yet): next time (ms) and definition."""

    name: str
    revision: str
    next: int | str
    """'' for none."""
    paused: int
    spec: bytes
    """Empty to keep the one there is."""


class Firing(NamedTuple):
    """Occurrences of a schedule that has this revision: its next time and its last (ms), and their messages."""

    name: str
    revision: str
    next: int | str
    """'' for none."""
    last: int
    retries: int
    payload: bytes
    headers: bytes
    occurrences: str
    """Ids and due times (ms) by turns, with spaces between."""
