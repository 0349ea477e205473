"""How much a queue over partitions holds and does: computed from what a message costs a server, which it can measure.

    scripts/capacity.py                           the table for 1 to 96 nodes, and the bytes of 10^6 to 10^10 messages
    scripts/capacity.py --payload 500 --nodes 12  of other payloads, and for so many nodes alone
    scripts/capacity.py --measure                 with the costs of this machine, measured on throwaway servers
    scripts/capacity.py --check                   compare it with 1, 2 and 6 nodes here; exits with 1 if it is off

A node is one core: Redis carries commands out in one thread. What a node does in a second is what fits into its core;
several nodes do that many times as much, since no message needs two of them. How many machines those nodes need, which
the network is, and what the workers can take beside them, is not part of it.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from measure.bench_server import QUEUE
from measure.cluster import BenchCluster, throwaway_cluster

from delayq import DelayQueue

ROOT = Path(__file__).resolve().parent.parent
NODES = (1, 2, 3, 6, 12, 24, 48, 96)
WAITING = tuple(10**power for power in range(6, 11))
PARTITIONS = 24
"""Over so many a queue is spread here, on one node, too: the more of them, the fewer messages does a claim take."""
MESSAGES, TRIES = 20_000, 3
SMALL, LARGE = 64, 1024
"""Bytes of the payloads from which the costs are measured: what is between them and beyond is on a straight line."""
WITHIN = 0.15
USED = 0.7
"""The share of a core to plan with: beyond it, waiting times grow."""
MEBIBYTE, GIBIBYTE = 1 << 20, 1 << 30


class Costs(NamedTuple):
    """What a message costs a server."""

    send: float
    """Microseconds of its core to store it, by `send_many`."""
    deliver: float
    """Microseconds to claim it and to settle it."""
    waiting: float
    """Bytes while it waits, without its payload."""
    byte: float
    """Bytes for each byte of its payload."""

    @property
    def life(self) -> float:
        """Microseconds of a message from its send to its settlement."""
        return self.send + self.deliver

    def rate(self, nodes: int) -> float:
        """Return how many messages a second so many nodes send, deliver and settle at most."""
        return nodes * 1e6 / self.life

    def bytes(self, messages: int, payload: int) -> float:
        """Return how many bytes so many waiting messages of a payload size need, over all nodes."""
        return messages * (self.waiting + self.byte * payload)


STORED = Costs(send=7.1, deliver=23.8, waiting=240.0, byte=1.07)
"""Those of a core of the machine that measured the handbook's figures; see `--measure`."""


def cpu_of(cluster: BenchCluster, work: Any) -> float:
    """Return the seconds of CPU time, of all nodes, that work takes."""
    before = sum(cluster.cpu())
    work()
    return sum(cluster.cpu()) - before


class Run(NamedTuple):
    """What so many messages took on so many nodes."""

    messages: int
    send: float
    deliver: float
    memory: float
    """Bytes that they added while they waited."""


def run(cluster: BenchCluster, messages: int, payload: int) -> Run:
    """Send and consume messages a few times; returns the least of each: what else a machine does only adds."""
    return Run(messages, *map(min, zip(*(_run_once(cluster, messages, payload) for _ in range(TRIES)), strict=True)))


def _run_once(cluster: BenchCluster, messages: int, payload: int) -> tuple[float, float, float]:
    cluster.empty()
    text = "x" * (payload - 2)  # with the quotes of JSON
    options: Any = {"partitions": PARTITIONS, "concurrency": 10}
    with DelayQueue(QUEUE, url=cluster.url, callback=lambda _: None, **options) as queue:
        queue.send_many([text] * 500)  # each script has run, and the tables of the server have their size
        queue.run(burst=True)
        empty = cluster.memory()
        send = cpu_of(cluster, lambda: queue.send_many([text] * messages, delay=3600))
        memory = cluster.memory() - empty
        queue.purge()
        send += cpu_of(cluster, lambda: queue.send_many([text] * messages))
        deliver = cpu_of(cluster, lambda: queue.run(burst=True))
    return send / 2, deliver, memory


def measured(cluster: BenchCluster, messages: int = MESSAGES) -> Costs:
    """Return the costs of a message on a cluster."""
    small, large = (run(cluster, messages, payload) for payload in (SMALL, LARGE))
    byte = (large.memory - small.memory) / messages / (LARGE - SMALL)
    return Costs(
        send=1e6 * small.send / messages,
        deliver=1e6 * small.deliver / messages,
        waiting=small.memory / messages - byte * SMALL,
        byte=byte,
    )


def check(
    costs: Costs, nodes: Sequence[int] = (1, 2, 6), messages: int = MESSAGES
) -> Iterator[tuple[str, float, float]]:
    """Yield what is computed and what some clusters here have used: CPU time and bytes of messages of 200 bytes."""
    payload = 200
    for count in nodes:
        with throwaway_cluster(count) as cluster:
            found = run(cluster, messages, payload)
        spent = 1e6 * (found.send + found.deliver) / messages
        yield f"µs a message, {count} nodes together", costs.life, spent
        yield f"bytes of {messages} messages, {count} nodes", costs.bytes(messages, payload), found.memory


def tables(costs: Costs, nodes: Sequence[int], payload: int) -> Iterator[str]:
    """Yield the lines of the answer."""
    yield f"a message costs {costs.send:.1f} µs to send, {costs.deliver:.1f} µs to deliver and settle"
    yield f"and {costs.bytes(1, payload):.0f} bytes while it waits, with a payload of {payload} bytes"
    yield ""
    yield f"{'nodes':>6} {'messages a second at most':>26} {f'to plan with ({USED:.0%})':>22}"
    for count in nodes:
        yield f"{count:>6} {costs.rate(count):>26,.0f} {USED * costs.rate(count):>22,.0f}"
    yield ""
    yield f"{'waiting':>16} {'bytes':>12} {'nodes of 64 GiB, 75 % full':>28}"
    for messages in WAITING:
        needed = costs.bytes(messages, payload)
        yield f"{messages:>16,} {_size(needed):>12} {max(1, -(-needed // (48 * GIBIBYTE))):>28,.0f}"


def _size(count: float) -> str:
    return f"{count / GIBIBYTE:,.1f} GiB" if count >= GIBIBYTE else f"{count / MEBIBYTE:,.0f} MiB"


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return number


def main(words: Sequence[str] | None = None) -> int:
    """Print what is asked for; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--payload", type=_positive, default=200, metavar="BYTES", help="size of a payload (200)")
    parser.add_argument("--nodes", type=_positive, help="so many nodes alone")
    parser.add_argument("--measure", action="store_true", help="measure the costs here")
    parser.add_argument("--check", action="store_true", help="measure, and compare with 1, 2 and 6 nodes here")
    options = parser.parse_args(words)
    costs = STORED
    if options.measure or options.check:
        with throwaway_cluster(1) as cluster:
            costs = measured(cluster)
    print("\n".join(tables(costs, (options.nodes,) if options.nodes else NODES, options.payload)))
    is_off = False
    if options.check:
        print()
        for what, computed, found in check(costs):
            off = computed / found - 1
            is_off = is_off or abs(off) > WITHIN
            print(f"{what}: computed {computed:,.1f}, measured {found:,.1f}: {off:+.0%}")
    return int(is_off)


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # the servers here keep nothing on disk
    sys.exit(main())
