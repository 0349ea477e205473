"""The Redis of the demos: the given one, else a temporary `redis-server`, else one inside this process."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from delayq.broker.keys import Keys
from delayq.broker.transport.executor import open_executor
from delayq.options import read_settings
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.server_check import removal, server_info
from delayq.testing.redis_server import RedisServer, find_program
from delayq.values.times import Duration


class DemoServer(NamedTuple):
    """A Redis to run on."""

    url: str
    label: str  # without the password
    embedded: bool = False


@contextmanager
def open_server(url: str | None, *, timeout: Duration = 5) -> Iterator[DemoServer]:
    """Yield the Redis at `url`, which must reply in time; without one a temporary server, or an embedded one."""
    if url and not url.startswith("memory://"):
        version, parts = _version(url, timeout), urlsplit(url)  # in this order: connecting checks the URL
        where = f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else parts.path
        yield DemoServer(url, f"redis {version} at {where}")
    elif not url and find_program():
        with RedisServer() as own:
            yield DemoServer(own.url, f"a temporary redis-server {_version(own.url, timeout)}")
    else:
        label = "memory://, embedded in this process" + ("" if url else ": no redis-server on PATH")
        yield DemoServer(f"memory://delayq-demo-{secrets.token_hex(4)}", label, embedded=True)


def _version(url: str, timeout: Duration) -> str:
    with closing(open_executor({"url": url}, read_settings({"deadline": timeout}))) as executor:
        return executor.call(server_info()).get("redis_version", "")


def remove_queue(url: str, queue: DelayQueue[Any]) -> None:
    """Delete everything of a queue from the server, and close it."""
    with closing(open_executor({"url": url}, read_settings({}))) as executor:
        executor.run(removal(Keys.of(queue.prefix, queue.name), queue.prefix, queue.name))
    queue.close()
