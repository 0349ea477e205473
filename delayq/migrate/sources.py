"""What a migration reads of another library: places with entries, which are messages or say why they are none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from delayq.broker.requests import RedisCommand
from delayq.broker.transport.executor import Executor
from delayq.errors import ConfigurationError, short_repr
from delayq.migrate.migration import WhyLeft
from delayq.queue.sending.message_options import NewMessage

PAGE = 500
"""Entries that are read in one call."""

Parameters = Mapping[str, Sequence[str]]
"""The names of the positional arguments of functions, by the names of these."""


class FoundEntry(NamedTuple):
    """An entry of a place: a message for delayq, or why it stays."""

    raw: bytes
    """What stands in the place."""
    id: bytes
    message: NewMessage[Any] | None = None
    why: WhyLeft | None = None


class Source(Protocol):
    """A queue of another library. Its consumers take entries from the end where `page` begins."""

    def count(self) -> Counter[str]:
        """Return how many entries each place has, without empty places."""

    def leased(self) -> int:
        """Return how many entries workers have, as far as Redis tells."""

    def page(self, place: str, offset: int, limit: int) -> list[FoundEntry]:
        """Return entries of a place after the first `offset`; none at its end."""

    def remove(self, place: str, entries: Sequence[FoundEntry]) -> int:
        """Remove entries, with all that belongs to them; returns how many were still there."""


class StaysError(Exception):
    """An entry that stays where it is."""

    def __init__(self, why: WhyLeft) -> None:
        super().__init__(why)
        self.why = why


def found_entry(raw: bytes, id: bytes, make: Callable[[], NewMessage[Any]]) -> FoundEntry:
    """Return an entry with the message that `make` reads of it, or why it stays."""
    try:
        return FoundEntry(raw, id, make())
    except StaysError as error:
        return FoundEntry(raw, id, why=error.why)
    except ConfigurationError:
        return FoundEntry(raw, id, why=WhyLeft.BAD_ID)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError, RecursionError):
        return FoundEntry(raw, id, why=WhyLeft.UNREADABLE)


def bind(name: str, args: Any, kwargs: Any, parameters: Parameters) -> dict[str, Any]:
    """Return the arguments of a call by name, as tasks of delayq have them; raises `StaysError`."""
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise StaysError(WhyLeft.UNREADABLE)
    names = parameters.get(name, ())
    if len(args) > len(names):
        raise StaysError(WhyLeft.POSITIONAL)
    return {**dict(zip(names, args, strict=False)), **kwargs}


def read_parameters(texts: Sequence[str]) -> dict[str, list[str]]:
    """Read parameters as the command line takes them, `tasks.add=one,two`; raises `ConfigurationError`."""
    found = {}
    for text in texts:
        name, equals, names = text.partition("=")
        if not name or not equals or not all(one.isidentifier() for one in names.split(",")):
            raise ConfigurationError(f"parameters are NAME=a,b, as in tasks.add=one,two, not {short_repr(text)}")
        found[name] = names.split(",")
    return found


def number(reply: Any) -> int:
    """Read a reply that is a number."""
    return int(reply)


def ask(executor: Executor, commands: Sequence[tuple[Any, ...]], read: Any = lambda reply: reply) -> list[Any]:
    """Send commands in one round trip, and return what is read of each reply; raises the first error."""
    return list(executor.perform(_together([RedisCommand(command, read) for command in commands])))


def _together(requests: list[Any]) -> Any:
    return (yield requests) if requests else []
