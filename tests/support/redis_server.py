"""The throwaway servers of the package, with a client of redis-py for what a test does by hand."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from functools import cache

import redis

from delayq.testing import redis_server
from delayq.worker.drivers.wakeup import LISTENER
from tests.support.processes import guarded, run
from tests.support.waiting import wait_until


class RedisServer(redis_server.RedisServer):
    """See `delayq.testing.redis_server.RedisServer`; this one ends with pytest at the latest, however that ends."""

    def __init__(self, *config: str, tcp: bool = False, env: Mapping[str, str] | None = None) -> None:
        # A title would be written over the environment, by which the guard finds the process.
        super().__init__("--set-proc-title", "no", *config, tcp=tcp, env={**(env or {}), **guarded(lasting=True)})

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
    """Delete everything on a server that is only this process's, when nothing of an earlier test can write to it.

    A consumer that was closed waits for a wake-up for up to a second, and passes on one that it gets. What a connection
    has sent and the server has not read yet, the server forgets with the connection.
    """
    wait_until(lambda: not _listeners() or _unblock(client), message="a consumer of an earlier test still listens")
    client.client_kill_filter(_type="normal", skipme=True)
    client.flushall()


def _listeners() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == LISTENER and not _is_embedded(thread)]


def _is_embedded(thread: threading.Thread) -> bool:
    """Whether a listener waits at an embedded server, which it does for up to a second after its test."""
    (run, *_) = getattr(thread, "_args", None) or [None]  # nothing if it is about to end
    return run is not None and type(run.__self__._executor.client).__module__.startswith("fakeredis")


def _unblock(client: redis.Redis) -> None:
    for waiting in client.client_list():
        if waiting["cmd"] in ("blpop", "xreadgroup"):
            client.client_unblock(waiting["id"])
