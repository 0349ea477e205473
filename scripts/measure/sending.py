"""Sending: one by one, from threads and tasks that share a queue object, and many in a call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

from delayq import AsyncDelayQueue, DelayQueue
from measure.figure import Figure, Measurement, Reading, at_least
from measure.raw import batches, sending
from measure.stand import QUEUE, TEXT, Stand, rate_of

SENDERS = 8
"""Threads or tasks that send at a time."""
DELAY = 60


def one_by_one(stand: Stand) -> Iterator[Reading]:
    """Messages a second sent one by one, beside bare round trips of the same calls; then by several senders.

    The round trips are packed beforehand. Beside them stands redis-py's own `evalsha`, which packs as it goes: what the
    client under delayq makes of it.
    """
    n = stand.many(10_000)
    alone, bare = stand.beside(lambda: _one_by_one(stand, n), lambda: _bare(stand, n))
    yield Reading("send", alone, bare)
    yield Reading("send_client", alone, _by_client(stand, n))
    threads = _threads(stand, 2 * n)
    yield Reading("send_threads", threads, alone)
    yield Reading("send_threads_raw", threads, bare)
    tasks = asyncio.run(_tasks(stand, 2 * n))
    yield Reading("send_tasks", tasks, alone)
    yield Reading("send_tasks_raw", tasks, bare)


def _one_by_one(stand: Stand, n: int) -> float:
    stand.empty()
    with DelayQueue(QUEUE, url=stand.url) as queue:
        queue.send_delay_msg(TEXT)
        return rate_of(n, lambda: [queue.send_delay_msg(TEXT, DELAY) for _ in range(n)])


def _bare(stand: Stand, n: int) -> float:
    stand.empty()
    raw = stand.raw
    packed = [raw.pack(sending(stand.calls, [DELAY * 1000])) for _ in range(n)]
    return rate_of(n, lambda: [raw.exchange(one, 1) for one in packed])


def _by_client(stand: Stand, n: int) -> float:
    stand.empty()
    commands = [stand.raw.arguments(sending(stand.calls, [DELAY * 1000])) for _ in range(n)]
    return rate_of(n, lambda: [stand.client.execute_command(*command) for command in commands])


def _threads(stand: Stand, n: int) -> float:
    stand.empty()
    with DelayQueue(QUEUE, url=stand.url) as queue:
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


async def _tasks(stand: Stand, n: int) -> float:
    stand.empty()
    loop = asyncio.get_running_loop()
    async with AsyncDelayQueue(QUEUE, url=stand.url) as queue:
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


def many(stand: Stand) -> Iterator[Reading]:
    """Messages a second by `send_many`, beside the send script in slices of the same size, packed beforehand."""
    n = stand.many(100_000)
    yield Reading("send_many", *stand.beside(lambda: send_many(stand, n), lambda: _bare_many(stand, n)))


def _bare_many(stand: Stand, n: int) -> float:
    stand.empty()
    packed = [stand.raw.pack(call) for call in batches(stand.calls, n)]
    return rate_of(n, lambda: [stand.raw.exchange(one, 1) for one in packed])


def send_many(stand: Stand, n: int, *, logged: bool = False) -> float:
    """Return the messages a second of one call of `send_many`."""
    stand.empty()
    with DelayQueue(QUEUE, url=stand.url, events=logged) as queue:
        queue.send_delay_msg(TEXT)
        payloads = [TEXT] * n
        return rate_of(n, lambda: queue.send_many(payloads, delay=DELAY))


def measurements() -> list[Measurement]:
    """Return what is measured here."""
    client, alone, twice = at_least(0.85, "redis-py"), "one by one", at_least(2, "one by one")
    return [
        Measurement(
            "send",
            one_by_one,
            [
                Figure("send", "send one by one"),
                Figure("send_client", "send one by one, beside redis-py", client, beside="redis-py"),
                Figure("send_threads", "send, 8 threads", twice, beside=alone),
                Figure("send_threads_raw", "send, 8 threads, beside raw"),
                Figure("send_tasks", "send, 8 tasks", twice, beside=alone),
                Figure("send_tasks_raw", "send, 8 tasks, beside raw"),
            ],
        ),
        Measurement("send_many", many, [Figure("send_many", "`send_many`", at_least(0.85))]),
    ]
