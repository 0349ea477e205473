"""Redis as it outlives a server: a master under three Sentinels, and a Cluster of six. Plain processes, thrown away.

with Sentinels() as sentinels:
    queue = DelayQueue("reminders", url=sentinels.url)
    killed = sentinels.kill_master()
    sentinels.await_failover(killed)     # another is the master now
    sentinels.rejoin(killed)             # as its replica
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self

from delayq.broker.replies import pairs
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.executor import open_executor
from delayq.errors import DelayqError
from delayq.options import read_settings
from delayq.testing.redis_server import free_port
from tests.support.redis_server import RedisServer

HOST = "127.0.0.1"
REPLICATION = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
"""A replica is served at once, where a master waits 5 s for others by default, and is known for one within 1 s."""
SLOTS = 16384
MAX_WAIT = 30.0
"""Seconds anything here may take to come about."""


class Node(RedisServer):
    """A server on a port of 127.0.0.1 that can be asked things."""

    def __init__(self, *config: str) -> None:
        """Choose folder and port."""
        super().__init__(*config, tcp=True)
        self._executor = open_executor({"url": self.url}, read_settings({"deadline": 1, "socket_timeout": 5}))

    def ask(self, *command: str | int) -> Any:
        """Have a command carried out, and return what the server answers; raises a `DelayqError`."""
        return self._executor.call(RedisCommand(command, lambda reply: reply))

    def facts(self, *command: str) -> dict[str, str]:
        """Return an answer in lines of `name:value`, such as that of INFO."""
        lines = (line.partition(":") for line in self.ask(*command).decode().splitlines())
        return {name: value for name, _, value in lines}

    def is_linked(self) -> bool:
        """Tell whether this is a replica with the link to its master up."""
        return self.facts("INFO", "replication").get("master_link_status") == "up"

    def close(self) -> None:
        """Stop the process and remove its files."""
        self._executor.close()
        super().close()


class Sentinel(Node):
    """A Sentinel, from the lines of its configuration."""

    def __init__(self) -> None:
        """Choose folder, port and identity."""
        super().__init__()
        self.id = secrets.token_hex(20)
        self.lines: list[str] = []

    def _arguments(self) -> list[str]:
        file = self.folder / "sentinel.conf"
        if not file.exists():  # it writes down there what it learns
            own = [
                f"port {self.port}",
                f"bind {HOST}",
                f"dir {self.folder}",
                "set-proc-title no",
                f"sentinel myid {self.id}",
            ]
            file.write_text("\n".join([*own, *self.lines, ""]))
        return [str(file), "--sentinel"]


class _Deployment:
    """Servers that are started and removed together."""

    def __init__(self, servers: Sequence[Node]) -> None:
        self.servers = list(servers)
        self._opened = ExitStack()

    def start(self) -> None:
        """Start everything, and return when it is whole."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            for server in self.servers:
                opening.callback(server.close)
            self.start()
            self._opened = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()


class Sentinels(_Deployment):
    """Three Sentinels over a master and its replicas."""

    NAME = "delayq"

    def __init__(self, *config: str, replicas: int = 1, down_after: float = 1.0) -> None:
        """Choose addresses; `config` is for the servers. A master silent for `down_after` seconds is replaced."""
        self.down_after = down_after
        self.data = [Node(*REPLICATION, *config) for _ in range(1 + replicas)]
        self.sentinels = [Sentinel() for _ in range(3)]
        first, *others = self.data
        settings = [
            f"sentinel monitor {self.NAME} {HOST} {first.port} 2",
            f"sentinel down-after-milliseconds {self.NAME} {int(down_after * 1000)}",
            f"sentinel failover-timeout {self.NAME} 20000",
            *(f"sentinel known-replica {self.NAME} {HOST} {one.port}" for one in others),
        ]
        for sentinel in self.sentinels:
            known = [one for one in self.sentinels if one is not sentinel]
            sentinel.lines = settings + [
                f"sentinel known-sentinel {self.NAME} {HOST} {one.port} {one.id}" for one in known
            ]
        super().__init__([*self.data, *self.sentinels])

    @property
    def url(self) -> str:
        """The address for delayq, database 0."""
        return f"redis+sentinel://{','.join(f'{HOST}:{one.port}' for one in self.sentinels)}/0?master={self.NAME}"

    @property
    def master(self) -> Node:
        """The master, as the first Sentinel has it."""
        _, port = self.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.NAME)
        return next(one for one in self.data if one.port == int(port))

    @property
    def replicas(self) -> list[Node]:
        """The running servers besides the master."""
        master = self.master
        return [one for one in self.data if one is not master and one.is_running]

    def start(self) -> None:
        """Start the servers, then the Sentinels, and return when these could carry out a failover."""
        first, *others = self.data
        first.start()
        for replica in others:
            replica.start()
            replica.ask("REPLICAOF", HOST, first.port)
        until("the replicas are linked", lambda: all(one.is_linked() for one in others))
        for sentinel in self.sentinels:
            sentinel.start()
        until("the Sentinels see everything", lambda: all(self._sees(one) for one in self.sentinels))

    def kill_master(self) -> Node:
        """End the master at once (SIGKILL), and return it."""
        master = self.master
        master.kill()
        return master

    def await_failover(self, killed: Node, timeout: float = MAX_WAIT) -> Node:
        """Return the master that has taken the place of another, as soon as it says itself that it is one."""
        until("another master", lambda: self.master is not killed and role(self.master) == "master", timeout)
        return self.master

    def rejoin(self, server: Node) -> None:
        """Start a killed server again, as a replica of the master, and return when the Sentinels have it as one."""
        server.start()
        server.ask("REPLICAOF", HOST, self.master.port)
        until("the replica is linked", server.is_linked)
        until("the Sentinels see everything", lambda: all(self._sees(one) for one in self.sentinels))

    def _sees(self, sentinel: Sentinel) -> bool:
        replicas = sentinel.ask("SENTINEL", "REPLICAS", self.NAME)
        sound = [one for one in map(_texts, replicas) if (one["flags"], one["master-link-status"]) == ("slave", "ok")]
        others = sentinel.ask("SENTINEL", "SENTINELS", self.NAME)
        up = [one for one in map(_texts, others) if one["flags"] == "sentinel"]
        return len(up) == len(self.sentinels) - 1 and len(sound) == len(self.replicas)


class RedisCluster(_Deployment):
    """Three masters with a third of the slots each, and a replica of each."""

    def __init__(self, *config: str, node_timeout: float = 1.0) -> None:
        """Choose addresses; `config` is for the servers. A node silent for `node_timeout` seconds has failed."""
        self.node_timeout = node_timeout
        wanted = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(int(node_timeout * 1000)))
        self._buses = [free_port() for _ in range(6)]
        super().__init__([Node(*wanted, "--cluster-port", str(bus), *REPLICATION, *config) for bus in self._buses])

    @property
    def url(self) -> str:
        """The address for delayq: three of the nodes."""
        return f"redis+cluster://{','.join(f'{HOST}:{one.port}' for one in self.servers[:3])}/"

    def start(self) -> None:
        """Start the nodes, join them, and return when all slots are served and replicated."""
        for server in self.servers:
            server.start()
        masters, replicas = self.servers[:3], self.servers[3:]
        for number, master in enumerate(masters):
            master.ask("CLUSTER", "ADDSLOTSRANGE", SLOTS * number // 3, SLOTS * (number + 1) // 3 - 1)
            master.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server, bus in zip(self.servers, self._buses, strict=True):
            masters[0].ask("CLUSTER", "MEET", HOST, server.port, bus)
        until("all nodes know each other", lambda: all(self._known(one) == "6" for one in self.servers))
        for master, replica in zip(masters, replicas, strict=True):
            until("the replica knows its master", partial(_try, replica.ask, "CLUSTER", "REPLICATE", id_of(master)))
        self.await_health()

    def await_health(self) -> None:
        """Return when all running nodes see the cluster as whole, with every replica linked."""
        running = [one for one in self.servers if one.is_running]
        ports = {one.port for one in running}
        until("the cluster is whole", lambda: all(self._sees(one, ports) for one in running))

    def owner(self, slot: int) -> Node:
        """Return the master of a slot, as most of the running nodes have it."""
        found = [self._owner(one, slot) for one in self.servers if one.is_running]
        return max(self.servers, key=found.count)

    def await_failover(self, killed: Node, slot: int, timeout: float = MAX_WAIT) -> Node:
        """Return the master that has taken a slot over, as soon as it says itself that it is one."""
        until(
            "another master",
            lambda: self.owner(slot) is not killed and role(self.owner(slot)) == "master",
            timeout,
        )
        return self.owner(slot)

    def rejoin(self, server: Node) -> None:
        """Start a killed node again; it becomes a replica of the one that has its slots. Returns when all is whole."""
        server.start()
        until("the replica is linked", server.is_linked)
        self.await_health()

    def migrate(self, slot: int, target: Node, between: Callable[[], None]) -> None:
        """Move a slot key by key, as redis-cli would; `between` is called before each key and before the end."""
        source = self.owner(slot)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", id_of(source))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", id_of(target))
        between()
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1):
            source.ask("MIGRATE", HOST, target.port, keys[0].decode(), 0, 5000)
            between()
        for node in [target, source, *self.masters()]:
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", id_of(target))

    def agrees(self, slot: int, owner: Node) -> bool:
        """Tell whether all running nodes have the same owner of a slot."""
        return all(self._owner(one, slot) is owner for one in self.servers if one.is_running)

    def masters(self) -> Iterator[Node]:
        """Iterate over the running masters."""
        return (one for one in self.servers if one.is_running and role(one) == "master")

    def _owner(self, asked: Node, slot: int) -> Node | None:
        for first, last, master, *_ in asked.ask("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(one for one in self.servers if one.port == master[1])
        return None

    def _known(self, server: Node) -> str:
        return server.facts("CLUSTER", "INFO")["cluster_known_nodes"]

    def _sees(self, server: Node, ports: set[int]) -> bool:
        if server.facts("CLUSTER", "INFO")["cluster_state"] != "ok":
            return False
        seen = {node[1] for _, _, *nodes in server.ask("CLUSTER", "SLOTS") for node in nodes}
        return seen == ports and (role(server) == "master" or server.is_linked())


def role(server: Node) -> str:
    """Return what a server says it is: master or slave."""
    return server.facts("INFO", "replication")["role"]


def id_of(server: Node) -> str:
    """Return the id of a node of a cluster."""
    return str(server.ask("CLUSTER", "MYID").decode())


def until(what: str, condition: Callable[[], object], timeout: float = MAX_WAIT) -> None:
    """Return as soon as a condition holds; `TimeoutError` if it does not in time."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {timeout:g} s: {what}")
        time.sleep(0.02)


def _try(ask: Callable[..., Any], *command: str) -> bool:
    try:
        ask(*command)
    except DelayqError:
        return False
    return True


def _texts(reply: Any) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in pairs(reply).items()}
