"""A queue with something of everything, and a visitor of its dashboard."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from delayq import DelayQueue, Reject
from delayq.web import web_app
from tests.support.browsers import chromium
from tests.support.visitor import Visitor

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session", autouse=True)
def keys_made_once() -> Iterator[None]:
    """Make the key of the same tokens once: it is slow on purpose."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hashlib.scrypt", cache(hashlib.scrypt))
        yield


@pytest.fixture
def queue(redis_url) -> Iterator[DelayQueue[Any]]:
    """The queue `orders`, with its event log on."""
    with DelayQueue("orders", url=redis_url, events=True, nack_delay="1h") as made:
        yield made


@pytest.fixture
def full(queue) -> DelayQueue[Any]:
    """The same with messages that wait, have failed, are dead, or are done and have a result."""

    @queue.callback
    def process(message):
        if message.payload == "reject":
            raise Reject("no such customer")
        if message.payload == "fail":
            raise ValueError("not paid 17 times")
        return {"total": 42}

    queue.send_delay_msg({"order": 1}, "1h", id="waits", headers={"tenant": "acme"}, name="invoice")
    queue.send_delay_msg("done", id="done", retention="1h")
    queue.send_delay_msg("reject", id="rejected")
    queue.send_delay_msg("fail", id="spent", retries=0)
    queue.send_delay_msg("fail", id="failed", retries=3)
    queue.run(burst=True)
    return queue


@pytest.fixture
def visit(redis_url) -> Iterator[Callable[..., Visitor]]:
    """`visit(base=…, client=…, **options)` opens a dashboard with these options of `web_app`."""
    with ExitStack() as stack:

        def open_(*, base: str = "http://localhost", client: str = "127.0.0.1", **options: Any) -> Visitor:
            app = web_app(**{"url": redis_url, **options})
            stack.callback(app.state.site.source.close)
            return Visitor(app, base=base, client=client)

        yield open_


@pytest.fixture
def browser() -> Iterator[Browser]:
    """A Chromium of this test's own, because an open one runs an event loop in this thread."""
    with chromium() as browser:
        yield browser
