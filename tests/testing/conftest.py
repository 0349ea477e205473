"""The fixtures of `delayq.testing`, on the embedded Redis and on a real one."""

from __future__ import annotations

import pytest

# Pytest loads them for users; here the plugin is disabled, see `addopts`.
from delayq.testing.pytest_plugin import (  # noqa: F401
    _delayq_namespace,
    delayq_async_queue,
    delayq_async_queues,
    delayq_clock,
    delayq_queue,
    delayq_queues,
)


@pytest.fixture(params=["memory", "redis"])
def delayq_url(request):
    """The embedded Redis, then a real one."""
    return "memory://" if request.param == "memory" else request.getfixturevalue("redis_url")
