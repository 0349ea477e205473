"""A worker of 1,000 queues: what it asks of Redis while it is idle, its start, its memory, and how late it delivers.

The lateness is compared with that of a worker of one queue, with as many messages in the same round: the least of a few
times, since a p99 of milliseconds is noisy.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import redis

from delayq import DelayQueue, NewMessage, Worker
from delayq.cli.worker.worker import resident_bytes
from measure.bench_server import TEXT, BenchServer, all_commands, client_commands
from measure.figure import BYTES, MILLISECONDS, NEVER, NUMBER, Figure, Goal, Measurement, Reading, at_most

QUEUES = 1000
IDLE = 10.0
"""Seconds for which the commands of an idle worker are counted: one cycle of all that it does from time to time."""
PER_SECOND = 500
SECONDS = 5
TRIES = 3
TWICE = 2.0
AFTER = 3.0
"""Seconds from the first send until the first is due: time to send them all."""
TIMEOUT = 60
LATER = "7d"


class _Serving:
    """A worker of many queues whose callbacks note how late they are."""

    def __init__(self, server: BenchServer, count: int) -> None:
        server.empty()
        self.late: list[float] = []
        gc.collect()
        before = resident_bytes()
        self.queues: list[DelayQueue[Any]] = [
            DelayQueue(f"tenant-{number}", redis=server.client, callback=self._note) for number in range(count)
        ]
        self.worker = Worker(dict.fromkeys(self.queues, 1), concurrency=10)
        began = time.monotonic()
        self.worker.start_consume()
        self.start = 1000 * (time.monotonic() - began)
        _wait_until(lambda: _calls(server, "exists") > 0)
        self.memory = (resident_bytes() - before) / count

    def _note(self, message: Any) -> None:
        self.late.append(1000 * (time.time() - message.due.timestamp()))

    def close(self) -> None:
        self.worker.stop_consume()

    def lateness(self) -> list[float]:
        """Send messages that become due evenly, spread over all queues; return how late each was."""
        n = PER_SECOND * SECONDS
        self.late.clear()
        first = datetime.now(UTC) + timedelta(seconds=AFTER)
        messages: dict[int, list[NewMessage[str]]] = {}
        for number in range(n):
            message = NewMessage(TEXT, at=first + timedelta(seconds=number / PER_SECOND))
            messages.setdefault(number % len(self.queues), []).append(message)
        for number, some in messages.items():
            self.queues[number].send_many(some)
        _wait_until(lambda: len(self.late) >= n)
        return sorted(self.late)


def _calls(server: BenchServer, name: str) -> int:
    return int(server.client.info("commandstats").get(f"cmdstat_{name}", {"calls": 0})["calls"])


def _is_quiet(server: BenchServer) -> bool:
    """Return whether no script runs within a second: all queues are open, and were looked at."""
    before = _calls(server, "evalsha")
    time.sleep(1)
    return _calls(server, "evalsha") == before


def _wait_until(condition: Any) -> None:
    end = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {TIMEOUT} s")
        time.sleep(0.02)


def _a_second(server: BenchServer, count: Callable[[redis.Redis], int]) -> float:
    """Return the commands per second of an idle worker."""
    before, began = count(server.client), time.monotonic()
    time.sleep(IDLE)
    return (count(server.client) - before) / (time.monotonic() - began)


def thousand(server: BenchServer) -> Iterator[Reading]:
    """Idle commands, start, memory and lateness of 1,000 queues."""
    late: dict[int, list[list[float]]] = {}
    for count in (1, QUEUES):
        serving = _Serving(server, count)
        try:
            if count == QUEUES:
                yield Reading("queues_start", serving.start)
                if not server.turn:  # later rounds use the memory of the first again
                    yield Reading("queues_memory", serving.memory)
                _wait_until(lambda: _is_quiet(server))
                yield Reading("queues_idle", _a_second(server, all_commands))
                for queue in serving.queues:
                    queue.send_delay_msg(TEXT, LATER)
                _wait_until(lambda: _calls(server, "blpop") >= QUEUES)
                # Those within scripts do not count, which leaves out 7 plain ones in 10 s.
                yield Reading("queues_idle_later", _a_second(server, client_commands))
            late[count] = [serving.lateness() for _ in range(TRIES)]
        finally:
            serving.close()
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        of_many, of_one = (min(one[int(len(one) * share)] for one in late[count]) for count in (QUEUES, 1))
        yield Reading(f"queues_{name}", of_many, of_one)
    yield Reading("queues_early", sum(value < 0 for one in late[QUEUES] for value in one))


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    twice = Goal("≤ 2 times one queue", lambda figure: figure.ratio is not None and figure.ratio <= TWICE)
    late = f"at {PER_SECOND} due/s in 1,000 queues of one worker"
    figures = [
        Figure("queues_start", "start of a worker of 1,000 queues", at_most(1000, MILLISECONDS), MILLISECONDS),
        Figure("queues_memory", "memory of a queue in a worker of 1,000", None, BYTES),
        Figure("queues_idle", "commands a second, worker of 1,000 empty queues", at_most(50), NUMBER),
        Figure("queues_idle_later", "commands a second, 1,000 queues with messages for later", at_most(50), NUMBER),
        Figure("queues_p50", f"lateness p50 {late}", None, MILLISECONDS, "one queue", cost=True),
        Figure("queues_p99", f"lateness p99 {late}", twice, MILLISECONDS, "one queue", cost=True),
        Figure("queues_early", f"delivered early {late}", NEVER, NUMBER),
    ]
    return [Measurement("many_queues", thousand, figures)]
