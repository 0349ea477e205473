"""Executors and a breakable network, for the tests of the blocking and the asyncio executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from delayq.broker.calls import Calls
from delayq.broker.keys import Keys
from delayq.broker.scripts import names, script
from delayq.broker.transport import protocol
from tests.support.executors import Asyncio, Blocking
from tests.support.faulty_proxy import FaultyProxy

OpenExecutor = Callable[..., Blocking]


@pytest.fixture
def calls() -> Calls:
    """The calls of a queue."""
    return Calls(Keys.of("delayq", "unit"))


@pytest.fixture(params=[Blocking, Asyncio], ids=["blocking", "asyncio"])
def open_executor(request: pytest.FixtureRequest) -> Iterator[OpenExecutor]:
    """`open_executor(url, **settings)` opens a blocking or an asyncio executor."""
    with ExitStack() as opened:

        def open_(url: str, **settings: Any) -> Blocking:
            executor = request.param({"url": url}, **settings)
            opened.callback(executor.close)
            return executor

        yield open_


@pytest.fixture
def proxy(redis_url: str) -> Iterator[FaultyProxy]:
    """A proxy before an empty Redis."""
    with FaultyProxy(redis_url) as proxy:
        yield proxy


@pytest.fixture
def loaded_scripts(redis_client: redis.Redis) -> None:
    """Load every script: a script that is not loaded yet runs after the rest of its round trip."""
    for name in names():
        redis_client.script_load(script(name).text)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make retries of lost calls almost immediate."""
    monkeypatch.setattr(protocol, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(protocol, "_MAX_PAUSE", 0.002)
