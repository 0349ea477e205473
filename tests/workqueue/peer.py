"""A client like those of other languages, written from the description of the protocol, one command at a time.

Its operations are generators that stop between any two commands: the test decides what happens there. A generator
that is not resumed is a client that has died.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import redis

from delayq.broker.requests import RedisCommand, ScriptCall

T = TypeVar("T")
Steps = Generator[None, None, T]


def finish(steps: Steps[T]) -> T:
    """Run the rest of an operation."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def stopped(steps: Steps[Any], commands: int) -> Steps[Any]:
    """Run a number of commands of an operation, and return the rest."""
    for _ in range(commands):
        next(steps)
    return steps


def run_call(db: redis.Redis, call: ScriptCall[T] | RedisCommand[T]) -> T:
    """Run one of our calls, and return its reply."""
    if isinstance(call, RedisCommand):
        return call.parse(db.execute_command(*call.args))
    return call.parse(db.execute_command("EVAL", call.script.text, len(call.keys), *call.keys, *call.args))


class Peer:
    """One session of such a client."""

    def __init__(self, db: redis.Redis, prefix: str = "jobs", session: str = "a-peer") -> None:
        self.db, self.prefix, self.session = db, prefix, session
        self.queue, self.processing = f"{prefix}:queue", f"{prefix}:processing"

    def item(self, id: str) -> str:
        return f"{self.prefix}:item:{id}"

    def lease_key(self, id: str) -> str:
        return f"{self.prefix}:lease:{id}"

    def add_item(self, id: str, data: bytes) -> Steps[bool]:
        if not self.db.execute_command("SETNX", self.item(id), data):
            return False
        yield
        self.db.lpush(self.queue, id)
        return True

    def add_unique_item(self, id: str, data: bytes) -> Steps[None]:
        self.db.set(self.item(id), data)
        yield
        self.db.lpush(self.queue, id)

    def lease(self, seconds: int, timeout: float | None = None) -> Steps[tuple[str, bytes] | None]:
        """Lease an item; wait up to `timeout` seconds, 0 for ever, None not at all."""
        if timeout is None:
            popped = self.db.execute_command("RPOPLPUSH", self.queue, self.processing)
        else:
            popped = self.db.execute_command("BRPOPLPUSH", self.queue, self.processing, timeout)
        if popped is None:
            return None
        yield
        id = popped.decode()
        data = self.db.get(self.item(id))
        if data is None:
            return None
        yield
        self.db.execute_command("SETEX", self.lease_key(id), seconds, self.session)
        return id, data

    def complete(self, id: str) -> Steps[bool]:
        deleted = self.db.delete(self.item(id))
        yield
        self.db.lrem(self.processing, 0, id)
        yield
        self.db.delete(self.lease_key(id))
        return deleted == 1

    def light_clean(self) -> Steps[None]:
        for raw in self.db.lrange(self.processing, 0, -1):
            yield from self._clean_one(raw.decode())

    def deep_clean(self) -> Steps[None]:
        keys = self.db.keys(f"{self.prefix}:item:*")
        queued = self.db.lrange(self.queue, 0, -1)
        for key in keys:
            id = key.decode().removeprefix(self.item(""))
            if id.encode() not in queued:
                yield from self._clean_one(id)

    def _clean_one(self, id: str) -> Steps[None]:
        yield
        if self.db.exists(self.lease_key(id)):
            return
        yield
        exists = self.db.exists(self.item(id))
        yield
        self.db.lrem(self.processing, 0, id)
        if exists:
            yield
            self.db.lpush(self.queue, id)
