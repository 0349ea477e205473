"""A queue has limits for so many names at most, whether they are set or come from callbacks."""

from __future__ import annotations

import pytest

from delayq.broker.limit_calls import MAX_LIMITS
from delayq.errors import ConfigurationError
from tests.support.scripts import World, calls, deliver, observe, plant

FULL = World(
    limits={f"name:n{number}": f"{number} 1000 1 0 0 - 0 0 0" for number in range(1, MAX_LIMITS + 1)},
    meta={"limited": "starts", "schema": 2},
)


def test_limit_of_one_name_too_many_is_refused(real_executor):
    plant(real_executor, FULL)
    with pytest.raises(ConfigurationError, match="limits for at most 8000 names: remove some"):
        deliver(real_executor, calls.limit("b", places=1))
    assert deliver(real_executor, calls.hold("b", 500), sequence=2) == "0"
    assert observe(real_executor) == FULL


def test_limits_are_read_in_pages(real_executor):
    plant(real_executor, FULL)
    cursor, scopes = "0", set()
    while cursor != "0" or not scopes:
        page = real_executor.call(calls.limits_page(cursor, limit=500))
        cursor, scopes = page.cursor, scopes | {stored.scope for stored in page.limits}
        assert len(page.limits) < 1500
    assert scopes == set(FULL.limits)
