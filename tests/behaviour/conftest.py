"""Blocking and asyncio queues on an empty Redis."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.faces import Asyncio, Blocking
from tests.support.schedules import Clock

Open = Callable[..., Any]


class Busy:
    """A callback that waits at the gate (fixture `busy`)."""

    def __init__(self, gate: threading.Event) -> None:
        self.seen: list[Any] = []
        self._gate = gate

    def __call__(self, message: Any) -> None:
        self.seen.append(message.payload)
        self._gate.wait(30)


@pytest.fixture(params=[Blocking, Asyncio], ids=["blocking", "asyncio"])
def face(request: pytest.FixtureRequest) -> Iterator[Blocking | Asyncio]:
    """Blocking queues, then asyncio queues."""
    face = request.param()
    yield face
    face.close()


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """The URL of the queues: a real Redis, or the server that `everywhere` selects."""
    if getattr(request, "param", "redis") == "memory":
        return f"memory://{uuid.uuid4().hex}"
    return str(request.getfixturevalue("redis_url"))


@pytest.fixture
def gate() -> threading.Event:
    """An event that callbacks wait for; the test, or its end, sets it."""
    return threading.Event()


@pytest.fixture
def busy(gate: threading.Event) -> Busy:
    """A callback that waits at the gate; `busy.seen` holds the payloads it was called with."""
    return Busy(gate)


@pytest.fixture
def open_queue(face: Blocking | Asyncio, url: str, gate: threading.Event) -> Iterator[Open]:
    """`open_queue(name="reminders", **options)` opens a queue that the end of the test closes."""
    queues = []

    def open_queue(name: str = "reminders", **options: Any) -> Any:
        queue = face.open(name, **({"url": url} | options))
        queues.append(queue)
        return queue

    yield open_queue
    gate.set()
    for queue in queues:
        queue.stop_consume(0)
        queue.close()


@pytest.fixture
def queue(open_queue: Open) -> Any:
    """A queue with default options and without a callback."""
    return open_queue()


@pytest.fixture
def clock() -> Clock:
    """A clock for schedules, which stands still."""
    return Clock()


@pytest.fixture
def timed(queue: Any, clock: Clock) -> Any:
    """A queue that uses the clock."""
    return clock.of(queue)
