"""Large payloads: the most time that one script takes if messages have 1 KiB or 1 MiB.

The time is that of the server's main thread, so a busy machine does not change it. A script moves about 1 MiB of
payloads: more or larger messages mean more calls, not longer ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from delayq.broker.requests import Failure, OutgoingTable, Receipt, Rejection, ScriptCall
from delayq.broker.scripts import COLLECT_LIMIT, MAX_IDS, MAX_MOVED
from delayq.queue.dead_letter import BATCH as DEAD_AT_ONCE
from delayq.queue.inspecting.inspector import MAX_READ, PREVIEW
from delayq.queue.sweeps.stored_messages import snapshot_call
from measure.bench_server import BenchServer, main_thread_seconds
from measure.figure import MILLISECONDS, Figure, Measurement, Reading, at_most
from measure.raw import AHEAD

SIZES = {"kib": (1 << 10, 3000), "mib": (1 << 20, 60)}
"""Size of the payloads, and how many messages have one."""
SENT = 1 << 20
"""Bytes of one send."""
LONG = 600_000
"""A lease, ms."""


class TimedCalls:
    """Runs calls, and keeps the longest time of each script, in ms of the server's main thread."""

    def __init__(self, server: BenchServer) -> None:
        self._server = server
        self.longest: dict[str, float] = {}

    def __call__(self, call: ScriptCall[Any]) -> Any:
        """Run a call and return its parsed reply."""
        client = self._server.client
        began = main_thread_seconds(client)
        middle = main_thread_seconds(client)
        reply = self._server.raw.call(call)
        took = main_thread_seconds(client) - middle - (middle - began)  # reading it takes time as well
        self.longest[call.script.name] = max(self.longest.get(call.script.name, 0.0), took * 1000)
        return reply


def large(server: BenchServer) -> Iterator[Reading]:
    """Milliseconds of the longest script with payloads of each size."""
    for name, (size, count) in SIZES.items():
        server.empty()
        run = TimedCalls(server)
        _use(server, run, b"x" * size, [f"m{n}" for n in range(count)])
        slowest = sorted(run.longest, key=lambda script: -run.longest[script])
        note = ", ".join(f"{script} {run.longest[script]:.1f}" for script in slowest[:3])
        yield Reading(f"large_{name}", run.longest[slowest[0]], note=note)
    server.empty()


def _use(server: BenchServer, run: TimedCalls, payload: bytes, ids: list[str]) -> None:
    calls = server.calls
    per_call = min(MAX_IDS, SENT // len(payload))
    for part in (ids[at : at + per_call] for at in range(0, len(ids), per_call)):
        columns: Any = [0] * len(part), [0] * len(part), [payload] * len(part), *[[b""] * len(part)] * 2
        run(calls.send(OutgoingTable(part, *columns), max_length=None))
    for preview in (0, PREVIEW):
        run(calls.page("pending", limit=MAX_READ, cursor="", score="", preview=preview))
    run(snapshot_call(calls, "", limit=MAX_IDS, cursor="", byte_limit=1 << 30))
    run(calls.walk("messages", cursor="0", limit=MAX_IDS))
    held = _claim(server, run)
    run(calls.page("active", limit=MAX_READ, cursor="", score="", preview=PREVIEW))
    _each(run, calls.reject, [Rejection(*receipt, "no use", "") for receipt in held], MAX_MOVED)
    run(calls.page("dead", limit=MAX_READ, cursor="", score="", preview=0))
    run(calls.walk("dead_messages", cursor="0", limit=MAX_IDS))
    _each(run, partial(calls.redrive, retries=None), _dead(server), DEAD_AT_ONCE)
    _each(run, calls.nack, [Failure(*receipt, 0, "") for receipt in _claim(server, run)], MAX_IDS)
    while run(calls.collect_garbage(COLLECT_LIMIT, dead_max=len(ids), dead_ttl=AHEAD, slot_ttl=AHEAD)).left:
        pass
    _each(run, calls.dead_purge, _dead(server), DEAD_AT_ONCE)


def _claim(server: BenchServer, run: TimedCalls) -> list[Receipt]:
    held: list[Receipt] = []
    while run(server.calls.pending_to_ready()).moved:
        pass
    while True:
        claimed = run(server.calls.ready_to_unack(MAX_IDS, lease=LONG, consumer_id="raw"))
        held += [Receipt(one.id, one.token) for one in claimed.messages]
        if not claimed.left:
            return held


def _each(run: TimedCalls, call: Callable[[Iterable[Any]], ScriptCall[str]], items: list[Any], limit: int) -> None:
    while items:
        items = items[len(run(call(items[:limit]))) :]


def _dead(server: BenchServer) -> list[str]:
    return [entry.decode() for entry in server.client.zrange(server.calls.keys.dead, 0, -1)]


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    return [
        Measurement(
            "large",
            large,
            [
                Figure(f"large_{name}", f"longest script, {title} payloads", at_most(10, MILLISECONDS), MILLISECONDS)
                for name, title in (("kib", "1 KiB"), ("mib", "1 MiB"))
            ],
        )
    ]
