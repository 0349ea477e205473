"""Fixtures: a work queue, blocking or asyncio, on an empty Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from delayq.workqueue import AsyncWorkQueue, WorkQueue

PREFIX = "jobs"


class Blocking:
    """A queue whose methods take no client argument."""

    def __init__(self, url: str, prefix: str = PREFIX, **options: Any) -> None:
        self.queue = WorkQueue(prefix)
        self.db = redis.Redis.from_url(url, **options)

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: getattr(self.queue, name)(self.db, *args, **kwargs)

    def pipeline(self, *names: str, items: Any) -> Any:
        pipe = self.db.pipeline(transaction=False)
        for name, item in zip(names, items, strict=True):
            getattr(self.queue, name)(pipe, item)
        return pipe.execute()

    def close(self) -> None:
        self.db.close()


class Asyncio:
    """The same for asyncio, on its own event loop."""

    def __init__(self, url: str, prefix: str = PREFIX, **options: Any) -> None:
        self.queue = AsyncWorkQueue(prefix)
        self.loop = asyncio.Runner()
        self.db = redis.asyncio.Redis.from_url(url, **options)

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await getattr(self.queue, name)(self.db, *args, **kwargs)

        return lambda *args, **kwargs: self.loop.run(call(*args, **kwargs))

    def pipeline(self, *names: str, items: Any) -> Any:
        async def call() -> Any:
            pipe = self.db.pipeline(transaction=False)
            for name, item in zip(names, items, strict=True):
                getattr(self.queue, name)(pipe, item)
            return await pipe.execute()

        return self.loop.run(call())

    def close(self) -> None:
        self.loop.run(self.db.aclose())
        self.loop.close()


@pytest.fixture(params=[Blocking, Asyncio], ids=["blocking", "asyncio"])
def opened(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Any]:
    """`opened(prefix="jobs", **options)` returns a queue with its client, first blocking, then asyncio."""
    faces: list[Any] = []

    def open_one(prefix: str = PREFIX, **options: Any) -> Any:
        faces.append(request.param(redis_url, prefix, **options))
        return faces[-1]

    yield open_one
    for face in faces:
        face.close()


@pytest.fixture
def jobs(opened: Any) -> Any:
    """A queue with the prefix "jobs"."""
    return opened()
