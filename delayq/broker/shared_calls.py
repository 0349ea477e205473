"""Calls that are the same for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import Any, TypeVar

from delayq.broker import replies
from delayq.broker.requests import RedisCommand
from delayq.broker.scripts import names, script

T = TypeVar("T")


def preload(engine: str = "") -> list[RedisCommand[bool]]:
    """Load every script of an engine (the delay queue by default), for users without the permission to load scripts.

    With them come their variants that read less, for a server that closes connections at a large reply.
    """
    texts = [one.text for name in names(engine) for one in script(name).variants()]
    return [RedisCommand(("SCRIPT", "LOAD", text), bool) for text in texts]


def identify(meta: str) -> list[RedisCommand[Any]]:
    """Return the commands that give a queue an identity if it has none, and read it.

    It is drawn at random when the queue is made. If it has changed, Redis has lost the queue, and with it what its
    processes had declared.
    """
    commands = ("HSETNX", meta, "identity", token_hex(8)), ("HGET", meta, "identity")
    return [RedisCommand(command, lambda reply: reply) for command in commands]


def confirm(meta: str, counter: str, replicas: int, timeout: int) -> list[RedisCommand[Any]]:
    """Wait up to `timeout` ms until `replicas` replicas have the writes before it in the same round trip."""
    # WAIT waits for the writes of its connection. A call that is sent again after a lost reply writes nothing on the
    # new connection, so this writes something that changes nothing.
    write = RedisCommand(("HINCRBY", meta, counter, 0), int, follows=True)
    args, check = ("WAIT", replicas, timeout), partial(replies.check_replicated, required=replicas)
    return [write, RedisCommand(args, check, follows=True)]


def merged(additions: Sequence[RedisCommand[T]]) -> list[RedisCommand[T]]:
    """Return the same additions to sets, with one command for each set."""
    by_set: dict[Any, list[RedisCommand[T]]] = {}
    for addition in additions:
        by_set.setdefault(addition.args[:2], []).append(addition)
    return [
        replace(some[0], args=(*words, *(member for one in some for member in one.args[2:])))
        for words, some in by_set.items()
    ]


def any_exists(checks: Sequence[RedisCommand[Any]]) -> RedisCommand[bool]:
    """Read with one command whether any of the keys exists that these commands read; a key of each is an argument."""
    keys = [key for check in checks for key in check.args[1:]]
    return RedisCommand(("EXISTS", *keys), lambda found: found > 0)


def any_missing(reads: Sequence[RedisCommand[Any]]) -> RedisCommand[bool]:
    """Read with one command whether the key of any of these commands, its first argument, does not exist."""
    keys = [read.args[1] for read in reads]
    return RedisCommand(("EXISTS", *keys), lambda found: found < len(keys))
