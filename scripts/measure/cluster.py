"""Throwaway clusters of masters alone, for measurements."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from delayq.testing.redis_server import RedisServer, free_port
from measure.bench_server import main_thread_seconds

TIMEOUT = 30.0


class BenchCluster:
    """The masters of a cluster, each with an equal range of slots; one alone is no cluster."""

    def __init__(self, servers: list[RedisServer]) -> None:
        """Use servers that run."""
        self.clients = [redis.Redis(port=server.port, socket_timeout=60) for server in servers]
        ports = [server.port for server in servers]
        alone = f"redis://127.0.0.1:{ports[0]}"
        self.url = alone if len(ports) == 1 else "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in ports)

    def cpu(self) -> list[float]:
        """Return the CPU time of the main thread of each node so far, in seconds."""
        return [main_thread_seconds(client) for client in self.clients]

    def memory(self) -> int:
        """Return the bytes that all nodes use."""
        return sum(client.info("memory")["used_memory"] for client in self.clients)

    def empty(self) -> None:
        """Delete all data."""
        for client in self.clients:
            client.flushall()

    def shares(self, queue: str, partitions: int) -> list[float]:
        """Return the share of each node in the partitions of a queue, beside an even one."""
        nodes = len(self.clients)
        owners = [key_slot(f"{queue}#{at}".encode()) * nodes // REDIS_CLUSTER_HASH_SLOTS for at in range(partitions)]
        return [owners.count(node) / partitions * nodes for node in range(nodes)]


@contextmanager
def throwaway_cluster(nodes: int = 3) -> Iterator[BenchCluster]:
    """Run so many masters; yield them when they serve all slots."""
    with ExitStack() as stack:
        buses = [free_port() for _ in range(nodes)]
        on = ("--cluster-enabled", "yes", "--cluster-port")
        words = [(*on, str(bus)) if nodes > 1 else () for bus in buses]
        servers = [stack.enter_context(RedisServer(*one, tcp=True)) for one in words]
        cluster = BenchCluster(servers)
        for client in cluster.clients:
            stack.callback(client.close)
        if nodes > 1:
            _join(cluster, servers, buses)
        yield cluster


def _join(cluster: BenchCluster, servers: list[RedisServer], buses: list[int]) -> None:
    """Give each node its slots, and wait until all know all."""
    for at, client in enumerate(cluster.clients):
        first, after = (-(-REDIS_CLUSTER_HASH_SLOTS * number // len(servers)) for number in (at, at + 1))
        client.execute_command("CLUSTER ADDSLOTSRANGE", first, after - 1)
        client.execute_command("CLUSTER SET-CONFIG-EPOCH", at + 1)
        cluster.clients[0].execute_command("CLUSTER MEET", "127.0.0.1", servers[at].port, buses[at])
    end = time.monotonic() + TIMEOUT
    wanted = {"cluster_state": "ok", "cluster_known_nodes": str(len(servers))}
    while not all(wanted.items() <= dict(client.cluster("INFO")).items() for client in cluster.clients):
        if time.monotonic() > end:
            raise AssertionError(f"no cluster of {len(servers)} nodes within {TIMEOUT:g} s")
        time.sleep(0.02)
