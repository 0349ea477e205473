"""Sending: one by one, from threads and tasks that share a queue object, and with `send_many`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

from delayq import AsyncDelayQueue, DelayQueue
from measure.bench_server import QUEUE, TEXT, BenchServer, rate_of
from measure.figure import Figure, Measurement, Reading, at_least
from measure.raw import batches, sending

SENDERS = 8
"""Threads or tasks that send at a time."""
DELAY = 60


def one_by_one(server: BenchServer) -> Iterator[Reading]:
    """Messages per second sent one by one, compared with bare round trips of the same calls; then by several senders.

    The round trips are packed beforehand. The other reference is redis-py's own `evalsha`, the client under delayq,
    which packs on the way.
    """
    n = server.many(10_000)
    alone, bare = server.compare(lambda: _one_by_one(server, n), lambda: _bare(server, n))
    yield Reading("send", alone, bare)
    yield Reading("send_client", alone, _by_client(server, n))
    threads = _threads(server, 2 * n)
    yield Reading("send_threads", threads, alone)
    yield Reading("send_threads_raw", threads, bare)
    tasks = asyncio.run(_tasks(server, 2 * n))
    yield Reading("send_tasks", tasks, alone)
    yield Reading("send_tasks_raw", tasks, bare)


def _one_by_one(server: BenchServer, n: int) -> float:
    server.empty()
    with DelayQueue(QUEUE, url=server.url) as queue:
        queue.send_delay_msg(TEXT)
        return rate_of(n, lambda: [queue.send_delay_msg(TEXT, DELAY) for _ in range(n)])


def _bare(server: BenchServer, n: int) -> float:
    server.empty()
    raw = server.raw
    packed = [raw.pack(sending(server.calls, [DELAY * 1000])) for _ in range(n)]
    return rate_of(n, lambda: [raw.exchange(one, 1) for one in packed])


def _by_client(server: BenchServer, n: int) -> float:
    server.empty()
    commands = [server.raw.arguments(sending(server.calls, [DELAY * 1000])) for _ in range(n)]
    return rate_of(n, lambda: [server.client.execute_command(*command) for command in commands])


def _threads(server: BenchServer, n: int) -> float:
    server.empty()
    with DelayQueue(QUEUE, url=server.url) as queue:
        queue.send_delay_msg(TEXT)

        def send() -> None:
            for _ in range(n // SENDERS):
                queue.send_delay_msg(TEXT, DELAY)

        def work() -> None:
            threads = [threading.Thread(target=send) for _ in range(SENDERS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        rate = rate_of(n // SENDERS * SENDERS, work)
        _check(queue.counts().living, n // SENDERS * SENDERS + 1)
        return rate


async def _tasks(server: BenchServer, n: int) -> float:
    server.empty()
    loop = asyncio.get_running_loop()
    async with AsyncDelayQueue(QUEUE, url=server.url) as queue:
        await queue.send_delay_msg(TEXT)

        async def send() -> None:
            for _ in range(n // SENDERS):
                await queue.send_delay_msg(TEXT, DELAY)

        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for _ in range(SENDERS):
                group.create_task(send())
        took = loop.time() - began
        _check((await queue.counts()).living, n // SENDERS * SENDERS + 1)
        return (n // SENDERS * SENDERS) / took


def _check(found: int, sent: int) -> None:
    if found != sent:
        raise AssertionError(f"{found} of {sent} messages were sent")


def many(server: BenchServer) -> Iterator[Reading]:
    """Messages per second by `send_many`, compared with the send script in equal batches, packed beforehand."""
    n = server.many(100_000)
    yield Reading("send_many", *server.compare(lambda: send_many(server, n), lambda: _bare_many(server, n)))


def _bare_many(server: BenchServer, n: int) -> float:
    server.empty()
    packed = [server.raw.pack(call) for call in batches(server.calls, n)]
    return rate_of(n, lambda: [server.raw.exchange(one, 1) for one in packed])


def send_many(server: BenchServer, n: int, *, logged: bool = False) -> float:
    """Return the messages per second of one call of `send_many`."""
    server.empty()
    with DelayQueue(QUEUE, url=server.url, events=logged) as queue:
        queue.send_delay_msg(TEXT)
        payloads = [TEXT] * n
        return rate_of(n, lambda: queue.send_many(payloads, delay=DELAY))


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    client, alone, twice = at_least(0.85, "redis-py"), "one by one", at_least(2, "one by one")
    return [
        Measurement(
            "send",
            one_by_one,
            [
                Figure("send", "send one by one"),
                Figure("send_client", "send one by one, beside redis-py", client, reference_name="redis-py"),
                Figure("send_threads", "send, 8 threads", twice, reference_name=alone),
                Figure("send_threads_raw", "send, 8 threads, beside raw"),
                Figure("send_tasks", "send, 8 tasks", twice, reference_name=alone),
                Figure("send_tasks_raw", "send, 8 tasks, beside raw"),
            ],
        ),
        Measurement("send_many", many, [Figure("send_many", "`send_many`", at_least(0.85))]),
    ]
