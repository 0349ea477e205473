"""A backlog of 1 M due messages: how long one script blocks the server, and how long another client waits.

A consumer drains some of it while messages are sent, cancelled, rescheduled, listed and counted, and the queue is
examined. Then every other script runs with the maximum number of ids. The longest runs are in the server's SLOWLOG.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from delayq import CancelOutcome, DelayQueue, State
from delayq.broker.batches import batched
from delayq.broker.calls import Calls
from delayq.broker.requests import Failure, Receipt, Rejection, Release, ScriptCall
from delayq.broker.scripts import COLLECT_LIMIT, MAX_IDS, MAX_MOVED, MAX_SETTLED, names, script
from delayq.queue.dead_letter import BATCH as DEAD_AT_ONCE
from delayq.queue.repairing.repair import DEEP, recount_call, repair_call
from delayq.queue.sweeps.stored_messages import snapshot_call
from measure.bench_server import QUEUE, TEXT, BenchServer
from measure.figure import MILLISECONDS, Figure, Measurement, Reading, at_most
from measure.pinging import pings
from measure.raw import AHEAD, BATCH, sending

MESSAGES = 1_000_000
DRAINED = 100_000
SLOWLOG = {"slowlog-log-slower-than": 200, "slowlog-max-len": 100_000}
"""Log commands longer than these microseconds, and this many."""
PAGES = 50
"""Pages of each structure that the deep check reads: a whole one takes about twenty seconds per million."""
TIMEOUT = 120


def backlog(server: BenchServer) -> Iterator[Reading]:
    """Milliseconds of the longest script, and of another client's PING while a consumer drains the backlog."""
    n = server.many(MESSAGES)
    server.fill(n, 0)
    with slowlog(server) as longest:
        with pings(server.path) as waited:
            _drain(server, server.many(DRAINED))
        _examine(server)
        _settle_many(server)
    first, *_ = slowest = sorted(longest, key=lambda name: -longest[name])
    note = ", ".join(f"{name} {longest[name]:.1f}" for name in slowest[:3])
    yield Reading("longest_script", longest[first], note=note)
    yield Reading("ping", waited["p99"])
    yield Reading("ping_max", waited["max"])


def _drain(server: BenchServer, n: int) -> None:
    """Consume some messages, and meanwhile do what users do."""
    with DelayQueue(QUEUE, url=server.url, concurrency=10, callback=lambda _: None) as queue:
        before = queue.counts().living
        consuming = queue.start_consume()
        end = time.monotonic() + TIMEOUT
        sent = 0
        while before + sent - queue.counts().living < n:
            if time.monotonic() > end:
                raise TimeoutError(f"{n} messages were not drained")
            sent += len(queue.send_many([TEXT] * BATCH, delay="1h"))
            for message in queue.list("pending", limit=10).messages:
                queue.reschedule(message.id, "1h")
                queue.get(message.id)
                sent -= queue.cancel(message.id) is CancelOutcome.CANCELLED
            for state in State:
                queue.list(state, limit=1000)
            queue.stats()
        consuming.stop()
        consuming.wait()
        queue.examine()


def _examine(server: BenchServer) -> None:
    """Run a deep check on some pages of every structure."""
    raw, calls = server.raw, server.calls
    for part in DEEP:
        cursor = "0"
        for _ in range(PAGES):
            cursor, ids = raw.call(calls.walk(part, cursor=cursor, limit=MAX_IDS))
            for some in (ids[at : at + MAX_MOVED] for at in range(0, len(ids), MAX_MOVED)):
                raw.call(repair_call(calls, some, fix=False, search=False, retries=3))
            if cursor == "0":
                break
    raw.call(recount_call(calls, fix=True))
    raw.call(snapshot_call(calls, "", limit=MAX_IDS, cursor="", byte_limit=1 << 20))
    raw.call(snapshot_call(calls, "ready retry leased", limit=MAX_IDS, cursor="0"))


def _settle_many(server: BenchServer) -> None:
    """Run the scripts that settle, cancel and reschedule with the maximum number of ids, and delete the queue."""
    raw, calls = server.raw, server.calls
    for call in _largest(server, calls):
        raw.call(call)
    raw.call(calls.purge())


def _largest(server: BenchServer, calls: Calls) -> Iterator[ScriptCall[Any]]:
    """Yield calls with the maximum number of ids."""
    options: dict[str, Any] = {"lease": 30_000, "consumer_id": "raw"}

    def claimed() -> list[Receipt]:
        server.raw.call(calls.pending_to_ready())
        claim = server.raw.call(calls.ready_to_unack(MAX_IDS, **options))
        return [Receipt(one.id, one.token) for one in claim.messages]

    while server.raw.call(calls.ready_to_unack(MAX_IDS, **options)).left:
        pass
    yield calls.pending_to_unack(MAX_IDS, **options)
    yield sending(calls, [AHEAD] * BATCH)
    held = claimed()
    yield calls.extend(held, lease=30_000)
    for some in batched(held, MAX_MOVED):
        yield calls.release([Release(*receipt) for receipt in some])
    for some in batched(claimed(), MAX_SETTLED):
        yield calls.ack(some)
    held = claimed()
    for some in batched(held, MAX_MOVED):
        yield calls.reject([Rejection(*receipt, "no use", "no use at all") for receipt in some])
    yield calls.redrive(_dead(server), retries=None)
    yield calls.dead_purge(_dead(server))
    held = claimed()
    server.client.hset(calls.keys.retries, mapping=dict.fromkeys((id for id, _ in held[:COLLECT_LIMIT]), 0))
    for some in batched(held, MAX_SETTLED):
        yield calls.nack([Failure(*receipt, 0, "did not work") for receipt in some])
    yield calls.collect_garbage(COLLECT_LIMIT, dead_max=10_000, dead_ttl=AHEAD, slot_ttl=AHEAD)
    time.sleep(0.1)  # until they expire
    yield calls.unack_to_retry()
    pending = [id.decode() for id in server.client.zrange(calls.keys.pending, 0, 2 * MAX_IDS - 1)]
    yield calls.reschedule([(id, AHEAD) for id in pending[:MAX_IDS]])
    yield calls.cancel(pending[MAX_IDS:])


def _dead(server: BenchServer) -> list[str]:
    return [entry.decode() for entry in server.client.zrange(server.calls.keys.dead, 0, DEAD_AT_ONCE - 1)]


@contextmanager
def slowlog(server: BenchServer) -> Iterator[dict[str, float]]:
    """Log slow commands during the block; then fill the dictionary with the longest run of each script, in ms."""
    before: dict[str, Any] = {name: server.client.config_get(name)[name] for name in SLOWLOG}
    for name, value in SLOWLOG.items():
        server.client.config_set(name, value)
    server.client.slowlog_reset()
    longest: dict[str, float] = {}
    try:
        yield longest
    finally:
        found: Any = server.client.slowlog_get(SLOWLOG["slowlog-max-len"])
        for name, setting in before.items():
            server.client.config_set(name, setting)
        server.client.slowlog_reset()  # it uses memory, which the next measurement may measure
    known = {script(name).sha: name for name in names()}
    for entry in found:
        words = entry["command"].split(b" ", 2)
        if words[0].upper() == b"EVALSHA" and words[1] in known:
            name, took = known[words[1]], entry["duration"] / 1000
            longest[name] = max(longest.get(name, 0.0), took)


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    return [
        Measurement(
            "backlog",
            backlog,
            [
                Figure("longest_script", "longest script, 1 M due", at_most(10, MILLISECONDS), MILLISECONDS),
                Figure("ping", "another client's PING p99, 1 M due", at_most(20, MILLISECONDS), MILLISECONDS),
                Figure("ping_max", "another client's PING max, 1 M due", None, MILLISECONDS),
            ],
        )
    ]
