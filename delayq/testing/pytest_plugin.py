"""The fixtures of the test kit, which pytest finds by itself; what they need is loaded when a test asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from delayq import AsyncDelayQueue, DelayQueue
    from delayq.testing.clock import Clock
    from delayq.testing.place import AsyncQueues, Place, Queues

THROWAWAY = "throwaway"
"""In place of a URL: a redis-server of one's own, started for the tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add where the queues of tests are."""
    where = "where the queues of delayq's fixtures live: memory:// (the default), the URL of a Redis, or `throwaway`"
    parser.getgroup("delayq").addoption("--delayq-url", metavar="URL", help=f"{where}, a redis-server started for it")
    parser.addini("delayq_url", f"{where}; --delayq-url goes before it", default="memory://")


@pytest.fixture(scope="session")
def delayq_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of the Redis that the tests share, as --delayq-url or the ini option delayq_url says."""
    url = request.config.getoption("--delayq-url") or request.config.getini("delayq_url")
    if url != THROWAWAY:
        yield url
        return
    from delayq.throwaway import RedisServer, find_program

    if find_program() is None:
        pytest.fail("--delayq-url throwaway needs a redis-server on PATH", pytrace=False)
    with RedisServer() as server:
        yield server.url


@pytest.fixture
def delayq_clock() -> Iterator[Clock]:
    """A clock that stands still until `advance("3d")` or `move_to(time)`, for every queue that is used in this test."""
    from delayq.testing.clock import Clock, ruling

    with ruling(Clock()) as clock:
        yield clock


@pytest.fixture
def _delayq_place(delayq_url: str) -> Iterator[Place]:
    from delayq.testing.place import Place

    place = Place(delayq_url)
    yield place
    place.remove()


@pytest.fixture
def delayq_queues(_delayq_place: Place) -> Iterator[Queues]:
    """`delayq_queues(name, **options)` opens a queue for this test; `.adopt(queue)` takes one of the program in."""
    from delayq.testing.place import Queues

    queues = Queues(_delayq_place)
    yield queues
    queues.close()


@pytest.fixture
def delayq_queue(delayq_queues: Queues) -> DelayQueue[Any]:
    """A queue for this test."""
    return delayq_queues()


@pytest.fixture
def delayq_async_queues(_delayq_place: Place) -> Iterator[AsyncQueues]:
    """`delayq_async_queues(name, **options)` makes an asyncio queue for this test; see `delayq_queues`."""
    from delayq.testing.place import AsyncQueues

    queues = AsyncQueues(_delayq_place)
    yield queues
    queues.close()


@pytest.fixture
def delayq_async_queue(delayq_async_queues: AsyncQueues) -> AsyncDelayQueue[Any]:
    """An asyncio queue for this test."""
    return delayq_async_queues()
