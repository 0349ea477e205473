"""`wake`: at most one wake-up waits, however often it is called."""

from __future__ import annotations

import pytest

from delayq.errors import ServerError
from tests.support.scripts import KEYS, World, calls, observe


def test_wakeup_waits_once_and_is_received_once(executor):
    for _ in range(3):
        assert executor.call(calls.wake()) is True
        assert observe(executor) == World(wake=1)
    assert executor.call(calls.await_wake(0.002)) is True
    assert observe(executor) == World()
    assert executor.call(calls.await_wake(0.002)) is False


def test_wake_returns_1(executor):
    assert executor.client.eval(calls.wake().script.text, 1, KEYS.wake) == 1


def test_key_of_wrong_type_is_refused(executor):
    executor.client.set(KEYS.wake, "a text")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        executor.call(calls.wake())
    assert executor.client.get(KEYS.wake) == b"a text"
