"""The ordinary day: what one message costs the server and the client, alone, in bulk, idle and with slow callbacks.

Costs hardly depend on the mood of the machine: CPU time of the server and of this process, commands (those inside
scripts included), and round trips. CPU time is compared with that of as many bare SETs through redis-py.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, Self

import redis

from delayq import AsyncDelayQueue, DelayQueue, Worker
from measure.bench_server import QUEUE, TEXT, BenchServer, all_commands
from measure.figure import EXACT, MILLISECONDS, NUMBER, RATE, Figure, Measurement, Reading, at_most
from measure.raw import PAYLOAD, claim_and_ack

MICROSECONDS = " µs"
SENDERS = 8
"""Threads or tasks that send at a time."""
CLAIMED = 250
"""Messages that are claimed and settled at a time in bulk."""
SETTLED = 1.5
"""Seconds until a consumer has finished its first polls."""
IDLE_SETTLED = 22.0
"""Seconds until idle consumers wait for as long as they may, and share their looks."""
OBSERVED = 20.0
"""Seconds that idle consumers are observed: two reports of each."""
BURST = 1_000
"""Messages that meet idle consumers, all due at once."""
TIMEOUT = 60


class Cost(NamedTuple):
    """What some work has cost in all."""

    server: float
    """Seconds of CPU time of the server, system calls included."""
    client: float
    """Seconds of CPU time of this process."""
    commands: int
    trips: int
    """Requests that the server has read: a pipeline is read at once."""

    def __sub__(self, before: Cost) -> Cost:
        """Return what was added."""
        added: Any = (now - then for now, then in zip(self, before, strict=True))
        return Cost(*added)


def cost_now(client: redis.Redis) -> Cost:
    """Return the cost of everything so far."""
    cpu, stats = client.info("cpu"), client.info("stats")
    server = cpu["used_cpu_user"] + cpu["used_cpu_sys"]
    return Cost(server, time.process_time(), all_commands(client), stats["total_reads_processed"])


READS = 3
"""Requests that read the cost."""


def cost_of(server: BenchServer, work: Callable[[], object]) -> Cost:
    """Return what work costs, without the requests that read the cost."""
    before = cost_now(server.client)
    work()
    cost = cost_now(server.client) - before
    return cost._replace(trips=cost.trips - READS)


def sets(server: BenchServer, n: int) -> Cost:
    """Return the cost of bare SETs, one by one."""
    with redis.Redis.from_url(server.url) as client:
        client.ping()
        return cost_of(server, lambda: [client.set(f"set-{number}", PAYLOAD) for number in range(n)])


def alone(server: BenchServer, n: int) -> Cost:
    """Send one by one."""
    with DelayQueue(QUEUE, url=server.url) as queue:
        queue.send_delay_msg(TEXT, 3600)
        return cost_of(server, lambda: [queue.send_delay_msg(TEXT, 3600) for _ in range(n)])


def from_threads(server: BenchServer, n: int) -> Cost:
    """Send from several threads at a time."""
    with DelayQueue(QUEUE, url=server.url) as queue:
        queue.send_delay_msg(TEXT, 3600)
        threads = [threading.Thread(target=_send, args=[queue, n // SENDERS, 3600]) for _ in range(SENDERS)]

        def work() -> None:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        return cost_of(server, work)


def from_tasks(server: BenchServer, n: int) -> Cost:
    """Send from several tasks at a time."""

    async def send(queue: AsyncDelayQueue[Any]) -> None:
        for _ in range(n // SENDERS):
            await queue.send_delay_msg(TEXT, 3600)

    async def work() -> Cost:
        async with AsyncDelayQueue(QUEUE, url=server.url) as queue:
            await queue.send_delay_msg(TEXT, 3600)
            before = cost_now(server.client)
            await asyncio.gather(*(send(queue) for _ in range(SENDERS)))
            return cost_now(server.client) - before

    cost = asyncio.run(work())
    return cost._replace(trips=cost.trips - READS)


def one_by_one(server: BenchServer, n: int) -> Cost:
    """Send one after the other has been delivered, beside a consumer of one callback at a time."""
    with _Consumer(server, concurrency=1) as consumer:

        def work() -> None:
            for number in range(n):
                consumer.queue.send_delay_msg(TEXT)
                consumer.wait_for(number + 1)
            consumer.wait(n)

        return cost_of(server, work)


def bulk_send(server: BenchServer, n: int) -> Cost:
    """Send with one call."""
    with DelayQueue(QUEUE, url=server.url) as queue:
        queue.send_delay_msg(TEXT, 3600)
        return cost_of(server, lambda: queue.send_many([TEXT] * n, delay=3600))


def bulk_claim(server: BenchServer, n: int) -> Cost:
    """Claim and settle many at a time, over a bare connection."""
    server.fill(n, 0)
    return cost_of(server, lambda: claim_and_ack(server.raw, server.calls, n, CLAIMED))


def life(server: BenchServer, n: int) -> Cost:
    """Send one by one, due at once, beside a consumer."""
    with _Consumer(server) as consumer:

        def work() -> None:
            _send(consumer.queue, n, 0)
            consumer.wait(n)

        return cost_of(server, work)


def callbacks(server: BenchServer, n: int, *, takes: float) -> Cost:
    """Consume a full queue with callbacks that take so many seconds."""
    with DelayQueue(QUEUE, url=server.url, concurrency=10) as queue:
        queue.send_many([TEXT] * n)
        queue.callback((lambda _: time.sleep(takes)) if takes else (lambda _: None))
        return cost_of(server, partial(queue.run, burst=True))


class _Consumer:
    """A consumer of an empty queue with empty callbacks."""

    def __init__(self, server: BenchServer, *, concurrency: int = 10) -> None:
        self._done = 0
        self._ended = threading.Condition()
        self.queue: DelayQueue[Any] = DelayQueue(QUEUE, url=server.url, concurrency=concurrency, callback=self._count)

    def _count(self, _: object) -> None:
        with self._ended:
            self._done += 1
            self._ended.notify()

    def __enter__(self) -> Self:
        self.queue.start_consume()
        time.sleep(SETTLED)
        return self

    def __exit__(self, *_: object) -> None:
        self.queue.close()

    def wait_for(self, n: int) -> None:
        """Wait until so many have been delivered."""
        with self._ended:
            if not self._ended.wait_for(lambda: self._done >= n, TIMEOUT):
                raise AssertionError(f"{self._done} of {n} messages were delivered")

    def wait(self, n: int) -> None:
        """Wait until all messages are settled."""
        end = time.monotonic() + TIMEOUT
        while self._done < n or self.queue.counts().living:
            if time.monotonic() > end:
                raise AssertionError(f"{self._done} of {n} messages were delivered")
            time.sleep(0.2)


def _send(queue: DelayQueue[Any], n: int, delay: float) -> None:
    for _ in range(n):
        queue.send_delay_msg(TEXT, delay)


def measured(name: str, n: int, work: Callable[[BenchServer, int], Cost], server: BenchServer) -> Iterator[Reading]:
    """The costs of a message, its CPU time compared with that of a SET."""
    server.empty()
    n = server.many(n)
    cost = work(server, n)
    yield Reading(f"{name}_commands", cost.commands / n)
    yield Reading(f"{name}_trips", cost.trips / n)
    if server.counted:
        return
    server.empty()
    bare = sets(server, n)
    yield Reading(f"{name}_server", 1e6 * cost.server / n, 1e6 * bare.server / n)
    yield Reading(f"{name}_client", 1e6 * cost.client / n, 1e6 * bare.client / n)


def idle(name: str, workers: int, server: BenchServer) -> Iterator[Reading]:
    """Commands a second of so many consumers of an empty queue, and how late the first message of a burst is.

    Every script has run before: a server learns each once.
    """
    server.empty()
    late: list[float] = []
    with ExitStack() as queues:
        for _ in range(workers):
            queue = DelayQueue(QUEUE, url=server.url)
            queue.callback(lambda message: late.append(1000 * (time.time() - message.due.timestamp())))
            queues.enter_context(queue).start_consume()
        queue.send_many([TEXT] * 2)
        time.sleep(IDLE_SETTLED)
        late.clear()
        before, began = all_commands(server.client), time.monotonic()
        time.sleep(OBSERVED)
        yield Reading(name, (all_commands(server.client) - before) / (time.monotonic() - began))
        queue.send_many([TEXT] * BURST)
        end = time.monotonic() + TIMEOUT
        while len(late) < BURST and time.monotonic() < end:
            time.sleep(0.01)
    yield Reading(f"{name}_first", late[0])


def idle_queues(name: str, queues: int, server: BenchServer) -> Iterator[Reading]:
    """Commands a second of a worker of so many empty queues."""
    server.empty()
    with redis.Redis.from_url(server.url) as client:
        served = [DelayQueue(f"{QUEUE}-{number}", redis=client, callback=lambda _: None) for number in range(queues)]
        worker = Worker(dict.fromkeys(served, 1))
        worker.start_consume()
        time.sleep(IDLE_SETTLED)
        before, began = all_commands(server.client), time.monotonic()
        time.sleep(OBSERVED)
        yield Reading(name, (all_commands(server.client) - before) / (time.monotonic() - began))
        worker.stop_consume()


def _measurement(
    name: str,
    title: str,
    n: int,
    work: Callable[[BenchServer, int], Cost],
    *,
    commands: float,
    trips: float,
    may_rise: float | None = EXACT,
) -> Measurement:
    """Return a measurement with the goals of its commands and round trips a message.

    These may rise by a share; None if the machine decides how many callbacks end together.
    """
    figures = [
        Figure(f"{name}_server", f"{title}: server CPU a message", None, MICROSECONDS, "SET", cost=True),
        Figure(f"{name}_client", f"{title}: client CPU a message", None, MICROSECONDS, "SET", cost=True),
        Figure(f"{name}_commands", f"{title}: commands a message", at_most(commands), NUMBER, may_rise=may_rise),
        Figure(f"{name}_trips", f"{title}: round trips a message", at_most(trips), NUMBER, may_rise=may_rise),
    ]
    return Measurement(name, partial(measured, name, n, work), figures)


def _idle(workers: int, commands: float) -> Measurement:
    title, name = f"{workers} idle worker{'s' * (workers > 1)}", f"idle_{workers}"
    figures = [
        Figure(name, f"{title}: commands", at_most(commands, RATE), RATE),
        Figure(f"{name}_first", f"{title}: lateness of the first of {BURST:,}", at_most(5, MILLISECONDS), MILLISECONDS),
    ]
    return Measurement(name, partial(idle, name, workers), figures)


def _idle_queues(queues: int, commands: float) -> Measurement:
    name = f"idle_{queues}_queues"
    figures = [Figure(name, f"idle worker of {queues} queues: commands", at_most(commands, RATE), RATE)]
    return Measurement(name, partial(idle_queues, name, queues), figures)


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""

    def takes(seconds: float) -> Callable[[BenchServer, int], Cost]:
        return partial(callbacks, takes=seconds)

    return [
        _measurement("alone", "send one by one", 5_000, alone, commands=7.1, trips=1.05),
        _measurement(
            "from_threads", f"send from {SENDERS} threads", 16_000, from_threads, commands=4, trips=0.3, may_rise=0.25
        ),
        _measurement("from_tasks", f"send from {SENDERS} tasks", 16_000, from_tasks, commands=2, trips=0.15),
        _measurement("one_by_one", "sent and delivered one by one", 5_000, one_by_one, commands=26, trips=3.1),
        _measurement("life", "sent one by one and delivered", 5_000, life, commands=32, trips=2.5, may_rise=None),
        _measurement("bulk_send", "`send_many`", 100_000, bulk_send, commands=0.05, trips=0.01),
        _measurement(
            "bulk_claim", f"claim and ack {CLAIMED} at a time", 100_000, bulk_claim, commands=0.36, trips=0.01
        ),
        _measurement("callbacks_10", "callbacks of 10 ms", 2_000, takes(0.01), commands=8, trips=0.3, may_rise=None),
        _measurement("callbacks_1", "callbacks of 1 ms", 10_000, takes(0.001), commands=7, trips=0.3, may_rise=None),
        _measurement("callbacks_0", "empty callbacks", 100_000, takes(0.0), commands=1.5, trips=0.01),
        _idle(1, 4),
        _idle(20, 25),
        _idle_queues(20, 20),
    ]
