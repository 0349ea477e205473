"""Bring a message into a state through the public API; run a test on both kinds of server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.waiting import wait_until

ID = "m"
LIVING = ("pending", "ready", "active", "backoff", "retry")

REPLIES = {"active": "running", "dead": "dead", "gone": "gone", "acked": "gone"}
"""What is answered of a message that does not wait, by its state."""
WAITING = {"pending": 0, "ready": 0, "backoff": 1, "retry": 1}
"""The attempts of a message in each state in which it waits."""

everywhere = pytest.mark.parametrize("url", ["redis", "memory"], indirect=True)
"""Runs a test on a real Redis and on the embedded one."""


def bring(queue: Any, state: str, **options: Any) -> str:
    """Send message "m" and bring it into a state ("gone" and "acked" included); returns its id."""
    _WAYS[state](queue, options)
    found = queue.get(ID)
    assert (found.state if found else "gone") == state.replace("acked", "gone")
    return ID


def _send(queue: Any, options: dict[str, Any]) -> None:
    queue.send_delay_msg(options.pop("payload", "hello"), id=ID, **options)


def _gone(queue: Any, options: dict[str, Any]) -> None:
    pass


def _pending(queue: Any, options: dict[str, Any]) -> None:
    _send(queue, {"delay": 60} | options)


def _ready(queue: Any, options: dict[str, Any]) -> None:
    # An earlier message is claimed in its place; the due message behind it becomes ready.
    queue.send_delay_msg("plug", id="a-plug")
    _send(queue, options)
    _claim(queue, "a-plug").ack()
    if queue.get(ID).state == "pending":  # it became due a moment later
        _claim(queue, ID).release()


def _active(queue: Any, options: dict[str, Any]) -> None:
    _send(queue, options)
    _claim(queue, ID)


def _backoff(queue: Any, options: dict[str, Any]) -> None:
    _send(queue, options)
    _claim(queue, ID).nack(delay=60, error="busy")


def _retry(queue: Any, options: dict[str, Any]) -> None:
    _send(queue, options)
    _claim(queue, ID, "100ms")
    queue.send_delay_msg("plug", id="a-plug")
    wait_until(lambda: queue.stats().at > queue.get(ID).deadline)
    _claim(queue, "a-plug").ack()


def _acked(queue: Any, options: dict[str, Any]) -> None:
    _send(queue, options)
    _claim(queue, ID).ack()


def _dead(queue: Any, options: dict[str, Any]) -> None:
    _send(queue, options)
    _claim(queue, ID).reject("no such user")


def _claim(queue: Any, id: str, lease: str = "60s") -> Any:
    (message,) = queue.lease(lease, n=1, block=5)
    assert message.id == id
    return message


_WAYS: dict[str, Callable[[Any, dict[str, Any]], None]] = {
    "gone": _gone,
    "pending": _pending,
    "ready": _ready,
    "active": _active,
    "backoff": _backoff,
    "retry": _retry,
    "acked": _acked,
    "dead": _dead,
}
