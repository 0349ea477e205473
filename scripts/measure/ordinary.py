"""The ordinary day: what one message costs the server and the client, alone, in a steady flow and with slow callbacks.

Costs hardly depend on the mood of the machine: CPU time of the server and of this process, commands (those inside
scripts included), and round trips. CPU time is compared with that of as many bare SETs through redis-py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, Self

import redis

from delayq import DelayQueue
from measure.bench_server import QUEUE, TEXT, BenchServer, all_commands
from measure.figure import MILLISECONDS, NUMBER, RATE, Figure, Measurement, Reading, at_most
from measure.raw import PAYLOAD

MICROSECONDS = " µs"
AHEAD = 0.5
"""Seconds that messages of the steady flow are sent ahead."""
FLOW = 200
"""Messages of the steady flow a second."""
FLOW_SECONDS = 10
THREADS = 8
SETTLED = 1.5
"""Seconds until a consumer has finished its first polls."""
IDLE_SETTLED = 8.5
"""Seconds until idle consumers wait for as long as they may."""
OBSERVED = 17.0
"""Seconds that idle consumers are observed."""
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


def cost_of(server: BenchServer, work: Callable[[], object]) -> Cost:
    """Return what work costs, without the three requests that read the cost."""
    before = cost_now(server.client)
    work()
    cost = cost_now(server.client) - before
    return cost._replace(trips=cost.trips - 3)


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
    """Send from eight threads at a time."""
    with DelayQueue(QUEUE, url=server.url) as queue:
        queue.send_delay_msg(TEXT, 3600)
        threads = [threading.Thread(target=_send, args=[queue, n // THREADS, 3600]) for _ in range(THREADS)]

        def work() -> None:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        return cost_of(server, work)


def flow(server: BenchServer, n: int) -> Cost:
    """Send one by one at an even rate, to be delivered soon after."""
    with _Consumer(server) as consumer:

        def work() -> None:
            began = time.monotonic()
            for number in range(n):
                time.sleep(max(0.0, began + number / FLOW - time.monotonic()))
                consumer.queue.send_delay_msg(TEXT, AHEAD)
            consumer.wait(n)

        return cost_of(server, work)


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

    def __init__(self, server: BenchServer) -> None:
        self._done = 0
        self.queue: DelayQueue[Any] = DelayQueue(QUEUE, url=server.url, concurrency=10, callback=self._count)

    def _count(self, _: object) -> None:
        self._done += 1

    def __enter__(self) -> Self:
        self.queue.start_consume()
        time.sleep(SETTLED)
        return self

    def __exit__(self, *_: object) -> None:
        self.queue.close()

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
    server.empty()
    bare = sets(server, n)
    yield Reading(f"{name}_server", 1e6 * cost.server / n, 1e6 * bare.server / n)
    yield Reading(f"{name}_client", 1e6 * cost.client / n, 1e6 * bare.client / n)
    yield Reading(f"{name}_commands", cost.commands / n)
    yield Reading(f"{name}_trips", cost.trips / n)


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


def _measurement(
    name: str, title: str, n: int, work: Callable[[BenchServer, int], Cost], *, commands: float, trips: float
) -> Measurement:
    """Return a measurement with the goals of its commands and round trips a message."""
    figures = [
        Figure(f"{name}_server", f"{title}: server CPU a message", None, MICROSECONDS, "SET", cost=True),
        Figure(f"{name}_client", f"{title}: client CPU a message", None, MICROSECONDS, "SET", cost=True),
        Figure(f"{name}_commands", f"{title}: commands a message", at_most(commands), NUMBER),
        Figure(f"{name}_trips", f"{title}: round trips a message", at_most(trips), NUMBER),
    ]
    return Measurement(name, partial(measured, name, n, work), figures)


def _idle(workers: int, commands: float) -> Measurement:
    title, name = f"{workers} idle worker{'s' * (workers > 1)}", f"idle_{workers}"
    figures = [
        Figure(name, f"{title}: commands", at_most(commands, RATE), RATE),
        Figure(f"{name}_first", f"{title}: lateness of the first of {BURST:,}", at_most(5, MILLISECONDS), MILLISECONDS),
    ]
    return Measurement(name, partial(idle, name, workers), figures)


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""

    def takes(seconds: float) -> Callable[[BenchServer, int], Cost]:
        return partial(callbacks, takes=seconds)

    return [
        _measurement("alone", "send one by one", 5_000, alone, commands=11.1, trips=1.05),
        _measurement("from_threads", f"send from {THREADS} threads", 16_000, from_threads, commands=4.5, trips=0.3),
        _measurement("flow", f"steady flow, {FLOW}/s", FLOW * FLOW_SECONDS, flow, commands=44, trips=3.2),
        _measurement("life", "sent one by one and delivered", 5_000, life, commands=32, trips=2.5),
        _measurement("callbacks_10", "callbacks of 10 ms", 2_000, takes(0.01), commands=8, trips=0.3),
        _measurement("callbacks_1", "callbacks of 1 ms", 10_000, takes(0.001), commands=7, trips=0.3),
        _measurement("callbacks_0", "empty callbacks", 100_000, takes(0.0), commands=1.5, trips=0.01),
        _idle(1, 4),
        _idle(20, 56),  # of these, 22 to 26 are reports: eleven in each, every 10 s
    ]
