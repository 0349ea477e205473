"""Queues of the Go library, made by the transliteration of it, with messages in every place."""

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
from tests.cli.conftest import cli, elsewhere  # noqa: F401 - fixtures of the tests here

LEASE = 5
AGO = 1000
"""Seconds that lie between what workers did, and now."""


@dataclass(frozen=True)
class Told:
    """What a message is to be in delayq; `due` in seconds since 1970, None for at once."""

    payload: bytes
    retries: int
    due: float | None = None


@dataclass
class Go:
    """A queue of the Go library; its workers live at `now`."""

    client: redis.Redis
    base: str
    now: float = field(default_factory=lambda: float(int(time.time())))
    told: dict[str, Told] = field(default_factory=dict)
    """What is to arrive."""

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
        self.told[id] = Told(payload, retries, self.now + delay)
        return id

    def ready(self, payload: bytes, retries: int = 3, id: str = "") -> str:
        id = self.send(payload, 0, retries, id)
        self.worker.pending_to_ready()
        self.told[id] = Told(payload, retries)
        return id

    def leased(self, payload: bytes, retries: int = 3, ago: float = AGO, id: str = "") -> str:
        """A worker took it so many seconds ago, and was not heard of since."""
        self.now -= ago
        id = self.send(payload, 0, retries, id)
        self.worker.pending_to_ready()
        assert self.worker.ready_to_unack() == id
        self.told[id] = Told(payload, retries, self.now + LEASE)
        self.now += ago
        return id

    def failed(self, payload: bytes, retries: int = 3) -> str:
        """It has failed once, and is to be retried, or is garbage."""
        id = self.leased(payload, retries)
        self.worker.nack(id)
        self.worker.unack_to_retry()
        del self.told[id]
        if retries:
            self.told[id] = Told(payload, retries - 1)
        return id

    def expire(self, id: str) -> str:
        """Its payload has outlived its time."""
        assert self.client.delete(self.worker.payloads + id)
        self.told.pop(id, None)
        return id

    def ids(self) -> dict[str, list[str]]:
        """What stands in each place that holds anything."""
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
        """Put messages into every place; returns what is to be left there."""
        # What is to be found as it stands comes last: a worker at work on one message moves others, too.
        self.failed(b"to be retried", retries=2)
        self.failed(b"to be retried for the last time", retries=1)
        garbage = [self.failed(b"failed for good", retries=0)]
        self.leased(b"of a worker that is no more", retries=2)
        self.leased(b"of a worker that is no more, its retries spent", retries=0)
        lost = [self.expire(self.ready(b"expired"))]
        self.ready(b"\xff\x00 any bytes", retries=7)
        self.ready(b"")
        self.pending(b"in an hour")
        self.pending(b"overdue", delay=-AGO, retries=0)
        return {"pending": [self.expire(self.pending(b"lost"))], "ready": lost, "garbage": garbage}


def told(queue: DelayQueue[Any], go: Go) -> dict[str, Told]:
    """What has become of the messages in delayq, to be compared with `go.told`."""
    found = {id: queue.get(id) for id in go.told}
    return {
        id: Told(one.payload, one.retries_left, None if go.told[id].due is None else one.due.timestamp())
        for id, one in found.items()
        if one
    }


def dumped(client: redis.Redis) -> dict[bytes, Any]:
    """All that a server holds."""
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
