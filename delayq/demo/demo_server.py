"""The Redis the demo runs on: the one it is told, else a throwaway `redis-server`, else one inside this process."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from delayq.clock import Duration
from delayq.config import read_settings
from delayq.executor import open_executor
from delayq.throwaway import RedisServer, find_program
from delayq.values import Command


@dataclass(frozen=True, slots=True)
class Server:
    """A Redis to run on."""

    url: str
    label: str
    """What it is, for people; without a password."""
    embedded: bool = False


@contextmanager
def open_server(url: str | None, *, patience: Duration = 5) -> Iterator[Server]:
    """Yield the Redis at `url`; without one a throwaway server, or an embedded one where there is no redis-server.

    `patience` is how long an answer is waited for.
    """
    if url and not url.startswith("memory://"):
        parts = urlsplit(url)
        where = f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else parts.path
        yield Server(url, f"redis {_version(url, patience)} at {where}")
    elif not url and find_program():
        with RedisServer() as own:
            yield Server(own.url, f"a throwaway redis-server {_version(own.url, patience)}")
    else:
        label = "memory://, embedded in this process" + ("" if url else ": no redis-server on PATH")
        yield Server(f"memory://delayq-demo-{secrets.token_hex(4)}", label, embedded=True)


def _version(url: str, patience: Duration) -> str:
    def parse(answer: bytes) -> str:
        lines = answer.decode("utf-8", "replace").splitlines()
        return next((line.partition(":")[2] for line in lines if line.startswith("redis_version:")), "")

    executor = open_executor({"url": url}, read_settings({"deadline": patience}))
    try:
        return executor.call(Command(("INFO", "server"), parse))
    finally:
        executor.close()
