"""The registry of queues: an index of the names under a prefix. Whether a queue is in use, its own keys say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from delayq.broker.keys import Keys, check_name, is_name, registry
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.operation import Operation
from delayq.errors import short_repr
from delayq.safe_log import SafeLog

log = SafeLog("delayq.queue")

NAMES_A_READ = 1000
"""Names of the registry that one command goes through."""

REFUSALS = ("NOPERM", "WRONGTYPE")
"""How errors begin of a registry that a user may not write to, or that is no set."""

_told: set[str] = set()
"""What this process has logged of registries."""


def as_glob(pattern: str) -> str:
    """Return a pattern as Redis reads it."""
    return pattern.replace("[!", "[^")


def is_in_use(prefix: str, queue: str) -> RedisCommand[bool]:
    """Read whether a queue is in use, by its own keys: one that was never opened, or was removed, is not."""
    keys = Keys.of(prefix, queue)
    return RedisCommand(("EXISTS", keys.meta, keys.messages, keys.dead), bool)


def register(prefix: str, *queues: str) -> RedisCommand[str]:
    """Add queues to the registry; returns why Redis refuses that, '' if it does not.

    Processes that have a queue open do it again from time to time: the index may have lost names.
    """
    words = ("SADD", registry(prefix), *queues)
    return RedisCommand(words, lambda reply: str(reply) if isinstance(reply, Exception) else "", expects=REFUSALS)


def queue_names(prefix: str, pattern: str = "*") -> Operation[list[str]]:
    """Read the names in the registry that match a pattern, sorted; see `keys.check_pattern`.

    A user who may send to one queue may add any name, so there may be no queue of that name: see `CountsReply.in_use`.
    What can be no name is left out, which the log tells once.
    """
    key = registry(check_name(prefix, "prefix"))
    match = as_glob(pattern)
    names: set[str] = set()
    cursor = b"0"
    while True:
        words = ("SSCAN", key, cursor, "MATCH", match, "COUNT", NAMES_A_READ)
        (reply,) = yield [RedisCommand(words, lambda reply: reply)]
        cursor, found = reply
        names.update(_valid(key, found))
        if cursor == b"0":
            return sorted(names)


def _valid(key: str, found: Sequence[bytes]) -> Iterable[str]:
    for stored in found:
        name = stored.decode("ascii", "replace")
        if is_name(name):
            yield name
        else:
            _tell_once(
                key, "%s has %s, which is no name of a queue: left out; remove it by SREM", key, short_repr(stored)
            )


def tell_unregistered(prefix: str, queue: str, refusal: str) -> None:
    """Log that a queue could not be registered; once for each registry, not for each of its queues."""
    text = "queue %s is missing in lists of all queues, and workers of patterns do not find it: %s"
    _tell_once(f"{registry(prefix)} {refusal}", text, queue, refusal, extra={"queue": queue})


def _tell_once(about: str, text: str, *values: object, **options: Any) -> None:
    if about not in _told:
        _told.add(about)
        log.warning(text, *values, **options)
