"""A master under Sentinels and a Cluster for each pytest process; every test has its own prefix."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delayq.testing.redis_server import find_program
from tests.support.deployments import RedisCluster, Sentinels
from tests.support.faces import Asyncio, Blocking

Open = Callable[..., Any]


@pytest.fixture(scope="session")
def sentinels() -> Iterator[Sentinels]:
    """A master with a replica under three Sentinels. A test that kills a server lets it rejoin."""
    _need_program()
    with Sentinels() as deployment:
        yield deployment


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """Three masters with a replica each. A test that kills a server lets it rejoin."""
    _need_program()
    with RedisCluster() as deployment:
        yield deployment


@pytest.fixture(params=["sentinels", "redis_cluster"])
def deployment(request: pytest.FixtureRequest) -> Sentinels | RedisCluster:
    """Sentinels, then a Cluster."""
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


@pytest.fixture
def prefix() -> str:
    """The prefix of a test's own keys."""
    return uuid.uuid4().hex


@pytest.fixture(params=[Blocking, Asyncio], ids=["blocking", "asyncio"])
def face(request: pytest.FixtureRequest) -> Iterator[Blocking | Asyncio]:
    """Blocking queues, then asyncio queues."""
    face = request.param()
    yield face
    face.close()


@pytest.fixture
def open_queue(face: Blocking | Asyncio, prefix: str) -> Iterator[Open]:
    """`open_queue(deployment, name="reminders", **options)` opens a queue that the end of the test closes."""
    queues = []

    def open_queue(deployment: Sentinels | RedisCluster, name: str = "reminders", **options: Any) -> Any:
        queue = face.open(name, **({"url": deployment.url, "prefix": prefix} | options))
        queues.append(queue)
        return queue

    yield open_queue
    for queue in queues:
        queue.stop_consume(0)
        queue.close()


@pytest.fixture(autouse=True)
def in_order(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check that no request used keys of several slots, and restart servers that a failed test has killed."""
    yield
    shared = [request.node.funcargs.get(name) for name in ("deployment", "sentinels", "redis_cluster")]
    for used in filter(None, shared):
        for server in used.servers:
            if not server.is_running:
                used.rejoin(server)
            if isinstance(used, RedisCluster):
                assert "errorstat_CROSSSLOT" not in server.facts("INFO", "errorstats")


def _need_program() -> None:
    if not find_program():
        pytest.skip("needs a redis-server on PATH")
