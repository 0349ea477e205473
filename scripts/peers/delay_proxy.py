"""A TCP proxy that delays everything in both directions, as a network does.

with DelayProxy(server.url, 0.005) as proxy:
    client = redis.Redis.from_url(proxy.url)  # 10 ms a round trip
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

CHUNK = 1 << 16


class DelayProxy:
    """Listens on 127.0.0.1 and forwards to the Redis at a TCP URL, `delay` seconds late each way."""

    def __init__(self, url: str, delay: float) -> None:
        self._target = urlsplit(url)
        self._delay = delay
        self._ready: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="delay-proxy", daemon=True)

    @property
    def url(self) -> str:
        """The URL of the Redis through the proxy."""
        return self._target._replace(netloc=f"127.0.0.1:{self._ready.result()[0]}").geturl()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        _, loop, ended = self._ready.result()
        loop.call_soon_threadsafe(ended.set)
        self._thread.join()

    async def _serve(self) -> None:
        ended = asyncio.Event()
        try:
            server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        except OSError as error:
            self._ready.set_exception(error)
            return
        self._ready.set_result((server.sockets[0].getsockname()[1], asyncio.get_running_loop(), ended))
        await ended.wait()  # the end of the loop cancels what is open
        server.close()

    async def _connect(self, up: asyncio.StreamReader, down: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            from_server, to_server = await asyncio.open_connection(self._target.hostname, self._target.port)
            await asyncio.gather(self._forward(up, to_server), self._forward(from_server, down))

    async def _forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await source.read(CHUNK):
                loop.call_later(self._delay, target.write, data)
            await asyncio.sleep(self._delay)
            target.close()
        except (OSError, asyncio.CancelledError):
            target.transport.abort()
            raise
