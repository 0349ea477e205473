"""A queue with something in every state, and what of it must be the same wherever it has moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import redis

from delayq import DelayQueue, Schedule
from delayq.broker.keys import Keys
from delayq.broker.requests import ScriptCall
from delayq.broker.transport.executor import Executor
from delayq.broker.transport.operation import Wait
from tests.support.waiting import wait_until

PREFIX, NAME = "delayq", "reminders"
HOUR = timedelta(hours=1)
FIELDS = ("retries", "messages", "headers", "attributes", "errors", "successors")
"""The hashes with a field for each message that has it."""
KEPT = {"dead": 1, "done": 1, "completed": 1, "dead_messages": 0, "dead_ids": 0, "results": 0, "gathered": 0} | {
    "schedules": 1,
    "schedule_specs": 0,
    "schedule_states": 0,
    "schedule_labels": 1,
}
"""Structures that move as they are, and whether each is a zset."""


def populate(queue: DelayQueue[Any], each: int = 2) -> None:
    """Put messages into every state but that of a lease, `each` of them."""
    executor, calls = queue.executor, queue.context.calls
    queue.limits.set("slow", running=1)
    queue.limits.set("account:*", in_order=True)
    for n in range(each):
        for ending, options in ENDINGS.items():
            queue.send([ending, n], id=f"{ending}-{n}", headers={"n": str(n)}, **options)
        queue.send("keyed", id=f"backoff-key-{n}", key=f"account:{n}")
    for message in queue.lease(HOUR, n=1000):
        _settle(message)
    for n in range(each):
        queue.dead.redrive(f"rejected-{n}")
        queue.send("expires", id=f"expired-{n}")
        queue.send(n, id=f"group-{n}", collect=10, debounce=HOUR)
        queue.send(n, id=f"group-{n}", collect=10, debounce=HOUR)
    for message in queue.lease(timedelta(milliseconds=100), n=1000):
        if message.id.startswith("rejected"):
            _settle(message)
    wait_until(lambda: executor.call(calls.unack_to_retry()).retried >= each)
    for n in range(each):
        queue.send(f"due {n}", id=f"due-{n}", priority=n, expires=HOUR)
        queue.send(f"slow {n}", id=f"slow-{n}", name="slow")
        queue.send(f"next {n}", id=f"next-{n}", key=f"account:{n}")
    executor.call(calls.pending_to_ready())
    for n in range(each):
        queue.send(f"due later {n}", id=f"unpromoted-{n}")
        queue.send(f"later {n}", delay=HOUR, id=f"later-{n}", retries=n, priority=n, name="mail", unique_for=HOUR)
        queue.schedules.add_many([Schedule(f"nightly-{n}", every=HOUR, payload=n, labels=["night"])])
    queue.send("killed", id="killed", delay=HOUR)
    queue.kill("killed")
    queue.schedules.pause(f"nightly-{each - 1}")


ENDINGS: dict[str, dict[str, Any]] = {
    "backoff": {},
    "garbage": {"retries": 0},
    "acked": {},
    "done": {"unique_after": HOUR},
    "kept": {"retention": HOUR},
    "rejected": {"retries": 2},
}


def _settle(message: Any) -> None:
    ending = message.id.partition("-")[0]
    if ending in ("backoff", "garbage"):
        message.nack(delay=HOUR, error="no such user")
    elif ending == "rejected":
        message.reject("no address")
    else:
        message.ack({"sent": message.id})


def names_in(client: redis.Redis) -> list[str]:
    """Return the queue and its partitions, as far as they have a key."""
    found = {key.decode().partition("{")[2].partition("}")[0] for key in client.scan_iter(f"{PREFIX}:{{{NAME}*")}
    return sorted(found)


def contents(client: redis.Redis) -> dict[str, dict[Any, Any]]:
    """Return all that the queue has, over all partitions and with what is on its way; fails for what is there twice."""
    found: dict[str, dict[Any, Any]] = {name: {} for name in (*FIELDS, *KEPT, "waits")}
    for name in names_in(client):
        for part, entries in _in_one(client, Keys.of(PREFIX, name)).items():
            twice = found[part].keys() & entries.keys()
            assert not twice, f"{part} of {twice} is in {name} and elsewhere"
            found[part] |= entries
    for name in names_in(client):
        _add_moving(client, name, found)
    return found


def _in_one(client: redis.Redis, keys: Keys) -> dict[str, dict[Any, Any]]:
    found: dict[str, dict[Any, Any]] = {part: dict(client.hgetall(getattr(keys, part))) for part in FIELDS}
    for part, is_zset in KEPT.items():
        key = getattr(keys, part)
        found[part] = dict(client.zrange(key, 0, -1, withscores=True)) if is_zset else dict(client.hgetall(key))
    records, pending = client.hgetall(keys.deliveries), dict(client.zrange(keys.pending, 0, -1, withscores=True))
    unack, garbage = dict(client.zrange(keys.unack, 0, -1, withscores=True)), client.smembers(keys.garbage)
    ready = {*client.lrange(keys.ready, 0, -1), *client.lrange(keys.retry, 0, -1)}
    due = ready | {*client.zrange(keys.ranked, 0, -1), *client.zrange(keys.throttled, 0, -1)}
    found["waits"] = {id: _waits(id, records.get(id, b"").decode(), pending, unack, garbage, due) for id in found["messages"]}
    return found


def _waits(id: bytes, record: str, pending: Any, unack: Any, garbage: Any, due: Any) -> tuple[Any, ...]:
    """Return where a message waits, until when, and what its record tells of its attempts."""
    state, at, *attempts = record.split(" ", 5) if record else ("pending", "", "0", "0", "0", "-")
    if state == "leased":
        return "leased", unack[id], attempts
    if state == "backoff":
        return "backoff", int(unack[id]), attempts
    if state == "garbage":
        assert id in garbage
        return "garbage", int(at), attempts
    assert id in (pending if state == "pending" else due), (id, record)
    return "waits", int(pending.get(id, at or 0)), attempts


def _cells(batch: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(batch):
        colon = batch.index(b":", at)
        size = int(batch[at:colon])
        yield batch[colon + 1 : colon + 1 + size]
        at = colon + 1 + size


def _add_moving(client: redis.Redis, source: str, found: dict[str, dict[Any, Any]]) -> None:
    """Add what is in batches that have not arrived."""
    for field, batch in client.hgetall(Keys.of(PREFIX, source).moving).items():
        words = field.decode().split(" ")
        if len(words) != 3 or words[0] in ("order", "from"):
            continue
        kind, target, number = words
        last = client.hget(Keys.of(PREFIX, target).moving, f"from {kind} {source}")
        if last is None or int(last) < int(number):
            _READ[kind](_cells(batch), found)


def _put(found: dict[str, dict[Any, Any]], part: str, name: bytes, value: Any) -> None:
    assert name not in found[part], f"{part} of {name!r} is on its way and elsewhere"
    if value not in (b"", None):
        found[part][name] = value


def _read_messages(cells: Iterator[bytes], found: dict[str, dict[Any, Any]]) -> None:
    for kind in cells:
        id = next(cells)
        if kind == b"reserved":
            _put(found, "done", id, float(next(cells)))
        elif kind == b"result":
            _put(found, "completed", id, float(next(cells)))
            _put(found, "results", id, next(cells))
        else:
            at, record, left, payload, headers, text, error, after, _ = [next(cells) for _ in range(9)]
            assert id not in found["messages"], f"{id!r} is on its way and elsewhere"
            found["messages"][id] = payload
            _put(found, "retries", id, left)
            for part, value in zip(FIELDS[2:], (headers, text, error, after), strict=True):
                _put(found, part, id, value)
            state, _, *attempts = (record or b"pending 0 0 0 0 -").decode().split(" ", 5)
            found["waits"][id] = ("waits" if state == "pending" else state, int(at), attempts)
            for _ in range(int(next(cells))):
                _put(found, "gathered", next(cells), next(cells))


def _read_deaths(cells: Iterator[bytes], found: dict[str, dict[Any, Any]]) -> None:
    for entry in cells:
        _put(found, "dead", entry, float(next(cells)))
        _put(found, "dead_messages", entry, next(cells))
        id, _, token = entry.rpartition(b":")
        known = [*found["dead_ids"].get(id, b"").split(), token]
        found["dead_ids"][id] = b" ".join(sorted(known, key=int))


def _read_schedules(cells: Iterator[bytes], found: dict[str, dict[Any, Any]]) -> None:
    for name in cells:
        at, spec, state = next(cells), next(cells), next(cells)
        _put(found, "schedules", name, float(at) if at else None)
        _put(found, "schedule_specs", name, spec)
        _put(found, "schedule_states", name, state)
        if b'"labels":["night"]' in spec:
            found["schedule_labels"][b"night " + name] = 0.0


_READ = {"messages": _read_messages, "deaths": _read_deaths, "schedules": _read_schedules}


READING = {"HGET", "HMGET", "HKEYS", "HGETALL", "ZSCAN", "HSCAN", "walk", "page", "counts"}
"""Commands and scripts after which nothing has changed."""


def perform(executor: Executor, operation: Any, after_write: Callable[[int], object] = int) -> int:
    """Run an operation call by call; returns how many of them write. `after_write` may end it, as a kill does."""
    writes = 0
    try:
        step = next(operation)
        while True:
            replies = []
            for request in [] if isinstance(step, Wait) else list(step):
                replies.append(executor.call(request))
                if (request.script.name if isinstance(request, ScriptCall) else request.args[0]) not in READING:
                    writes += 1
                    after_write(writes)
            step = operation.send(replies)
    except StopIteration:
        return writes
    finally:
        operation.close()
