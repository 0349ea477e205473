"""What the processes of a mixed queue note down, in another database of its server."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import redis


class Start(NamedTuple):
    """A callback has started, by the server's clock (µs)."""

    edition: str
    worker: str
    attempt: int
    token: int
    at: int
    due: int
    retries_left: int


class End(NamedTuple):
    """A callback has ended: with `done` it has had its effect, else it is about to fail or to snooze."""

    edition: str
    worker: str
    attempt: int
    token: int
    at: int
    done: bool


class Expected(NamedTuple):
    """What must become of an edition, which is one payload of one message."""

    least: int
    """How many messages with it must have succeeded."""
    most: int
    """How many may have; a kill may repeat each."""
    earliest: int
    """Before this time of the server (µs) it must not start."""
    dead: bool = False
    """Whether it must be in the dead letter."""


class Records:
    """Writes down what happens, and reads it."""

    def __init__(self, url: str) -> None:
        self.client = redis.Redis.from_url(url, db=1, decode_responses=True)

    def now(self) -> int:
        """Return the server's time (µs)."""
        seconds, micros = self.client.time()
        return int(seconds) * 1_000_000 + int(micros)

    def add(self, entry: Start | End) -> None:
        """Note down what happened to an edition."""
        self.client.rpush(type(entry).__name__, json.dumps(entry))

    def expect(self, edition: str, expected: Expected) -> None:
        """Note down what is to become of an edition."""
        self.client.hset("expected", edition, json.dumps(expected))

    def starts(self) -> list[Start]:
        """Return all starts, in their order."""
        return [Start(*entry) for entry in self._entries("Start")]

    def ends(self) -> list[End]:
        """Return all ends, in their order."""
        return [End(*entry) for entry in self._entries("End")]

    def expected(self) -> dict[str, Expected]:
        """Return what is to become of each edition."""
        return {edition: Expected(*json.loads(text)) for edition, text in self.client.hgetall("expected").items()}

    def _entries(self, name: str) -> list[list[Any]]:
        return [json.loads(text) for text in self.client.lrange(name, 0, -1)]
