"""What the tests of exports and imports share."""

from __future__ import annotations

import pytest

from delayq import DelayQueue


@pytest.fixture
def queue(redis_url):
    with DelayQueue("q", url=redis_url, codec="bytes") as made:
        yield made
