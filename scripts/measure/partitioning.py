"""A queue over partitions, beside a plain one in the same round: on one server, and over three masters of a cluster."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from delayq import DelayQueue
from measure.bench_server import QUEUE, TEXT, BenchServer, all_commands, rate_of
from measure.cluster import BenchCluster, throwaway_cluster
from measure.figure import NUMBER, RATE, Figure, Goal, Measurement, Reading, at_least

PARTITIONS = 16
DELAY = 3600
SLICES = 8
"""Into so many parts a measurement is cut, which take turns with those of the plain queue: the machine changes."""
WAITING = 16_000
"""Messages that wait in each queue before: the first thousand of a partition also cost the growth of its structures."""
IDLE_SETTLED = 22.0
"""Seconds until idle consumers wait for as long as they may."""
OBSERVED = 20.0
MICROSECONDS = " µs"

Work = Callable[[DelayQueue[Any], int], float]


def send_alone(queue: DelayQueue[Any], n: int) -> float:
    """Send messages one by one."""
    return rate_of(n, lambda: [queue.send_delay_msg(TEXT, DELAY) for _ in range(n)])


def send_many(queue: DelayQueue[Any], n: int) -> float:
    """Send messages with one call."""
    return rate_of(n, lambda: queue.send_many([TEXT] * n, DELAY))


def consume(queue: DelayQueue[Any], n: int) -> float:
    """Consume messages with empty callbacks."""
    queue.send_many([TEXT] * n)
    return rate_of(n, lambda: queue.run(burst=True))


WORK: Mapping[str, tuple[Work, int]] = {
    "send": (send_alone, 8_000),
    "many": (send_many, 80_000),
    "consume": (consume, 200_000),
}


def compared(server: BenchServer, work: Work, n: int, partitions: int) -> tuple[float, float]:
    """Return the rates over partitions and of a plain queue, which take turns so that both see the same machine."""
    share, rates = max(100, n // SLICES), {True: 0.0, False: 0.0}
    for turn in range(SLICES):
        for is_spread in (True, False) if (turn + server.turn) % 2 else (False, True):
            server.client.flushall()
            options: Any = {"partitions": partitions} if is_spread else {}
            with DelayQueue(QUEUE, url=server.url, concurrency=10, callback=lambda _: None, **options) as queue:
                queue.send_many([TEXT] * WAITING, DELAY)
                gc.collect()
                rates[is_spread] += share / work(queue, share)
    return share * SLICES / rates[True], share * SLICES / rates[False]


def on_one_server(server: BenchServer) -> Iterator[Reading]:
    """Rates of one partition and of sixteen on one server."""
    for name, (work, n) in WORK.items():
        for partitions in (1, PARTITIONS):
            yield Reading(f"parts_{name}_{partitions}", *compared(server, work, server.many(n), partitions))


def idle(server: BenchServer) -> Iterator[Reading]:
    """Commands a second of an idle consumer."""
    found = []
    for options in ({"partitions": PARTITIONS}, {}):
        server.client.flushall()
        many: Any = options
        with DelayQueue(QUEUE, url=server.url, callback=lambda _: None, **many) as queue:
            queue.start_consume()
            time.sleep(IDLE_SETTLED)
            before, began = all_commands(server.client), time.monotonic()
            time.sleep(OBSERVED)
            found.append((all_commands(server.client) - before) / (time.monotonic() - began))
    spread, plain = found
    yield Reading("parts_idle", spread, plain)


def _cost(cluster: BenchCluster, n: int, options: Any) -> list[float]:
    """Return the seconds of CPU time of each master for sending and consuming messages."""
    cluster.empty()
    with DelayQueue(QUEUE, url=cluster.url, concurrency=10, callback=lambda _: None, **options) as queue:
        queue.open()
        before = cluster.cpu()
        queue.send_many([TEXT] * n)
        queue.run(burst=True)
        return [now - then for now, then in zip(cluster.cpu(), before, strict=True)]


def over_a_cluster(server: BenchServer) -> Iterator[Reading]:
    """Server CPU a message, summed over the nodes, and how evenly they share the messages."""
    n = server.many(40_000)
    with throwaway_cluster() as cluster:
        for options in ({"partitions": PARTITIONS}, {}):  # each script has run before
            _cost(cluster, 1_000, options)
        spread, plain = 0.0, 0.0
        for _ in range(2):
            spread += sum(_cost(cluster, n, {"partitions": PARTITIONS}))
            plain += sum(_cost(cluster, n, {}))
        yield Reading("parts_cpu", 1e6 * spread / (2 * n), 1e6 * plain / (2 * n))
        yield Reading("parts_uneven", _unevenness(cluster, n))
        yield Reading("parts_nodes", max(cluster.shares(QUEUE, PARTITIONS)))


def _unevenness(cluster: BenchCluster, n: int) -> float:
    """Return by how much the fullest or the emptiest partition differs from an even share."""
    cluster.empty()
    with DelayQueue(QUEUE, url=cluster.url, partitions=PARTITIONS) as queue:
        held = Counter(queue.partition_of(one.id).name for one in queue.send_many([TEXT] * n, DELAY))
    return max(abs(count * PARTITIONS / n - 1) for count in held.values())


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    plain = "a plain queue"
    titles = {"send": "lone sends", "many": "`send_many`", "consume": "consuming"}
    goals = {"send": 0.97, "many": 0.85, "consume": 0.85}
    figures = []
    for name, title in titles.items():
        figures += [
            Figure(f"parts_{name}_1", f"{title}, 1 partition", at_least(0.98, plain), RATE, plain),
            Figure(f"parts_{name}_16", f"{title}, 16 partitions", at_least(goals[name], plain), RATE, plain),
        ]
    thrice = Goal("≤ 3 times a plain queue", lambda figure: figure.ratio is not None and figure.ratio <= 3)  # noqa: PLR2004
    little = Goal("≤ 1.15 of a plain queue", lambda figure: figure.ratio is not None and figure.ratio <= 1.15)  # noqa: PLR2004
    even = Goal("≤ 0.1", lambda figure: figure.median <= 0.1)  # noqa: PLR2004
    waiting = Figure("parts_idle", "commands a second, idle worker of 16 partitions", thrice, NUMBER, plain, cost=True)
    cpu = "server CPU a message, all nodes of a cluster together, 16 partitions"
    return [
        Measurement("partitions", on_one_server, figures),
        Measurement("partitions_idle", idle, [waiting], once=True),
        Measurement(
            "partitions_cluster",
            over_a_cluster,
            [
                Figure("parts_cpu", cpu, little, MICROSECONDS, plain, cost=True),
                Figure("parts_uneven", "messages of a partition beside an even share, off by", even, NUMBER),
                Figure("parts_nodes", "partitions of the fullest of 3 nodes beside an even share", None, NUMBER),
            ],
            once=True,
        ),
    ]
