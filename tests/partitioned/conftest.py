"""Queues over four partitions, blocking and asyncio, on an empty Redis or the embedded server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.behaviour.conftest import busy, face, gate, open_queue, url  # noqa: F401 - fixtures

PARTITIONS = 4


@pytest.fixture
def queue(open_queue: Callable[..., Any]) -> Any:  # noqa: F811
    """A queue over four partitions."""
    return open_queue(partitions=PARTITIONS)
