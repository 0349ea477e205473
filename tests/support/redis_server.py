"""The throwaway servers of the package, with a client of redis-py for what a test does by hand."""

from __future__ import annotations

import re
import threading
from functools import cache

import redis

from delayq.testing import redis_server
from delayq.worker.wakeup import LISTENER
from tests.support.processes import run


class RedisServer(redis_server.RedisServer):
    """See `delayq.testing.redis_server.RedisServer`."""

    def client(self) -> redis.Redis:
        """Return a new client that answers in bytes; its owner closes it."""
        return redis.Redis.from_url(self.url)


@cache
def server_version() -> tuple[int, ...]:
    """Return the version of Redis that the `redis-server` on PATH is compatible with: (7, 0, 15)."""
    told = run([redis_server.find_program() or "redis-server", "--version"], capture_output=True, check=True)
    found = re.search(rb"v=([\d.]+)", told.stdout)
    assert found, told.stdout
    return tuple(int(part) for part in found[1].split(b"."))


def empty(client: redis.Redis) -> None:
    """Delete everything on a server that is only this process's.

    First unblock what waits for a wake-up, or for an entry of a stream: a consumer that is closed does so for up to a
    second, and would take it. Redis 6.2 leaves it waiting when the stream is deleted.
    """
    if any(one.name == LISTENER for one in threading.enumerate()):
        for waiting in client.client_list():
            if waiting["cmd"] in ("blpop", "xreadgroup"):
                client.client_unblock(waiting["id"])
    client.flushall()
