"""The kit's own fixtures, on the embedded Redis and on a real one."""

from __future__ import annotations

import pytest

# As pytest loads them in the runs of users: our own go without the plugin, see `addopts`.
from delayq.testing.plugin import (  # noqa: F401
    _delayq_place,
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
