"""Each engine under one small interface, so that one test body is run against all of them.

A `Worker` is what one process has: an engine's queue with connections of its own, through the blocking face or the
asyncio one. What only some engines have is no part of it: a test that asks for such a thing uses `Worker.queue`.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import fakeredis

from delayq import AsyncDelayQueue, DelayQueue, NewMessage
from delayq.streams import AsyncStreamQueue, StreamQueue
from delayq.workqueue import AsyncWorkQueue, Item, WorkQueue
from tests.support.faces import Asyncio, Blocking

NAME = "jobs"
SHORT = 0.1
"""Seconds of a lease that is to run out: the shortest that every engine takes."""
LONG = 30.0

Face = Blocking | Asyncio


class Taken(NamedTuple):
    """A message in a worker's hands."""

    id: str
    payload: bytes
    ack: Callable[[], bool]
    delivery: Any
    """What the engine has given: a message, or an item."""


class Counted(NamedTuple):
    """What an engine counts: messages that wait for a worker, and those that one has."""

    waiting: int
    held: int


class Worker(ABC):
    """An engine through one face."""

    queue: Any

    def __init__(self, face: Face, url: str) -> None:
        self.face = face
        self.url = url
        self._ends: list[Callable[[], Any]] = []

    @abstractmethod
    def send(self, payload: bytes, id: str | None = None) -> bool:
        """Send a message; returns whether it is new."""

    @abstractmethod
    def take(self, lease: float = LONG, *, block: float = 0) -> Taken | None:
        """Take a message under a lease; wait up to `block` seconds for one."""

    @abstractmethod
    def counts(self) -> Counted:
        """Count the messages."""

    def recover(self) -> None:  # noqa: B027 - nothing is what most engines need
        """Do what brings back what a dead worker has held, where a worker does not do so by itself."""

    def send_many(self, payloads: list[bytes]) -> None:
        """Send messages."""
        for payload in payloads:
            assert self.send(payload)

    def do(self, make: Callable[[], Any]) -> Any:
        """Call something of the queue; of the asyncio face, await it."""
        return self.face.do(make)

    def close(self) -> None:
        """Let go of connections and consumers; what is held stays held, as of a process that has died."""
        while self._ends:
            self.do(self._ends.pop())


class _Queue(Worker):
    """What a delay queue and a stream queue have in common."""

    kinds: tuple[Any, Any]
    """The blocking face, and the asyncio one."""

    def __init__(self, face: Face, url: str, **options: Any) -> None:
        super().__init__(face, url)
        kind = self.kinds[isinstance(face, Asyncio)]
        # In a tuple, so that it is itself what comes back, and no stand-in whose methods wait: `do` does that here.
        (self.queue,) = self.do(lambda: (kind(NAME, url=url, codec="bytes", **options),))
        self._ends.append(self.queue.close)

    def send(self, payload: bytes, id: str | None = None) -> bool:
        (sent,) = self.do(lambda: self.queue.send_many([NewMessage(payload, id=id)]))
        return bool(sent.new)

    def send_many(self, payloads: list[bytes]) -> None:
        assert len(self.do(lambda: self.queue.send_many(payloads)).new) == len(payloads)

    def take(self, lease: float = LONG, *, block: float = 0) -> Taken | None:
        for message in self.do(lambda: self.queue.lease(lease, block=block)):
            return Taken(message.id, message.payload, message.ack, message)
        return None

    def counts(self) -> Counted:
        found = self.do(self.queue.counts)
        return Counted(found.living - found.active, found.active)

    def consume(self, callback: Callable[[Any], object]) -> Any:
        """Start a consumer with a callback, a plain function; returns what it is stopped with."""
        adapted = self.face.adapt(callback) if isinstance(self.face, Asyncio) else callback
        self.queue.callback(adapted)
        return self.do(self.queue.start_consume)


class Delay(_Queue):
    """The delay queue."""

    kinds = (DelayQueue, AsyncDelayQueue)


class Streams(_Queue):
    """The stream queue."""

    kinds = (StreamQueue, AsyncStreamQueue)


class Work(Worker):
    """The work queue, on a client that the user has."""

    kinds = (WorkQueue, AsyncWorkQueue)

    def __init__(self, face: Face, url: str) -> None:
        super().__init__(face, url)
        self.queue = self.kinds[isinstance(face, Asyncio)](NAME)
        if url.startswith("memory://"):
            kind = fakeredis.FakeAsyncRedis if isinstance(face, Asyncio) else fakeredis.FakeRedis
            self.db: Any = self.do(lambda: kind(server=_EMBEDDED.setdefault(url, fakeredis.FakeServer(version=(7,)))))
        else:
            self.db = self.do(lambda: face.client(url))
        self._ends.append(self.db.aclose if isinstance(face, Asyncio) else self.db.close)

    def send(self, payload: bytes, id: str | None = None) -> bool:
        item = Item(payload, id=id)
        return bool(self.do(lambda: self.queue.add_item(self.db, item)))

    def take(self, lease: float = LONG, *, block: float = 0) -> Taken | None:
        item = self.do(lambda: self.queue.lease(self.db, lease, block=block > 0, timeout=block))
        if item is None:
            return None
        return Taken(item.id(), item.data(), lambda: self.do(lambda: self.queue.complete(self.db, item)), item)

    def counts(self) -> Counted:
        return Counted(*self.do(lambda: self.queue.counts(self.db)))

    def recover(self) -> None:
        self.do(lambda: self.queue.light_clean(self.db, grace=0))


ENGINES: dict[str, type[Worker]] = {"delay": Delay, "streams": Streams, "workqueue": Work}
"""The engines, by the names that the command line has for them."""
FACES: dict[str, type[Blocking | Asyncio]] = {"blocking": Blocking, "asyncio": Asyncio}

_EMBEDDED: dict[str, Any] = {}


def embedded_url() -> str:
    """Return the address of an embedded server of its own."""
    return f"memory://{uuid.uuid4().hex}"
