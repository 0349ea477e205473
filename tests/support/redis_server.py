"""The throwaway servers of the package, with a client of redis-py for what a test does by hand."""

from __future__ import annotations

import redis

from delayq import throwaway


class RedisServer(throwaway.RedisServer):
    """See `delayq.throwaway.RedisServer`."""

    def client(self) -> redis.Redis:
        """Return a new client that answers in bytes; its owner closes it."""
        return redis.Redis.from_url(self.url)
