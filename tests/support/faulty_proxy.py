"""The proxy of the torture, with faults that a test needs at one moment.

with FaultyProxy(server.url) as proxy:
    client = redis.Redis.from_url(proxy.url)
    proxy.drop_replies(3)            # the next three scripts run, and their replies are lost with the connection
    proxy.reply(2, "LOADING …")      # the next two get this error from the proxy and never reach Redis
    proxy.freeze()                   # open connections fall silent, until `thaw`; new ones work
    proxy.darken()                   # nothing passes any more, on new connections neither …
    proxy.lighten()                  # … until now: what was withheld is delivered late
    proxy.refuse()                   # nothing listens at the address any more
"""

from __future__ import annotations

import threading
import time

from delayq.testing.torture.disturbing import tcp_proxy
from delayq.testing.torture.disturbing.tcp_proxy import Link, Proxy

POLL = 0.01
"""Seconds between two looks whether a frozen connection is closed."""


class FaultyProxy(Proxy):
    """See `delayq.testing.torture.disturbing.tcp_proxy.Proxy`."""

    def __init__(self, url: str) -> None:
        self._passing = threading.Event()
        self._passing.set()
        self._frozen: list[Link] = []
        self._dropping = 0
        self._replies_left = 0
        self._reply = b""
        super().__init__(url)

    def drop_replies(self, count: int) -> None:
        """Lose the replies to the next `count` requests with scripts, and their connections with them."""
        self._dropping = count

    def reply(self, count: int, error: str) -> None:
        """Reply to every script of the next `count` requests with this error instead of forwarding it."""
        self._reply = f"-{error}\r\n".encode()
        self._replies_left = count

    def freeze(self) -> None:
        """Stop all traffic on the connections that are open now, without closing them."""
        self._frozen = list(self._links)

    def thaw(self) -> None:
        """Forward what frozen connections have withheld, late."""
        self._frozen = []

    def darken(self) -> None:
        """Withhold everything: connections are accepted, but nothing comes through."""
        self._passing.clear()

    def lighten(self) -> None:
        """Forward everything again, including what was withheld."""
        self._passing.set()

    def refuse(self) -> None:
        """Close every connection and stop listening."""
        super().__exit__()

    def __exit__(self, *_: object) -> None:
        self.lighten()
        self.refuse()

    def _up(self, link: Link, data: bytes) -> None:
        self._wait(link)
        scripts = data.count(tcp_proxy.SCRIPT)
        with self._lock:
            if scripts and self._replies_left > 0:
                self._replies_left -= 1
                link.client.sendall(self._reply * scripts)
                return
            if scripts and self._dropping > 0 and not link.doomed:
                self._dropping -= 1
                link.doomed = True
        super()._up(link, data)

    def _down(self, link: Link, data: bytes) -> None:
        self._wait(link)
        super()._down(link, data)

    def _wait(self, link: Link) -> None:
        self._passing.wait()
        while link in self._frozen and not link.closed:
            time.sleep(POLL)
