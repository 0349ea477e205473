"""A process that consumes a stream or relays a queue until it is killed or stopped."""

from __future__ import annotations

import asyncio
import signal
import sys

import redis

from delayq import DelayQueue
from delayq.streams import AsyncStreamQueue, Relay, StreamQueue


def main() -> None:
    """Run what the arguments select: a URL, and `consume`, `relay`, `drain` or `drain async`."""
    url, work, *how = sys.argv[1:]
    if work == "drain":
        asyncio.run(drain_async(url)) if how else drain(url)
        return
    if work == "relay":
        with DelayQueue("reminders", url=url) as queue:
            Relay(queue, "tasks").run()
    with StreamQueue("tasks", url=url, lease="500ms", concurrency=4) as tasks, redis.Redis.from_url(url) as client:
        tasks.callback(lambda message: client.rpush("done", message.payload))
        tasks.run()


def drain(url: str) -> None:
    """Consume until SIGTERM, and let the end of the process close the queue."""
    tasks = StreamQueue("tasks", url=url)
    tasks.callback(lambda _: None)
    consuming = tasks.start_consume()
    signal.signal(signal.SIGTERM, lambda *_: consuming.stop())
    print("at work", flush=True)
    consuming.wait()


async def drain_async(url: str) -> None:
    """Consume until SIGTERM."""
    async with AsyncStreamQueue("tasks", url=url) as tasks:
        tasks.callback(lambda _: None)
        consuming = await tasks.start_consume()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consuming.stop)
        print("at work", flush=True)
        await consuming.wait()


main()
