"""A steady flow: messages sent one by one at an even rate, half a second before they are due.

One process sends and one consumes with default options. What a message costs the server is compared with a PING, and
with a SET, through redis-py at the same rate: at a low rate any request costs more, since the server sleeps in between.

    python -m measure.flowing send|consume URL RATE COUNT     one of the processes

The consumer prints "ready", and at the end p50 and p99 of the lateness (ms) and how many were early, as JSON.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import redis

from delayq import DelayQueue
from measure.bench_server import QUEUE, TEXT, BenchServer
from measure.figure import MILLISECONDS, NEVER, NUMBER, Figure, Measurement, Reading, at_most
from measure.ordinary import MICROSECONDS, SETTLED, cost_of
from measure.program import await_ready, read_line, start
from measure.raw import PAYLOAD

AHEAD = 0.5
"""Seconds that messages are sent ahead."""
SECONDS, COUNTED_SECONDS = 8, 3
"""Seconds of the flow, and of one whose commands alone are counted."""
TIMEOUT = 60
MAY_RISE = 0.1
"""How far its counts may rise: how many messages share a turn depends on the machine."""


def at_rate(rate: int, count: int, work: Callable[[], object]) -> None:
    """Do something so many times, so often a second."""
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        work()


def send(url: str, rate: int, count: int) -> None:
    """Send messages that are due soon."""
    with DelayQueue(QUEUE, url=url) as queue:
        at_rate(rate, count, lambda: queue.send_delay_msg(TEXT, AHEAD))


def consume(url: str, rate: int, count: int) -> None:  # noqa: ARG001 - the consumer takes what comes
    """Consume so many messages; print how late they were."""
    late: list[float] = []
    ended = threading.Event()
    with DelayQueue(QUEUE, url=url) as queue:

        @queue.callback
        def note(message: object) -> None:
            late.append(1000 * (time.time() - message.due.timestamp()))
            if len(late) == count:
                ended.set()

        queue.start_consume()
        time.sleep(SETTLED)
        print("ready", flush=True)
        ended.wait(TIMEOUT)
        while queue.counts().living:
            time.sleep(0.1)
        late.sort()
        found = {"p50": late[len(late) // 2], "p99": late[int(len(late) * 0.99)], "early": sum(one < 0 for one in late)}
        print(json.dumps({**found, "delivered": len(late)}), flush=True)
        sys.stdin.read()  # its stop would cost commands


def flow(rate: int, server: BenchServer) -> Iterator[Reading]:
    """Costs and lateness of a message, and what PING and SET cost the server at that rate."""
    server.empty()
    seconds = COUNTED_SECONDS if server.counted else SECONDS if server.scale >= 1 else SECONDS / 2
    name, count = f"flow_{rate}", int(rate * seconds)
    with start("flowing", "consume", server.url, rate, count) as consumer:
        await_ready(consumer)
        found: dict[str, float] = {}

        def work() -> None:
            with start("flowing", "send", server.url, rate, count):
                found.update(json.loads(read_line(consumer)))

        cost = cost_of(server, work)
        consumer.communicate("")
    if found["delivered"] != count:
        raise AssertionError(f"{found['delivered']} of {count} messages were delivered")
    yield Reading(f"{name}_commands", cost.commands / count)
    yield Reading(f"{name}_trips", cost.trips / count)
    if server.counted:
        return
    with redis.Redis.from_url(server.url) as client:
        client.ping()
        ping, bare = (
            1e6 * cost_of(server, partial(at_rate, rate, count, request)).server / count
            for request in (client.ping, lambda: client.set("set", PAYLOAD))
        )
    yield Reading(f"{name}_server", 1e6 * cost.server / count, ping)
    yield Reading(f"{name}_set", bare, ping)
    yield Reading(f"{name}_p50", found["p50"])
    yield Reading(f"{name}_p99", found["p99"])
    yield Reading(f"{name}_early", found["early"])


def _measurement(rate: int, *, commands: float, trips: float, may_rise: float | None = MAY_RISE) -> Measurement:
    """Return the measurement of a rate; its counts may rise by a share, None if the machine decides about them."""
    name, title = f"flow_{rate}", f"steady flow, {rate:,}/s"
    figures = [
        Figure(f"{name}_server", f"{title}: server CPU a message", None, MICROSECONDS, "PING", cost=True),
        Figure(f"{name}_set", f"{title}: server CPU of a SET", None, MICROSECONDS, "PING", cost=True),
        Figure(f"{name}_commands", f"{title}: commands a message", at_most(commands), NUMBER, may_rise=may_rise),
        Figure(f"{name}_trips", f"{title}: round trips a message", at_most(trips), NUMBER, may_rise=may_rise),
        Figure(f"{name}_p50", f"{title}: lateness p50", None, MILLISECONDS),
        Figure(f"{name}_p99", f"{title}: lateness p99", None, MILLISECONDS),
        Figure(f"{name}_early", f"{title}: delivered early", NEVER, NUMBER),
    ]
    return Measurement(name, partial(flow, rate), figures)


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    return [
        _measurement(20, commands=31, trips=3.5),
        _measurement(200, commands=14, trips=1.5),
        _measurement(2_000, commands=10, trips=1.2, may_rise=None),
    ]


if __name__ == "__main__":
    logging.getLogger("delayq").setLevel(logging.ERROR)  # as in `bench.py`
    {"send": send, "consume": consume}[sys.argv[1]](sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
