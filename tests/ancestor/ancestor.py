"""The delay queue that delayq descends from, in Python: its five operations and the commands around them, unchanged.

A transliteration, mistakes included, so that the checker can be shown what it must find. Times are whole seconds. What
the original text leaves open: a payload lives for its delay and an hour, and a delivery without one is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from uuid import uuid4

import redis

PENDING_TO_READY = """
local msgs = redis.call('ZRangeByScore', KEYS[1], '0', ARGV[1])
if (#msgs == 0) then return end
local args2 = {'LPush', KEYS[2]}
for _,v in ipairs(msgs) do
    table.insert(args2, v)
end
redis.call(unpack(args2))
redis.call('ZRemRangeByScore', KEYS[1], '0', ARGV[1])
"""
READY_TO_UNACK = """
local msg = redis.call('RPop', KEYS[1])
if (not msg) then return end
redis.call('ZAdd', KEYS[2], ARGV[1], msg)
return msg
"""
UNACK_TO_RETRY = """
local msgs = redis.call('ZRangeByScore', KEYS[1], '0', ARGV[1])
if (#msgs == 0) then return end
local retryCounts = redis.call('HMGet', KEYS[2], unpack(msgs))
for i,v in ipairs(retryCounts) do
    local k = msgs[i]
    if tonumber(v) > 0 then
        redis.call("HIncrBy", KEYS[2], k, -1)
        redis.call("LPush", KEYS[3], k)
    else
        redis.call("HDel", KEYS[2], k)
        redis.call("SAdd", KEYS[4], k)
    end
end
redis.call('ZRemRangeByScore', KEYS[1], '0', ARGV[1])
"""
PAYLOAD_TTL = 3600
"""Seconds after the due time when a payload expires."""


class NoPayloadError(LookupError):
    """An id was delivered whose payload has expired."""


class Ancestor:
    """One process of the queue; `clock` returns seconds, `callback` is called with an id and a payload."""

    def __init__(
        self,
        client: redis.Redis,
        name: str,
        callback: Callable[[str, bytes], bool],
        clock: Callable[[], float],
        *,
        max_consume_duration: int,
        fetch_limit: int = 100,
        buffer: int = 1,
    ) -> None:
        """`buffer` ids are popped before their callbacks run: one originally, several in later versions."""
        self.client, self.callback_of_user, self.clock = client, callback, clock
        self.max_consume_duration, self.fetch_limit, self.buffer = max_consume_duration, fetch_limit, buffer
        self.pending, self.ready, self.unack = f"{name}:pending", f"{name}:ready", f"{name}:unack"
        self.retry, self.garbage, self.retry_count = f"{name}:retry", f"{name}:garbage", f"{name}:retry:cnt"
        self.payloads = f"{name}:msg:"
        self._pending_to_ready = client.register_script(PENDING_TO_READY)
        self._ready_to_unack = client.register_script(READY_TO_UNACK)
        self._unack_to_retry = client.register_script(UNACK_TO_RETRY)

    def send(self, payload: bytes, at: float, retry_count: int, id: str = "") -> str:
        """Send a message that is due at a time."""
        id = id or str(uuid4())
        self.client.set(self.payloads + id, payload, px=int((at - self.clock() + PAYLOAD_TTL) * 1000))
        self.client.hset(self.retry_count, id, str(retry_count))
        self.client.zadd(self.pending, {id: int(at)})
        return id

    def pending_to_ready(self) -> None:
        self._pending_to_ready(keys=[self.pending, self.ready], args=[self._now])

    def ready_to_unack(self) -> str | None:
        return self._pop(self.ready)

    def retry_to_unack(self) -> str | None:
        return self._pop(self.retry)

    def _pop(self, key: str) -> str | None:
        popped = self._ready_to_unack(keys=[key, self.unack], args=[self._now + self.max_consume_duration])
        return popped.decode() if popped else None

    def unack_to_retry(self) -> None:
        self._unack_to_retry(keys=[self.unack, self.retry_count, self.retry, self.garbage], args=[self._now])

    def garbage_collect(self) -> None:
        ids = [id.decode() for id in self.client.smembers(self.garbage)]
        if not ids:
            return
        self.client.delete(*(self.payloads + id for id in ids))
        self.client.srem(self.garbage, *ids)

    def callback(self, id: str) -> bool:
        payload = self.client.get(self.payloads + id)
        if payload is None:
            raise NoPayloadError(id)
        return self.callback_of_user(id, payload)

    def ack(self, id: str) -> None:
        self.client.zrem(self.unack, id)
        with suppress(redis.ConnectionError):  # "msg key has ttl, ignore result of delete"
            self.client.delete(self.payloads + id)
            self.client.hdel(self.retry_count, id)

    def nack(self, id: str) -> None:
        self.client.zadd(self.unack, {id: self._now})

    def consume(self) -> None:
        """Do what is due once a second."""
        self.pending_to_ready()
        self._consume(self.ready_to_unack)
        self.unack_to_retry()
        self.garbage_collect()
        self._consume(self.retry_to_unack)

    def _consume(self, pop: Callable[[], str | None]) -> None:
        fetched = 0
        while fetched < self.fetch_limit and (ids := self.fetch(pop)):
            fetched += len(ids)
            for id in ids:
                if self.callback(id):
                    self.ack(id)
                else:
                    self.nack(id)

    def fetch(self, pop: Callable[[], str | None]) -> list[str]:
        """Pop ids into the buffer; their leases start here."""
        ids: list[str] = []
        while len(ids) < self.buffer and (id := pop()):
            ids.append(id)
        return ids

    @property
    def _now(self) -> int:
        return int(self.clock())
