"""A process that works until it is killed: consuming a stream, or relaying a queue into one."""

from __future__ import annotations

import sys

import redis

from delayq import DelayQueue
from delayq.streams import Relay, StreamQueue


def main() -> None:
    """Do what the arguments say: a URL and `consume` or `relay`."""
    url, work = sys.argv[1:]
    if work == "relay":
        with DelayQueue("reminders", url=url) as queue:
            Relay(queue, "tasks").run()
    with StreamQueue("tasks", url=url, lease="500ms", concurrency=4) as tasks, redis.Redis.from_url(url) as client:
        tasks.callback(lambda message: client.rpush("done", message.payload))
        tasks.run()


main()
