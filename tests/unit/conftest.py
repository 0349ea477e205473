"""Executors and a network to break, for the tests of both faces of the executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from delayq import conversation
from delayq.calls import Calls
from delayq.keys import Keys
from tests.support.executors import Asyncio, Blocking
from tests.support.proxy import Proxy

OpenExecutor = Callable[..., Blocking]


@pytest.fixture
def calls() -> Calls:
    """The calls of a queue."""
    return Calls(Keys.of("delayq", "unit"))


@pytest.fixture(params=[Blocking, Asyncio], ids=["blocking", "asyncio"])
def open_executor(request: pytest.FixtureRequest) -> Iterator[OpenExecutor]:
    """`open_executor(url, **settings)` opens an executor of either face; `redis=` is given on as it is."""
    with ExitStack() as opened:

        def open_(url: str | None = None, *, redis: Any = None, **settings: Any) -> Blocking:
            executor = request.param({"redis": redis} if url is None else {"url": url}, **settings)
            opened.callback(executor.close)
            return executor

        yield open_


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    """A proxy before an empty Redis."""
    with Proxy(redis_url) as proxy:
        yield proxy


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have lost calls sent again almost at once."""
    monkeypatch.setattr(conversation, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(conversation, "_LONGEST_PAUSE", 0.002)
