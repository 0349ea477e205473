"""Every engine, blocking and asyncio, on a real Redis and on the embedded one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conformance.engines import ENGINES, FACES, Worker, embedded_url

Hire = Callable[..., Any]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """One engine after the other, by name."""
    return str(request.param)


@pytest.fixture(params=["redis", "memory"])
def url(request: pytest.FixtureRequest) -> str:
    """A real Redis, then the embedded one; empty."""
    return embedded_url() if request.param == "memory" else str(request.getfixturevalue("redis_url"))


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Blocking queues, then asyncio queues."""
    face = FACES[request.param]()
    yield face
    face.close()


@pytest.fixture
def hire(engine: str, face: Any, url: str) -> Iterator[Hire]:
    """`hire(**options)` gives a worker of the engine, with connections of its own."""
    with ExitStack() as ends:

        def hire(**options: Any) -> Worker:
            worker = ENGINES[engine](face, url, **options)
            ends.callback(worker.close)
            return worker

        yield hire


@pytest.fixture
def worker(hire: Hire) -> Worker:
    """A worker."""
    return hire()


@pytest.fixture
def another(hire: Hire, worker: Worker) -> Worker:
    """Another worker at the same queue."""
    return hire()
