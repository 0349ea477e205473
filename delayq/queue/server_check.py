"""The start-up check: whether this Redis keeps what it is given, and whether this delayq understands the queue."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any

from delayq.answers import pairs
from delayq.errors import ServerError, UnsafeServerError
from delayq.keys import Keys, registry
from delayq.operation import Operation
from delayq.values import Command

log = logging.getLogger("delayq.doctor")

SCHEMA = 1
"""The version of the structures that this delayq reads and writes."""
OPENING = 4
"""Answers the check reads."""
_KNOWN = [str(version).encode() for version in range(SCHEMA + 1)]
LEAST_SERVER = (6, 2)


def opening(keys: Keys, prefix: str, name: str) -> list[Command[Any]]:
    """Return the commands that make a queue known and read what the check needs."""
    return [
        Command(("INFO",), lambda answer: answer),
        Command(("HSETNX", keys.meta, "schema", SCHEMA), lambda answer: answer),
        Command(("HGET", keys.meta, "schema"), lambda answer: answer),
        Command(("SADD", registry(prefix), name), lambda answer: answer),
    ]


def removal(keys: Keys, prefix: str, name: str) -> list[Command[Any]]:
    """Return the commands that leave nothing of a queue: what a demo does with its own."""
    every = tuple(getattr(keys, part.name) for part in fields(keys))
    return [Command(("UNLINK", *every), int), Command(("SREM", registry(prefix), name), int)]


def check(name: str, answers: list[Any], *, embedded: bool, strict: bool) -> None:
    """Warn of what could lose messages, and of a newer schema; refuse it if `strict`."""
    info, _, schema, _ = answers[:OPENING]
    dangers = [] if embedded or not isinstance(info, bytes) else find_dangers(_parse(info))
    if text := newer(name, schema):
        dangers.append(text)
    if dangers and strict:
        raise UnsafeServerError("; ".join(dangers))
    for danger in dangers:
        log.warning("%s", danger, extra={"queue": name})


def survey(keys: Keys) -> Operation[tuple[list[str], dict[bytes, bytes]]]:
    """Read what of the server could lose messages, a sentence each, and the fields of the queue's `meta`."""
    try:
        (info,) = yield [Command(("INFO",), lambda answer: answer)]
    except ServerError:  # not ours to ask, or embedded: the start-up check takes that as it is, too
        info = None
    (meta,) = yield [Command(("HGETALL", keys.meta), pairs)]
    return find_dangers(_parse(info)) if isinstance(info, bytes) else [], meta


def newer(name: str, schema: Any) -> str:
    """Return what is to be said of a queue whose schema this delayq does not know; '' if it does."""
    if not isinstance(schema, bytes) or schema in _KNOWN:
        return ""
    return f"queue {name} has schema {schema[:20].decode(errors='replace')}, this delayq knows {SCHEMA}: upgrade it"


def find_dangers(info: dict[str, str]) -> list[str]:
    """Return what of a server's `INFO` could lose messages, a sentence each."""
    dangers = []
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        dangers.append(f"Redis evicts keys when it is full (maxmemory-policy {policy}): set noeviction")
    if info.get("aof_enabled") == "0":
        dangers.append("Redis keeps no append-only file: what was sent since the last snapshot is lost in a crash")
    version = info.get("redis_version", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers and numbers < LEAST_SERVER:
        dangers.append(f"Redis {version} is older than {'.'.join(map(str, LEAST_SERVER))}")
    return dangers


def _parse(info: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines())
    return {name: value.strip() for name, colon, value in lines if colon}
