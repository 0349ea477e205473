"""A master under Sentinels and a Cluster for each pytest process; every test has a prefix of its own there."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delayq.throwaway import find_program
from tests.support.deployments import RedisCluster, Sentinels
from tests.support.faces import Asyncio, Blocking

Open = Callable[..., Any]


@pytest.fixture(scope="session")
def sentinels() -> Iterator[Sentinels]:
    """A master with a replica under three Sentinels. Who kills a server has it rejoin."""
    _need_program()
    with Sentinels() as deployment:
        yield deployment


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """Three masters with a replica each. Who kills a server has it rejoin."""
    _need_program()
    with RedisCluster() as deployment:
        yield deployment


@pytest.fixture(params=["sentinels", "redis_cluster"])
def deployment(request: pytest.FixtureRequest) -> Sentinels | RedisCluster:
    """The one, then the other."""
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


@pytest.fixture
def prefix() -> str:
    """The prefix of a test's own keys."""
    return uuid.uuid4().hex


@pytest.fixture(params=[Blocking, Asyncio], ids=["blocking", "asyncio"])
def face(request: pytest.FixtureRequest) -> Iterator[Blocking | Asyncio]:
    """One face, then the other."""
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
    """No request of any test here is about keys of more than one slot, and what a failed test has killed comes back."""
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
