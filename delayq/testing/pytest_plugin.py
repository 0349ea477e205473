"""The fixtures of the test kit, loaded by pytest as a plugin; imports happen when a test uses a fixture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from delayq import AsyncDelayQueue, DelayQueue
    from delayq.testing.clock import Clock
    from delayq.testing.queue_factory import AsyncQueues, Namespace, Queues

THROWAWAY = "throwaway"
"""Accepted in place of a URL: a temporary redis-server, started for the tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that set where the queues of tests are stored."""
    what = "Redis for the queues of delayq's fixtures: memory:// (the default), a URL, or `throwaway`"
    parser.getgroup("delayq").addoption("--delayq-url", metavar="URL", help=f"{what} to start a temporary redis-server")
    parser.addini("delayq_url", f"{what}; --delayq-url takes precedence", default="memory://")


@pytest.fixture(scope="session")
def delayq_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of the Redis that the tests share, from --delayq-url or the ini option delayq_url."""
    url = request.config.getoption("--delayq-url") or request.config.getini("delayq_url")
    if url != THROWAWAY:
        yield url
        return
    from delayq.testing.redis_server import RedisServer, find_program

    if find_program() is None:
        pytest.fail(
            "--delayq-url throwaway needs a redis-server on PATH: install Redis or use another URL", pytrace=False
        )
    with RedisServer() as server:
        yield server.url


@pytest.fixture
def delayq_clock() -> Iterator[Clock]:
    """A clock that stands still until `advance("3d")` or `move_to(time)`; every queue in this test follows it."""
    from delayq.testing.clock import Clock, ruling

    with ruling(Clock()) as clock:
        yield clock


@pytest.fixture
def _delayq_namespace(delayq_url: str) -> Iterator[Namespace]:
    from delayq.testing.queue_factory import Namespace

    namespace = Namespace(delayq_url)
    yield namespace
    namespace.remove()


@pytest.fixture
def delayq_queues(_delayq_namespace: Namespace) -> Iterator[Queues]:
    """`delayq_queues(name, **options)` opens a queue for this test; `.adopt(queue)` moves an existing one here."""
    from delayq.testing.queue_factory import Queues

    queues = Queues(_delayq_namespace)
    yield queues
    queues.close()


@pytest.fixture
def delayq_queue(delayq_queues: Queues) -> DelayQueue[Any]:
    """A queue for this test."""
    return delayq_queues()


@pytest.fixture
def delayq_async_queues(_delayq_namespace: Namespace) -> Iterator[AsyncQueues]:
    """`delayq_async_queues(name, **options)` opens an asyncio queue for this test; see `delayq_queues`."""
    from delayq.testing.queue_factory import AsyncQueues

    queues = AsyncQueues(_delayq_namespace)
    yield queues
    queues.close()


@pytest.fixture
def delayq_async_queue(delayq_async_queues: AsyncQueues) -> AsyncDelayQueue[Any]:
    """An asyncio queue for this test."""
    return delayq_async_queues()
