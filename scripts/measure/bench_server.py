"""The Redis server of the measurements, which is emptied before each one, and functions that time work."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import redis

from delayq.broker.calls import Calls
from delayq.broker.keys import Keys
from delayq.queue.server_check import NEW_SCHEMA
from delayq.testing.redis_server import RedisServer, find_program
from measure.raw import AHEAD, BATCH, PAYLOAD, Raw, batches

QUEUE = "bench"
TEXT = PAYLOAD[1:-1].decode()
"""The payload as delayq gets it."""

A = TypeVar("A")
B = TypeVar("B")


class BenchServer:
    """A server, the calls of the measured queue, and a raw connection."""

    def __init__(self, path: str, scale: float = 1.0) -> None:
        """Measure on the server at a unix socket, with message counts multiplied by `scale`."""
        self.path = path
        self.url = f"unix://{path}"
        self.scale = scale
        self.counted = False
        """Whether only what is counted is to be measured, such as commands."""
        self.turn = 0
        """The round, from 0."""
        self.client = redis.Redis.from_url(self.url, socket_timeout=60)  # emptying a full server takes seconds
        self.raw = Raw(path)
        self.raw.load_scripts()
        self.calls = self.calls_of(QUEUE)

    @staticmethod
    def calls_of(queue: str) -> Calls:
        """Return the calls of a queue."""
        return Calls(Keys.of("delayq", queue))

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
        self.raw.close()

    def many(self, n: int) -> int:
        """Return a scaled count of messages, in whole batches."""
        return max(BATCH, int(n * self.scale) // BATCH * BATCH)

    def empty(self) -> None:
        """Delete all data, and make the measured queue as its opening does; scripts stay loaded."""
        self.client.flushall()
        self.client.hset(self.calls.keys.meta, "schema", NEW_SCHEMA)

    def fill(self, n: int, due: str | int = AHEAD) -> None:
        """Empty the server and send `n` messages over the raw connection."""
        self.empty()
        self.raw.stream(batches(self.calls, n, due))

    def used_memory(self) -> int:
        """Return the bytes that the server uses, once it has freed what was unlinked."""
        while (found := self.client.info("memory"))["lazyfree_pending_objects"]:
            time.sleep(0.01)
        return int(found["used_memory"])

    def compare(self, ours: Callable[[], A], other: Callable[[], B]) -> tuple[A, B]:
        """Measure two things one after the other; the order alternates between rounds."""
        if self.turn % 2:
            mine = ours()
            return mine, other()
        theirs = other()
        return ours(), theirs


def rate_of(n: int, work: Callable[[], object]) -> float:
    """Return how many per second were done."""
    return n / seconds_of(work)


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long work takes; garbage of earlier work is collected first."""
    gc.collect()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@contextmanager
def throwaway_server() -> Iterator[str]:
    """Run a `redis-server` for the measurements; yield the path of its socket."""
    if find_program() is None:
        sys.exit("bench: no redis-server on PATH: install one")
    with RedisServer() as server:
        yield urlsplit(server.url).path


def main_thread_seconds(client: redis.Redis) -> float:
    """Return the CPU time of the server's main thread so far, system calls included."""
    cpu: dict[str, float] = client.info("cpu")
    return cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"]


def client_commands(client: redis.Redis) -> int:
    """Count the commands sent by clients, of the kinds that scripts do not call."""
    stats: dict[str, Any] = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval", "blpop"))


def all_commands(client: redis.Redis) -> int:
    """Count the commands run so far, those inside scripts included, without the INFO that reads the count."""
    stats: dict[str, Any] = client.info("commandstats")
    return sum(command["calls"] for name, command in stats.items() if name != "cmdstat_info")
