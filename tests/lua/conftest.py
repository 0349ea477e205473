"""The two Redises that every script must run on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from delayq.broker.transport.executor import Executor, open_executor
from delayq.options import read_settings
from tests.support import tables

_names = (f"memory://lua-{number}" for number in itertools.count())


@pytest.fixture(params=["redis", "embedded"])
def executor(request: pytest.FixtureRequest, between_rows: list[Callable[[], object]]) -> Iterator[Executor]:
    """An executor on an empty Redis: a real one, and the embedded one."""
    # An embedded server each: an error within Lua can spoil it for later scripts.
    url = request.getfixturevalue("redis_url") if request.param == "redis" else next(_names)
    if request.param.endswith("sample"):
        request.node.stash[tables.SAMPLE] = 5
    opened = open_executor({"url": url}, read_settings({}))
    between_rows.append(opened.client.flushall)
    yield opened
    opened.close()


@pytest.fixture
def real_executor(redis_url: str, between_rows: list[Callable[[], object]]) -> Iterator[Executor]:
    """An executor on an empty real Redis."""
    opened = open_executor({"url": redis_url}, read_settings({}))
    between_rows.append(opened.client.flushall)
    yield opened
    opened.close()
