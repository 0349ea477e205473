"""Reads a queue of Celery's Redis transport: JSON tasks of message protocol 2, those held for their `eta` included.

Kombu keeps a list for each priority step, and in `unacked` what workers have taken, which is where a task with an `eta`
waits. A message is JSON; its body is base64 of JSON. Nothing is unpickled: other content stays.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from delayq.broker.keys import check_id
from delayq.broker.transport.executor import Executor
from delayq.migrate.migration import WhyLeft
from delayq.migrate.sources import FoundEntry, Parameters, StaysError, ask, bind, found_entry, number
from delayq.queue.sending.message_options import NewMessage

SEPARATOR = "\x06\x16"
"""Between the name of a queue and a priority."""
STEPS = (0, 3, 6, 9)
"""Kombu's priority steps by default; the first is the most urgent."""
UNACKED = "unacked"
_WORKFLOW = ("callbacks", "errbacks", "chain", "chord")


class CeleryQueue:
    """A queue of Celery."""

    def __init__(self, executor: Executor, name: str, prefix: str, parameters: Parameters) -> None:
        """Read keys that begin with `prefix`, the `global_keyprefix` of Celery, '' by default."""
        self._executor, self._name, self._parameters = executor, name, parameters
        self._lists = {f"priority {step}": f"{prefix}{name}{f'{SEPARATOR}{step}' if step else ''}" for step in STEPS}
        self._unacked, self._index = f"{prefix}unacked", f"{prefix}unacked_index"

    def count(self) -> Counter[str]:
        """Return how many tasks each place has."""
        lengths = ask(self._executor, [("LLEN", key) for key in self._lists.values()], number)
        found = Counter(dict(zip(self._lists, lengths, strict=True)))
        found[UNACKED] = self.leased()
        return +found

    def leased(self) -> int:
        """Return how many tasks of this queue workers have taken, to run them or to hold them until their `eta`."""
        total = offset = 0
        while tags := self._tags(offset, 500):
            total += len(self._of_queue(tags))
            offset += len(tags)
        return total

    def _tags(self, offset: int, limit: int) -> list[bytes]:
        (tags,) = ask(self._executor, [("ZRANGE", self._index, offset, offset + limit - 1)])
        return list(tags)

    def _of_queue(self, tags: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        (stored,) = ask(self._executor, [("HMGET", self._unacked, *tags)])
        found = zip(tags, stored, strict=True)
        return [(tag, value) for tag, value in found if value is not None and _routed_to(value) == self._name]

    def page(self, place: str, offset: int, limit: int) -> list[FoundEntry]:
        """Return tasks, those first that workers would take next."""
        if place != UNACKED:
            key, end = self._lists[place], -1 - offset
            (values,) = ask(self._executor, [("LRANGE", key, end - limit + 1, end)])
            return [self._read(value, value) for value in reversed(values)]
        found, seen, position = list[FoundEntry](), 0, 0
        while len(found) < limit and (tags := self._tags(position, limit)):
            for tag, value in self._of_queue(tags):
                seen += 1
                if seen > offset and len(found) < limit:
                    found.append(self._read(tag, json.dumps(json.loads(value)[0]).encode()))
            position += len(tags)
        return found

    def remove(self, place: str, entries: Sequence[FoundEntry]) -> int:
        """Remove tasks; returns how many were still there."""
        if place != UNACKED:
            removed = ask(self._executor, [("LREM", self._lists[place], -1, one.raw) for one in entries], number)
            return sum(removed)
        tags = [one.raw for one in entries]
        removed = ask(self._executor, [("HDEL", self._unacked, *tags), ("ZREM", self._index, *tags)], number)
        return int(removed[0])

    def _read(self, raw: bytes, stored: bytes) -> FoundEntry:
        try:
            message = json.loads(stored)
            id = message["headers"]["id"].encode()
        except (ValueError, KeyError, TypeError, AttributeError):
            return FoundEntry(raw, raw[:100], why=WhyLeft.UNREADABLE)
        return found_entry(raw, id, lambda: self._message(message))

    def _message(self, message: Any) -> NewMessage[Any]:
        headers, properties = message["headers"], message["properties"]
        if message.get("content-type") != "application/json":
            raise StaysError(WhyLeft.NOT_JSON)
        if headers.get("compression"):
            raise StaysError(WhyLeft.UNREADABLE)
        body = message["body"]
        text = base64.b64decode(body, validate=True) if properties.get("body_encoding") == "base64" else body
        args, kwargs, embedded = json.loads(text)
        if any(embedded.get(part) for part in _WORKFLOW):
            raise StaysError(WhyLeft.WORKFLOW)
        expires = _time(headers.get("expires"))
        if expires is not None and expires <= datetime.now(UTC):
            raise StaysError(WhyLeft.EXPIRED)
        return NewMessage(
            bind(headers["task"], args, kwargs, self._parameters),
            at=_time(headers.get("eta")),
            id=check_id(headers["id"]),
            name=headers["task"],
            expires=expires,
            missed="dead" if expires is None else "drop",
            priority=-int(properties.get("priority") or 0) or None,
            timeout=(headers.get("timelimit") or [None])[0],
        )


def _routed_to(stored: bytes) -> str:
    """Return the queue of an unacked task; '' for what cannot be read."""
    try:
        message, _, routing_key = json.loads(stored)
        return str(message["properties"]["delivery_info"].get("routing_key") or routing_key)
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def _time(text: str | None) -> datetime | None:
    """Return a time of a header; what has no zone is in UTC, as Celery has it by default."""
    if not text:
        return None
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
