"""Depth: how fast sending, promotion and claiming are with 10 k, 1 M and 10 M pending messages.

Three queues on one server take turns, so that a slow minute affects them all. They have their own server, because
emptying it takes long. Pending messages are due at random over a month. New messages are due at the same time; or
scattered, each at its own time, which is the worst case for a sorted set, because it misses the processor's cache.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from delayq import DelayQueue, NewMessage
from delayq.broker.message.ids import new_ids
from delayq.broker.requests import ScriptCall
from measure.bench_server import TEXT, BenchServer, rate_of, throwaway_server
from measure.figure import Figure, LeftOut, Measurement, Reading, at_least
from measure.raw import BATCH, batches, claim_and_ack, packed, sending

MILLION = 1_000_000
SHALLOW = 10_000
NAMES = {"1m": "1 M", "10m": "10 M"}
"""Names of the deep queues."""
NEEDED = 6 << 30
"""Bytes of free memory needed for 11 M messages, which take a little over 4 GB."""
TURNS = 20
MESSAGES = 5000
"""Messages of a turn: so few that the shallow queue stays shallow."""
LOOKUPS = 1000
SENDS = 1000
"""Messages of a turn sent one by one."""
MONTH = 30 * 86_400_000


def depth(server: BenchServer) -> Iterator[Reading]:
    """Messages per second sent, by the send script alone, and through the raw loop, compared with 10 k pending."""
    reason = reason_without_ten_million(server)
    depths = [SHALLOW, server.many(MILLION)] + ([] if reason else [10 * MILLION])
    with throwaway_server() as path:
        own = BenchServer(path, server.scale)
        queues = [_Pending(own, n) for n in depths]
        for turn in range(TURNS):
            order = range(len(queues)) if turn % 2 else reversed(range(len(queues)))
            rates = {at: queues[at].turn() for at in order}
            for at, name in zip(range(1, len(queues)), NAMES, strict=False):
                for kind, rate, shallow in zip(_Rates._fields, rates[at], rates[0], strict=True):
                    yield Reading(f"{kind}_{name}", rate, shallow)
        for queue in queues:
            queue.queue.close()
        own.close()
    if reason:
        raise LeftOut(f"10 M pending: {reason}")


class _Rates(NamedTuple):
    """Messages per second of one turn."""

    send: float
    send_many: float
    scattered: float
    raw: float
    claim: float


class _Pending:
    """A queue with a constant number of pending messages."""

    def __init__(self, server: BenchServer, n: int) -> None:
        """Fill the queue."""
        self._stand = server
        self._random = random.Random(n)  # noqa: S311 - the same due times every time
        self._calls = server.calls_of(f"depth-{n}")
        self._now = int(time.time() * 1000)
        self.queue = DelayQueue(f"depth-{n}", url=server.url)
        server.raw.stream(self._sending() for _ in range(0, n, BATCH))
        self._finish_doubling(n)

    def turn(self) -> _Rates:
        """Send and consume some messages; the number of pending messages stays the same."""
        (due,), dues = self._dues(1), self._dues(MESSAGES)
        many, scattered = self._send_many([due] * MESSAGES), self._send_many(dues)
        return _Rates(self._send(), many, scattered, self._send_raw(), self._claim())

    def _finish_doubling(self, n: int) -> None:
        """Look up keys until the hash tables have finished growing.

        A table that doubles moves an entry with each access. A queue that has been in use for a while has that behind
        it; filled at once, 10 M messages would be measured in the midst of it.
        """
        keys, absent = self._calls.keys, [f"absent-{number}" for number in range(LOOKUPS)]
        for words in (("HMGET", keys.messages), ("HMGET", keys.retries), ("ZMSCORE", keys.pending)):
            lookup = packed(*words, *absent)
            for _ in range(0, n, LOOKUPS):
                self._stand.raw.exchange(lookup, 1)

    def _dues(self, n: int) -> list[int]:
        return [self._now + MONTH + self._random.randrange(MONTH) for _ in range(n)]

    def _sending(self, ids: list[str] | None = None) -> ScriptCall[str]:
        return sending(self._calls, [f"@{due}" for due in self._dues(BATCH)], ids)

    def _send(self) -> float:
        times = [datetime.fromtimestamp(due / 1000, UTC) for due in self._dues(SENDS)]
        sent: list[str] = []
        rate = rate_of(SENDS, lambda: sent.extend(self.queue.send_schedule_msg(TEXT, at).id for at in times))
        self._cancel(sent)
        return rate

    def _send_many(self, dues: list[int]) -> float:
        messages = [NewMessage(TEXT, at=datetime.fromtimestamp(due / 1000, UTC)) for due in dues]
        sent: list[str] = []
        rate = rate_of(MESSAGES, lambda: sent.extend(self.queue.send_many(messages).ids))
        self._cancel(sent)
        return rate

    def _send_raw(self) -> float:
        raw, ids = self._stand.raw, new_ids(MESSAGES)
        packed = [raw.pack(self._sending(ids[first : first + BATCH])) for first in range(0, MESSAGES, BATCH)]
        rate = rate_of(MESSAGES, lambda: [raw.exchange(one, 1) for one in packed])
        self._cancel(ids)
        return rate

    def _cancel(self, ids: list[str]) -> None:
        self._stand.raw.stream(self._calls.cancel(ids[at : at + BATCH]) for at in range(0, len(ids), BATCH))

    def _claim(self) -> float:
        self._stand.raw.stream(batches(self._calls, MESSAGES, 0))
        return rate_of(MESSAGES, lambda: claim_and_ack(self._stand.raw, self._calls, MESSAGES))


def reason_without_ten_million(server: BenchServer) -> str:
    """Return why 10 M messages are impossible here, '' if they are possible."""
    if server.scale < 1:
        return "takes too long for a look"
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return "the system does not tell how much memory is free"
    free = int(text.partition("MemAvailable:")[2].split()[0]) << 10
    return "" if free >= NEEDED else f"needs {NEEDED >> 30} GB of free memory, and {free / (1 << 30):.1f} GB are free"


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    shallow = "at 10 k"
    figures = []
    for name, title in NAMES.items():
        goal = at_least(0.8, shallow) if name == "10m" else None
        figures += [
            Figure(f"send_{name}", f"send one by one, {title} pending", goal, reference_name=shallow),
            Figure(f"send_many_{name}", f"`send_many`, {title} pending", goal, reference_name=shallow),
            Figure(f"scattered_{name}", f"`send_many`, scattered, {title} pending", reference_name=shallow),
            Figure(f"raw_{name}", f"send script alone, scattered, {title} pending", reference_name=shallow),
            Figure(f"claim_{name}", f"promote, claim and ack, {title} pending", goal, reference_name=shallow),
        ]
    return [Measurement("depth", depth, figures, once=True)]
