"""A TCP proxy between clients and Redis that breaks the network on request.

with Proxy(server.url) as proxy:
    client = redis.Redis.from_url(proxy.url)
    proxy.lose(300)    # three hundred scripts run, and their replies are lost with the connections; spread out
    proxy.cut()        # every connection is closed
    proxy.refuse(1.5)  # and each new one too, for so many seconds
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

SCRIPT = b"EVAL"
"""Part of every request that runs a script: EVAL or EVALSHA."""
LOSE_EVERY = (5, 11)
"""`lose` drops one reply in 5 to 11 requests: a consumer's round trip takes three or four."""


class Link:
    """One connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.doomed = False
        """Whether it ends with the next reply, which is lost."""
        self.counts = False
        """Whether that reply is one of those to `lose`."""
        self.closed = False

    def close(self) -> None:
        """Close both ends."""
        self.closed = True
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxy:
    """Listens on 127.0.0.1 and forwards everything to the Redis at `url`, except what it is told to break."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        self._links: list[Link] = []
        self._lock = threading.Lock()
        self._losing = 0
        self._next = 0
        self._refused_until = 0.0
        self._chance = random.Random(0)  # noqa: S311 - spreading, not secrecy
        self.dropped = 0
        """Replies dropped so far."""
        self.connections = 0
        """Connections made so far."""
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @property
    def url(self) -> str:
        """The URL of the Redis through the proxy; database 0 of one on a unix socket."""
        if self._target.scheme == "unix":
            return f"redis://127.0.0.1:{self._port}/0"
        credentials, at, _ = self._target.netloc.rpartition("@")
        return self._target._replace(netloc=f"{credentials}{at}127.0.0.1:{self._port}").geturl()

    def lose(self, count: int) -> None:
        """Lose this many more replies to scripts, spread out so that a consumer makes progress between them."""
        with self._lock:
            self._losing += count

    def cut(self, limit: int | None = None) -> int:
        """Close every connection, or the oldest `limit`; return how many."""
        with self._lock:
            links = [link for link in self._links if not link.closed]
            found = links[:limit]
            self._links = links[len(found) :]
        for link in found:
            link.close()
        return len(found)

    def refuse(self, seconds: float) -> None:
        """Close every connection now, and each new one for this long."""
        self._refused_until = max(self._refused_until, time.monotonic() + seconds)
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                if time.monotonic() < self._refused_until:
                    raise ConnectionRefusedError
                link = Link(client, self._connect())
            except OSError:  # or the server is down
                client.close()
                continue
            self.connections += 1
            with self._lock:
                self._links.append(link)
            threading.Thread(target=self._pump, args=[link, link.client, self._up], daemon=True).start()
            threading.Thread(target=self._pump, args=[link, link.server, self._down], daemon=True).start()

    def _connect(self) -> socket.socket:
        if self._target.scheme != "unix":
            return socket.create_connection((self._target.hostname or "", self._target.port or 6379))
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._target.path)
        return server

    def _pump(self, link: Link, source: socket.socket, forward: Callable[[Link, bytes], None]) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                forward(link, data)
        link.close()
        with self._lock:
            if link.counts:  # the connection ended before the reply
                link.counts = False
                self._losing += 1

    def _up(self, link: Link, data: bytes) -> None:
        """Forward a request, and decide whether its reply is to be lost."""
        with self._lock:
            if SCRIPT in data and not link.doomed:
                self._next -= 1
                if self._losing > 0 and self._next <= 0:
                    self._losing -= 1
                    self._next = self._chance.randint(*LOSE_EVERY)
                    link.doomed = link.counts = True
        link.server.sendall(data)

    def _down(self, link: Link, data: bytes) -> None:
        """Forward a reply; one that is to be lost ends the connection."""
        if link.doomed:
            with self._lock:
                self.dropped += 1
                link.counts = False
            raise ConnectionAbortedError("the reply is lost")
        link.client.sendall(data)
