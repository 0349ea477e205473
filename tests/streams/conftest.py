"""Fixtures: a stream queue, blocking or asyncio, on an empty Redis."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from delayq.streams import AsyncStreamDeadLetter, AsyncStreamQueue, StreamQueue
from tests.support.faces import Asyncio, Blocking, Stand

Open = Callable[..., Any]


class BlockingStreams(Blocking):
    """The blocking queue."""

    def open(self, name: str, **options: Any) -> Any:
        return StreamQueue(name, **options)


class AsyncioStreams(Asyncio):
    """The asyncio queue, with an event loop in its own thread."""

    def open(self, name: str, *, callback: Any = None, **options: Any) -> Any:
        queue = self.do(lambda: AsyncStreamQueue(name, **options))
        if callback is not None:
            queue.callback(callback)
        return queue

    def _stand(self, result: Any) -> Any:
        if isinstance(result, AsyncStreamQueue | AsyncStreamDeadLetter):
            return Stand(result, self)
        return super()._stand(result)


@pytest.fixture(params=[BlockingStreams, AsyncioStreams], ids=["blocking", "asyncio"])
def face(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The blocking queue, then the asyncio one."""
    face = request.param()
    yield face
    face.close()


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """URL of the server: a real Redis, or the one that `everywhere` selects."""
    if getattr(request, "param", "redis") == "memory":
        return f"memory://{uuid.uuid4().hex}"
    return str(request.getfixturevalue("redis_url"))


everywhere = pytest.mark.parametrize("url", ["redis", "memory"], indirect=True)


@pytest.fixture
def open_queue(face: Any, url: str) -> Iterator[Open]:
    """`open_queue(name="tasks", **options)` opens a queue that the end of the test closes."""
    queues = []

    def open_queue(name: str = "tasks", **options: Any) -> Any:
        queue = face.open(name, **({"url": url} | options))
        queues.append(queue)
        return queue

    yield open_queue
    for queue in queues:
        queue.stop_consume(0)
        queue.close()


@pytest.fixture
def queue(open_queue: Open) -> Any:
    """A queue with default options and without a callback."""
    return open_queue()


@pytest.fixture
def server(redis_url: str) -> Iterator[redis.Redis]:
    """A client of the same Redis that plays other clients; replies are text."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client
