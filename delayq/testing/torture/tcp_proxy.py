"""A TCP proxy between a client and a Redis, with which the network is broken at will.

with Proxy(server.url) as proxy:
    client = redis.Redis.from_url(proxy.url)
    proxy.drop_replies(3)            # the next three scripts run, and their answers are lost with the connection
    proxy.lose(300)                  # the same for three hundred, but only now and then one
    proxy.answer(2, "LOADING …")     # the next two are answered by the proxy and never reach Redis
    proxy.cut()                      # every connection is closed
    proxy.freeze()                   # open connections fall silent; new ones work
    proxy.darken()                   # nothing passes any more, new connections included …
    proxy.lighten()                  # … until now: what was held back is delivered late
    proxy.refuse()                   # nobody listens at the address any more
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

SCRIPT = b"EVAL"
"""What stands in every request to run a script, of which the server may know the text or not."""
APART = (5, 11)
"""Requests, from and to, of which `lose` takes one: a consumer's turn is some three or four."""


class _Link:
    """One connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.flowing = threading.Event()
        self.flowing.set()
        self.doomed = False
        self.owing = False
        self.closed = False

    def close(self) -> None:
        self.closed = True
        self.flowing.set()
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxy:
    """Listens on 127.0.0.1 and passes everything on to the Redis at `url`, but for what it is told."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        self._links: list[_Link] = []
        self._light = threading.Event()
        self._light.set()
        self._lock = threading.Lock()
        self._dropping = 0
        self._losing = 0
        self._next = 0
        self._chance = random.Random(0)  # noqa: S311 - spreading, not secrecy
        self._answering = 0
        self._answer = b""
        self.dropped = 0
        """Replies dropped so far."""
        self.connections = 0
        """Connections made so far."""
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @property
    def url(self) -> str:
        """The address of the proxy, database 0."""
        return f"redis://127.0.0.1:{self._port}/0"

    def drop_replies(self, count: int) -> None:
        """Lose the replies to the next `count` requests with scripts, and their connections with them."""
        self._dropping = count

    def lose(self, count: int) -> None:
        """Lose so many more replies, but only now and then one: as many come through between as a consumer needs."""
        with self._lock:
            self._losing += count

    def answer(self, count: int, error: str) -> None:
        """Answer every script of the next `count` requests with this error instead of passing it on."""
        self._answer = f"-{error}\r\n".encode()
        self._answering = count

    def cut(self, most: int | None = None) -> int:
        """Close every connection, or so many of the oldest; returns how many."""
        with self._lock:
            links = [link for link in self._links if not link.closed]
            found = links[:most]
            self._links = links[len(found) :]
        for link in found:
            link.close()
        return len(found)

    def freeze(self) -> None:
        """Let the connections that are open now fall silent for ever, without being closed."""
        for link in self._links:
            link.flowing.clear()

    def darken(self) -> None:
        """Hold everything back; connections are accepted, but nothing comes through."""
        self._light.clear()

    def lighten(self) -> None:
        """Let everything through again, what was held back included."""
        self._light.set()

    def refuse(self) -> None:
        """Close every connection and listen no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lighten()
        self.refuse()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                link = _Link(client, self._connect())
            except OSError:  # the server is down
                client.close()
                continue
            self.connections += 1
            with self._lock:
                self._links.append(link)
            threading.Thread(target=self._pump, args=[self._up, link], daemon=True).start()
            threading.Thread(target=self._pump, args=[self._down, link], daemon=True).start()

    def _connect(self) -> socket.socket:
        if self._target.scheme != "unix":
            return socket.create_connection((self._target.hostname or "", self._target.port or 6379))
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._target.path)
        return server

    def _pump(self, direction: Callable[[_Link], None], link: _Link) -> None:
        with suppress(OSError):
            direction(link)
        link.close()
        with self._lock:
            if link.owing:  # there was no reply to lose
                link.owing = False
                self._losing += 1

    def _up(self, link: _Link) -> None:
        while data := link.client.recv(1 << 16):
            self._light.wait()
            link.flowing.wait()
            with self._lock:
                if SCRIPT in data and self._answering > 0:
                    self._answering -= 1
                    link.client.sendall(self._answer * data.count(SCRIPT))
                    continue
                if SCRIPT in data and not link.doomed:
                    self._judge(link)
            link.server.sendall(data)

    def _judge(self, link: _Link) -> None:
        """Decide whether the reply to a request is to be lost."""
        if self._dropping > 0:
            self._dropping -= 1
            link.doomed = True
            return
        self._next -= 1
        if self._losing > 0 and self._next <= 0:
            self._losing -= 1
            self._next = self._chance.randint(*APART)
            link.doomed = link.owing = True

    def _down(self, link: _Link) -> None:
        while data := link.server.recv(1 << 16):
            self._light.wait()
            link.flowing.wait()
            if link.doomed:
                with self._lock:
                    self.dropped += 1
                    link.owing = False
                return
            link.client.sendall(data)
