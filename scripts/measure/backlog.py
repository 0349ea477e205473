"""A backlog: with 1 M messages due at once, how long one script keeps the server, and how long another client waits.

A consumer drains some of it, while messages are sent, cancelled, rescheduled, listed and counted, and the doctor looks
at the queue. Then every other script is called with as many ids as delayq ever gives it. What took longest is in the
server's own SLOWLOG.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from delayq import CancelOutcome, DelayQueue, State
from delayq.calls import Calls
from delayq.dead_letter import SLICE as DEAD_AT_ONCE
from delayq.message import COLLECTED_AT_ONCE
from delayq.repair import DEEP, HEAVY
from delayq.script import MOST_IDS, MOST_MOVED, names, script
from delayq.values import Call, Failure, Receipt, Rejection
from measure.figure import MILLISECONDS, Figure, Measurement, Reading, at_most
from measure.pinging import pings
from measure.raw import AHEAD, BATCH, sending
from measure.stand import QUEUE, TEXT, Stand

MESSAGES = 1_000_000
DRAINED = 100_000
SLOWLOG = {"slowlog-log-slower-than": 200, "slowlog-max-len": 100_000}
"""Microseconds from which on a command is logged, and how many are."""
PAGES = 50
"""Pages of each structure that a deep look reads here: whole, it takes some twenty seconds a million."""
PATIENCE = 120


def backlog(stand: Stand) -> Iterator[Reading]:
    """Milliseconds of the longest script, and another client's PING while a consumer drains the backlog."""
    n = stand.many(MESSAGES)
    stand.fill(n, 0)
    with _slowlog(stand) as longest:
        with pings(stand.path) as waited:
            _drain(stand, stand.many(DRAINED))
        _look(stand)
        _settle_many(stand)
    first, *_ = slowest = sorted(longest, key=lambda name: -longest[name])
    note = ", ".join(f"{name} {longest[name]:.1f}" for name in slowest[:3])
    yield Reading("longest_script", longest[first], note=note)
    yield Reading("ping", waited["p99"])
    yield Reading("ping_max", waited["max"])


def _drain(stand: Stand, n: int) -> None:
    """Consume some, and do meanwhile what users do."""
    with DelayQueue(QUEUE, url=stand.url, concurrency=10, callback=lambda _: None) as queue:
        before = queue.counts().living
        consuming = queue.start_consume()
        end = time.monotonic() + PATIENCE
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


def _look(stand: Stand) -> None:
    """Look deeply at some pages of every structure."""
    raw, calls = stand.raw, stand.calls
    for part in DEEP:
        cursor = "0"
        for _ in range(PAGES):
            cursor, ids = raw.call(calls.walk(part, cursor=cursor, limit=HEAVY.get(part, MOST_IDS)))
            for some in (ids[at : at + MOST_MOVED] for at in range(0, len(ids), MOST_MOVED)):
                raw.call(calls.repair(some, mend=False, look=False, retries=3))
            if cursor == "0":
                break
    raw.call(calls.recount(mend=True))
    raw.call(calls.snapshot("", limit=MOST_IDS, cursor="", room=1 << 20))
    raw.call(calls.snapshot("ready retry leased", limit=MOST_IDS, cursor="0"))


def _settle_many(stand: Stand) -> None:
    """Call what settles and steers with as many ids as it ever gets, and delete the queue."""
    raw, calls = stand.raw, stand.calls
    for call in _largest(stand, calls):
        raw.call(call)
    raw.call(calls.purge())


def _largest(stand: Stand, calls: Calls) -> Iterator[Call[Any]]:
    """Yield calls with as many ids as delayq ever gives them, one after the other."""

    def claimed() -> list[Receipt]:
        stand.raw.call(calls.pending_to_ready())
        claim = stand.raw.call(calls.ready_to_unack(MOST_IDS, lease=30_000, holder="raw"))
        return [Receipt(one.id, one.token) for one in claim.deliveries]

    yield sending(calls, [AHEAD] * BATCH)
    held = claimed()
    yield calls.extend(held, lease=30_000)
    for some in (held[:MOST_MOVED], held[MOST_MOVED:]):
        yield calls.release(some)
    yield calls.ack(claimed())
    held = claimed()
    for some in (held[:MOST_MOVED], held[MOST_MOVED:]):
        yield calls.reject([Rejection(*receipt, "no use", "no use at all") for receipt in some])
    yield calls.redrive(_dead(stand), retries=None)
    yield calls.dead_purge(_dead(stand))
    held = claimed()
    stand.client.hset(calls.keys.retries, mapping=dict.fromkeys((id for id, _ in held[:COLLECTED_AT_ONCE]), 0))
    yield calls.nack([Failure(*receipt, 0, "did not work") for receipt in held])
    yield calls.collect_garbage(limit=COLLECTED_AT_ONCE, dead_max=10_000, dead_ttl=AHEAD, slot_ttl=AHEAD)
    time.sleep(0.1)  # until their time is over
    yield calls.unack_to_retry()
    pending = [id.decode() for id in stand.client.zrange(calls.keys.pending, 0, 2 * MOST_IDS - 1)]
    yield calls.reschedule([(id, AHEAD) for id in pending[:MOST_IDS]])
    yield calls.cancel(pending[MOST_IDS:])


def _dead(stand: Stand) -> list[str]:
    return [entry.decode() for entry in stand.client.zrange(stand.calls.keys.dead, 0, DEAD_AT_ONCE - 1)]


@contextmanager
def _slowlog(stand: Stand) -> Iterator[dict[str, float]]:
    """Log slow commands meanwhile; afterwards the dictionary has the longest run of each script in milliseconds."""
    before = {name: stand.client.config_get(name)[name] for name in SLOWLOG}
    for name, value in SLOWLOG.items():
        stand.client.config_set(name, value)
    stand.client.slowlog_reset()
    longest: dict[str, float] = {}
    yield longest
    known = {script(name).sha: name for name in names()}
    for entry in stand.client.slowlog_get(SLOWLOG["slowlog-max-len"]):
        words = entry["command"].split(b" ", 2)
        if words[0].upper() == b"EVALSHA" and words[1] in known:
            name, took = known[words[1]], entry["duration"] / 1000
            longest[name] = max(longest.get(name, 0.0), took)
    for name, value in before.items():
        stand.client.config_set(name, value)
    stand.client.slowlog_reset()  # it takes memory, and what is measured next may be that


def measurements() -> list[Measurement]:
    """Return what is measured here."""
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
