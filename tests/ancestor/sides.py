"""The two queues as processes of a world: the ancestor of delayq, and delayq."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from delayq import DelayQueue
from delayq.broker.calls import Calls
from delayq.broker.context import observed
from delayq.broker.keys import Keys
from delayq.broker.requests import Failure, Outgoing, Receipt, ScriptCall
from delayq.broker.scripts import MAX_IDS
from delayq.broker.transport.executor import open_executor
from delayq.errors import DelayqError
from delayq.options import read_settings
from delayq.testing.torture.final_scan import scan
from delayq.testing.torture.history import CallRecord, ReplyRecord, ScanRecord, digest, now
from delayq.testing.torture.recorded_calls import CallHistory
from tests.ancestor.ancestor import Ancestor
from tests.ancestor.world import LEASE, Process, World

AGE = """
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
    local left = redis.call('PTTL', key) - ARGV[2]
    if left > 0 then redis.call('PEXPIRE', key, left) else redis.call('DEL', key) end
end
"""
DAY = 86_400_000
COUNTED = {"send": "sent", "ack": "acked", "nack": "nacked"}


def payload(id: str) -> bytes:
    return b"payload of " + id.encode()


class RecordedAncestor(Ancestor):
    """The ancestor, recording its history. It has no tokens: in the history they number its deliveries."""

    def __init__(self, process: Ancient, client: redis.Redis) -> None:
        world = process.world
        super().__init__(client, "q", process.called_back, lambda: world.now / 1000, max_consume_duration=LEASE // 1000)
        self.process, self.world, self.write = process, world, process.recorder.write
        self.tokens: dict[str, int] = {}

    def send_all(self, ids: Sequence[str], at: int, retries: int) -> None:
        """Send messages that are due at a time (ms); several in a pipeline, which is not atomic either."""
        self.world.dues |= dict.fromkeys(ids, at)
        columns = {"dues": [at] * len(ids), "retries": [retries] * len(ids)}
        columns["payloads"] = [digest(payload(id)) for id in ids]
        client = self.client
        with self._recorded("send", list(ids), **columns):
            if len(ids) > 1:
                self.client = client.pipeline(transaction=False)
            for id in ids:
                self.send(payload(id), at / 1000, retries, id)
            if len(ids) > 1:
                self.client.execute()
        self.client = client

    def ack(self, id: str) -> None:
        with self._recorded("ack", [id], tokens=[self.tokens[id]]):
            super().ack(id)

    def nack(self, id: str) -> None:
        with self._recorded("nack", [id], tokens=[self.tokens[id]]):
            super().nack(id)

    def _pop(self, key: str) -> str | None:
        world, found = self.world, {}
        with self._recorded("claim", [], found, lease=LEASE):
            if id := super()._pop(key):
                world.deliveries += 1
                self.tokens[id] = world.deliveries
                deadline = (world.now // 1000 + self.max_consume_duration) * 1000
                found |= {"now": world.now, "deadline": deadline, "ids": [id], "tokens": [world.deliveries]}
        return id

    @contextmanager
    def _recorded(self, op: Any, ids: list[str], found: dict[str, Any] | None = None, **columns: Any) -> Iterator[None]:
        number = self.process.recorder.next_call()
        self.write(CallRecord(at=now(), call=number, op=op, ids=ids, **columns))
        try:
            yield
        except redis.ConnectionError as error:
            self.write(ReplyRecord(at=now(), call=number, outcome="unknown", error=str(error)))
            raise
        self.world.counters[COUNTED.get(op, op)] += len(ids)
        self.write(ReplyRecord(at=now(), call=number, statuses="1" * len(ids), **found or {}))


class Ancient(Process):
    """A process of the ancestor."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        client = redis.Redis.from_url(world.url, retry=Retry(NoBackoff(), 0))
        self.client = world.opened.enter_context(client)
        self.wire.attach(client)
        self.queue = RecordedAncestor(self, client)

    def called_back(self, id: str, body: bytes) -> bool:
        assert body == payload(id)
        return self.callback(id, self.queue.tokens[id])

    def send(self, *ids: str, delay: int = 0, retries: int = 3) -> None:
        with suppress(redis.ConnectionError):
            self.queue.send_all(ids, self.world.now + delay, retries)

    def promote(self) -> None:
        self.queue.pending_to_ready()

    def look_after(self) -> None:
        self.queue.unack_to_retry()
        self.queue.garbage_collect()

    def fetch(self, number: int = 1) -> list[str]:
        ids: list[str] = []
        self.queue.buffer = number
        with suppress(redis.ConnectionError):
            ids += self.queue.fetch(self.queue.ready_to_unack)
            self.queue.buffer -= len(ids)
            ids += self.queue.fetch(self.queue.retry_to_unack)
        self.queue.buffer = 1
        return ids

    def run(self, id: str) -> bool:
        return self.queue.callback(id)

    def ack(self, *ids: str) -> None:
        for id in ids:
            self.queue.ack(id)

    def nack(self, id: str) -> None:
        self.queue.nack(id)

    def tick(self) -> None:
        self.queue.consume()

    def beat(self) -> None:
        """Do nothing: the ancestor cannot renew leases."""

    def age(self, ms: int) -> None:
        self.client.eval(AGE, 0, f"{self.queue.payloads}*", ms)

    def scan(self) -> ScanRecord:
        client, queue, dues = self.client, self.queue, self.world.dues
        timed = {"pending": queue.pending, "unack": queue.unack}
        placed = {
            id.decode(): (state, int(score) * 1000)
            for state, key in timed.items()
            for id, score in client.zrange(key, 0, -1, withscores=True)
        }
        for state, key in {"ready": queue.ready, "retry": queue.retry}.items():
            placed |= {id.decode(): (state, dues[id.decode()]) for id in client.lrange(key, 0, -1)}
        messages = {key.decode().removeprefix(queue.payloads) for key in client.keys(f"{queue.payloads}*")}
        counted = {id.decode() for id in client.hkeys(queue.retry_count)}
        left = [f"{id} stands in {placed[id][0]} and has no payload" for id in placed.keys() - messages]
        left += [f"the payload of {id} is in no place" for id in messages - placed.keys()]
        left += [f"the retries of {id} are of no message" for id in counted - placed.keys()]
        return ScanRecord(
            at=now(),
            server=self.world.now,
            living=[(id, *placed[id]) for id in placed.keys() & messages],
            counters=dict(self.world.counters),  # it keeps none, so that this rule cannot be broken
            leftovers=sorted(left),
        )


class Modern(Process):
    """A process of delayq."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        with DelayQueue("q", url=world.url) as queue:
            queue.open()
        self.executor = open_executor({"url": world.url}, read_settings({"deadline": 5}))
        world.opened.callback(self.executor.close)
        self.wire.attach(self.executor.client)
        self.keys = Keys.of("delayq", "q")
        self.history = CallHistory(self.recorder)
        self.calls = observed(Calls(self.keys, clock=lambda: world.now), self.history)
        self.held: dict[str, int] = {}

    def _call(self, call: ScriptCall[Any]) -> Any:
        try:
            return self.executor.call(call)
        except DelayqError as error:
            self.history.failed(error)
            raise

    def send(self, *ids: str, delay: int = 0, retries: int = 3) -> None:
        due = f"@{self.world.now + delay}"
        for first in range(0, len(ids), MAX_IDS):
            out = [Outgoing(id, due, retries, payload(id), b"") for id in ids[first : first + MAX_IDS]]
            self._call(self.calls.send(out, replace=False, max_length=None))

    def promote(self) -> None:
        self._call(self.calls.pending_to_ready())

    def look_after(self) -> None:
        self._call(self.calls.unack_to_retry())
        self._call(self.calls.collect_garbage(limit=MAX_IDS, dead_max=10_000, dead_ttl=30 * DAY, slot_ttl=DAY))

    def fetch(self, number: int = 1) -> list[str]:
        claimed = self._call(self.calls.ready_to_unack(number, lease=LEASE, consumer_id=self.name))
        self.held |= {one.id: one.token for one in claimed.messages}
        return [one.id for one in claimed.messages]

    def run(self, id: str) -> bool:
        return self.callback(id, self.held[id])

    def ack(self, *ids: str) -> None:
        self._call(self.calls.ack([Receipt(id, self.held.pop(id)) for id in ids]))

    def nack(self, id: str) -> None:
        self._call(self.calls.nack([Failure(id, self.held.pop(id), 0, "boom")]))

    def tick(self) -> None:
        self.promote()
        self.look_after()
        while ids := self.fetch(MAX_IDS):
            succeeded = [id for id in ids if self.run(id)]
            if succeeded:
                self.ack(*succeeded)
            for id in set(ids) - set(succeeded):
                self.nack(id)
            self.promote()

    def beat(self) -> None:
        if self.held:
            self._call(self.calls.extend([Receipt(*one) for one in self.held.items()], lease=LEASE))

    def age(self, ms: int) -> None:
        """Do nothing: no key of a message expires."""

    def scan(self) -> ScanRecord:
        return msgspec.structs.replace(scan(self.executor, self.keys, own=True), server=self.world.now)
