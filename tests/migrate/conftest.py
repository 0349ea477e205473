"""Queues of the Go library, made by its Python port, with messages in every structure."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
import redis

from delayq import DelayQueue
from tests.ancestor.ancestor import Ancestor
from tests.cli.conftest import cli, empty_folder  # noqa: F401 - fixtures of the tests here

LEASE = 5
AGO = 1000
"""Seconds between the actions of workers and now."""


@dataclass(frozen=True)
class Message:
    """A message as it must arrive in delayq; `due` in seconds since 1970, None for at once."""

    payload: bytes
    retries: int
    due: float | None = None


@dataclass
class Go:
    """A queue of the Go library; its workers live at `now`."""

    client: redis.Redis
    base: str
    now: float = field(default_factory=lambda: float(int(time.time())))
    expected: dict[str, Message] = field(default_factory=dict)
    """The messages that must arrive."""

    def __post_init__(self) -> None:
        self.worker = Ancestor(
            self.client, self.base, lambda _id, _payload: True, lambda: self.now, max_consume_duration=LEASE
        )

    def key(self, part: str) -> str:
        return f"{self.base}:{part}"

    def send(self, payload: bytes, delay: float = 0, retries: int = 3, id: str = "") -> str:
        return self.worker.send(payload, self.now + delay, retries, id)

    def pending(self, payload: bytes, delay: float = 3600, retries: int = 3, id: str = "") -> str:
        id = self.send(payload, delay, retries, id)
        self.expected[id] = Message(payload, retries, self.now + delay)
        return id

    def ready(self, payload: bytes, retries: int = 3, id: str = "") -> str:
        id = self.send(payload, 0, retries, id)
        self.worker.pending_to_ready()
        self.expected[id] = Message(payload, retries)
        return id

    def leased(self, payload: bytes, retries: int = 3, ago: float = AGO, id: str = "") -> str:
        """Send a message that a worker leased `ago` seconds ago and never settled."""
        self.now -= ago
        id = self.send(payload, 0, retries, id)
        self.worker.pending_to_ready()
        assert self.worker.ready_to_unack() == id
        self.expected[id] = Message(payload, retries, self.now + LEASE)
        self.now += ago
        return id

    def failed(self, payload: bytes, retries: int = 3) -> str:
        """Send a message that failed once: it is in retry, or in garbage if `retries` is 0."""
        id = self.leased(payload, retries)
        self.worker.nack(id)
        self.worker.unack_to_retry()
        del self.expected[id]
        if retries:
            self.expected[id] = Message(payload, retries - 1)
        return id

    def expire(self, id: str) -> str:
        """Delete the payload of a message, as its expiry does."""
        assert self.client.delete(self.worker.payloads + id)
        self.expected.pop(id, None)
        return id

    def ids(self) -> dict[str, list[str]]:
        """Return the ids in each structure that is not empty."""
        client = self.client
        found: dict[str, Any] = {
            "pending": client.zrange(self.key("pending"), 0, -1),
            "ready": client.lrange(self.key("ready"), 0, -1),
            "retry": client.lrange(self.key("retry"), 0, -1),
            "unack": client.zrange(self.key("unack"), 0, -1),
            "garbage": client.smembers(self.key("garbage")),
        }
        return {place: sorted(id.decode() for id in ids) for place, ids in found.items() if ids}

    def fill(self) -> dict[str, list[str]]:
        """Put messages into every structure; return the ids that must stay there."""
        # Messages that must not move come last: a worker that processes one message moves others, too.
        self.failed(b"to be retried", retries=2)
        self.failed(b"to be retried for the last time", retries=1)
        garbage = [self.failed(b"failed for good", retries=0)]
        self.leased(b"of a worker that died", retries=2)
        self.leased(b"of a worker that died, its retries spent", retries=0)
        lost = [self.expire(self.ready(b"expired"))]
        self.ready(b"\xff\x00 any bytes", retries=7)
        self.ready(b"")
        self.pending(b"in an hour")
        self.pending(b"overdue", delay=-AGO, retries=0)
        return {"pending": [self.expire(self.pending(b"lost"))], "ready": lost, "garbage": garbage}


def arrived(queue: DelayQueue[Any], go: Go) -> dict[str, Message]:
    """Return the messages that arrived in delayq, to be compared with `go.expected`."""
    found = {id: queue.get(id) for id in go.expected}
    return {
        id: Message(one.payload, one.retries_left, None if go.expected[id].due is None else one.due.timestamp())
        for id, one in found.items()
        if one
    }


def dump_all(client: redis.Redis) -> dict[bytes, Any]:
    """Return all keys of a server with their values."""
    return {key: client.dump(key) for key in client.scan_iter()}


MakeGo = Callable[..., Go]


@pytest.fixture
def go(redis_client) -> Go:
    return Go(redis_client, "dp:example")


@pytest.fixture
def queue(redis_url):
    with DelayQueue("example", url=redis_url, codec="bytes") as made:
        yield made


@pytest.fixture
def uuid() -> str:
    return str(uuid4())
