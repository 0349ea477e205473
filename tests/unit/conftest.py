"""Executors and a network to break, for the tests of both faces of the executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.resources import files
from typing import Any

import pytest
import redis

from delayq import conversation
from delayq.calls import Calls
from delayq.keys import Keys
from delayq.script import script
from delayq.torture.proxy import Proxy
from tests.support.executors import Asyncio, Blocking

OpenExecutor = Callable[..., Blocking]


@pytest.fixture
def calls() -> Calls:
    """The calls of a queue."""
    return Calls(Keys.of("delayq", "unit"))


@pytest.fixture(params=[Blocking, Asyncio], ids=["blocking", "asyncio"])
def open_executor(request: pytest.FixtureRequest) -> Iterator[OpenExecutor]:
    """`open_executor(url, **settings)` opens an executor of either face."""
    with ExitStack() as opened:

        def open_(url: str, **settings: Any) -> Blocking:
            executor = request.param({"url": url}, **settings)
            opened.callback(executor.close)
            return executor

        yield open_


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    """A proxy before an empty Redis."""
    with Proxy(redis_url) as proxy:
        yield proxy


@pytest.fixture
def taught(redis_client: redis.Redis) -> None:
    """Have the server know every script: one it must be taught first runs after the rest of its round trip."""
    for path in files("delayq").joinpath("lua").iterdir():
        if path.is_file():
            redis_client.script_load(script(path.name.removesuffix(".lua")).text)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have lost calls sent again almost at once."""
    monkeypatch.setattr(conversation, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(conversation, "_LONGEST_PAUSE", 0.002)
