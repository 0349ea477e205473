"""Slot map and protocol for Redis Cluster.

`RedisProtocol` is written for one Redis. `ClusterProtocol` splits each of its exchanges by node: it groups the requests
by the node of their keys, follows MOVED and ASK at once, and asks again where the slots are when a node fails. Requests
that cannot be served yet are retried by `RedisProtocol`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, ResponseError, TryAgainError

from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.broker.transport.failures import NotConnectedError
from delayq.broker.transport.operation import Wait
from delayq.broker.transport.packing import pack
from delayq.broker.transport.protocol import (
    Address,
    Exchange,
    PendingRequest,
    ProtocolSteps,
    RedisProtocol,
    Replies,
    Request,
    Requests,
    ShouldRetry,
)
from delayq.errors import CannotConnectError

MAX_HOPS = 5
"""Redirections to follow in a row; more than that, and the slots are still being moved."""

_KEYLESS = frozenset({"INFO", "SCRIPT", "WAIT"})
"""Commands whose arguments hold no key."""
_REDIRECTED = re.compile(r"^(?:(MOVED|ASK) )?(\d+) (.*):(\d+)$")
_NODE_FAILED = re.compile("CLUSTERDOWN|MASTERDOWN|READONLY")
"""Errors of a node that is cut off or no longer a master: the other nodes know better where its slots are."""
_CLUSTER_SLOTS = PendingRequest(RedisCommand(("CLUSTER", "SLOTS"), bool), pack(("CLUSTER", "SLOTS")), None)
_ASKING = PendingRequest(RedisCommand(("ASKING",), bool), pack(("ASKING",)), None)


class SlotMap:
    """Which node serves which slot, as far as known; shared by all protocols of a cluster client."""

    def __init__(self, seeds: Sequence[Address], remap: Callable[[str, int], Address] | None = None) -> None:
        """Start with the nodes `seeds`; `remap` returns the address under which a node can be reached from here."""
        self._remap = remap or (lambda host, port: (host, port))
        self._owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._seeds = list(dict.fromkeys(seeds))
        self.nodes: list[Address] = self._seeds
        """Nodes to ask; those that failed recently come last."""
        self.members: list[Address] = []
        """Masters and replicas."""
        self.stale = True
        """Whether to refresh the map before anything else is sent."""

    def owner(self, key: str) -> Address:
        """Return the node to send a key to: its master, or any node if no node serves the slot."""
        return self._owners[key_slot(key.encode("utf-8", "surrogateescape"))] or self.nodes[0]

    def learn(self, slots: list[Any], source: Address) -> bool:
        """Store the reply of CLUSTER SLOTS from the node `source`; returns whether it names the owner of any slot."""
        owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        nodes: dict[Address, None] = {}
        for first, last, *servers in slots:
            addresses = [self.address(host, port, source) for host, port, *_ in servers]
            owners[first : last + 1] = [addresses[0]] * (last - first + 1)
            nodes |= dict.fromkeys(addresses)
        if nodes:
            self._owners, self.members = owners, list(nodes)
            # The node that replied comes first. The seeds stay: they may be names that outlive every address.
            self.nodes, self.stale = list({source: None} | nodes | dict.fromkeys(self._seeds)), False
        return bool(nodes)

    def move(self, slot: int, host: str, port: int, source: Address) -> Address:
        """Store the new owner of a slot, and return it."""
        self._owners[slot] = address = self.address(host, port, source)
        return address

    def mark_failed(self, node: Address) -> None:
        """Note that a node failed: ask the others first who has its slots now."""
        self.stale = True
        self.nodes = [*(other for other in self.nodes if other != node), node]

    def address(self, host: str | bytes | None, port: int, source: Address) -> Address:
        """Return the address to reach a node under, from the one that the node `source` reported."""
        name = host.decode() if isinstance(host, bytes) else host or ""
        # A node that does not know its own address leaves it out: use the address at which it was reached.
        return self._remap(source[0] if name in ("", "?") else name, port)


class Exchanges(list[Exchange]):
    """Exchanges with several nodes side by side: each has its result, in their order."""

    def again(self) -> Exchanges:
        """Return the same exchanges, to be made once more because they were interrupted."""
        return Exchanges([one.again() for one in self])


class _NodeBatch(NamedTuple):
    """Requests that go to one node together, by their index in the exchange."""

    node: Address
    indexes: list[int]
    asking: bool = False
    """Whether to send ASKING, so that the node serves a slot that is still being moved to it."""


class ClusterProtocol(RedisProtocol):
    """The protocol with the nodes of a cluster."""

    def __init__(self, slot_map: SlotMap, *, deadline: float, server: str = "") -> None:
        super().__init__(deadline=deadline, server=server)
        self._slot_map = slot_map

    def run(self, requests: Requests, should_retry: ShouldRetry, deadline: float | None = None) -> ProtocolSteps:
        """Send requests, each to the node of its key, until each has a reply; see `RedisProtocol.run`."""
        steps: ProtocolSteps = _route_steps(super().run(requests, should_retry, deadline), self._slot_map)
        return steps


def _route_steps(steps: ProtocolSteps, slot_map: SlotMap) -> Any:
    try:
        step = next(steps)
        while True:
            if isinstance(step, Wait):
                yield step
                step = steps.send(None)
            else:
                step = steps.send((yield from _exchange(step, slot_map)))
    except StopIteration as end:
        return end.value
    finally:
        steps.close()


def _exchange(step: Exchange, slot_map: SlotMap) -> Generator[Exchange | Exchanges, Any, Replies]:
    deque(step.data, maxlen=0)  # the nodes are known only when all requests are packed
    if slot_map.stale and (error := (yield from _refresh(slot_map))):
        return [error] * len(step.sent) if isinstance(error, ResponseError) else error
    replies: list[Any] = [None] * len(step.sent)
    batches = _by_node(step.sent, slot_map)
    for _ in range(MAX_HOPS):
        redirected: list[_NodeBatch] = []
        answered: set[int] = set()
        groups = [[step.sent[index] for index in batch.indexes] for batch in batches]
        for batch, group, batch_replies in zip(batches, groups, (yield from _send(batches, groups)), strict=True):
            for index, one, reply in zip(batch.indexes, group, batch_replies, strict=True):
                one.last_node = batch.node
                if index not in answered or isinstance(reply, Exception):  # of a request to all nodes, report an error
                    replies[index] = reply
                answered.add(index)
            redirected += _follow_redirections(batch, group, batch_replies, slot_map)
        batches = redirected
        if not batches:
            break
    for batch in batches:
        for index in batch.indexes:
            replies[index] = TryAgainError("TRYAGAIN the slot keeps moving")
    return replies


def _refresh(slot_map: SlotMap) -> Generator[Exchange, Replies, Exception | None]:
    """Ask the nodes in turn where the slots are; returns the error if none could tell."""
    error: Exception | None = None
    for node in list(slot_map.nodes):
        replies = yield Exchange([_CLUSTER_SLOTS.packed], [_CLUSTER_SLOTS], node)
        reply = replies[0] if isinstance(replies, list) else replies
        if isinstance(reply, list):
            if slot_map.learn(reply, node):
                return None
            reply = ClusterDownError("CLUSTERDOWN no node serves any slot")
        if isinstance(reply, ResponseError) and "cluster support disabled" in str(reply):
            return ResponseError(f"{node[0]}:{node[1]} is not a cluster: its url begins with redis:// or rediss://")
        if isinstance(reply, ResponseError | CannotConnectError):  # says more than that another node is gone
            error = reply
        else:
            slot_map.mark_failed(node)
            error = error or NotConnectedError(str(reply))
    return error


def _by_node(sent: Sequence[PendingRequest], slot_map: SlotMap) -> list[_NodeBatch]:
    """Group requests by node. A request without a key goes with the one before it, else with the next one."""
    keys = [_key_of(one.request) for one in sent]
    first = next((key for key in keys if key is not None), None)
    node = slot_map.nodes[0] if first is None else slot_map.owner(first)
    batches: dict[Address, _NodeBatch] = {}
    for index, (one, key) in enumerate(zip(sent, keys, strict=True)):
        node = one.node or (node if key is None else slot_map.owner(key))
        for target in slot_map.members if one.name == "SCRIPT" and not one.node else (node,):
            batches.setdefault(target, _NodeBatch(target, [])).indexes.append(index)
    return list(batches.values())


def _key_of(request: Request) -> str | None:
    """Return a key of a request; all keys of a request have the same slot."""
    if isinstance(request, ScriptCall):
        key = request.keys[0]
        return key if isinstance(key, str) else key.decode("utf-8", "surrogateescape")
    if len(request.args) < 2 or request.args[0] in _KEYLESS:  # noqa: PLR2004 - a name and a key
        return None
    return str(request.args[request.args.index("STREAMS") + 1 if "STREAMS" in request.args else 1])


def _send(
    batches: Sequence[_NodeBatch], groups: Sequence[list[PendingRequest]]
) -> Generator[Exchange | Exchanges, Any, list[list[Any]]]:
    """Exchange with nodes side by side; if a connection fails, its error is the reply to each of its requests."""
    exchanges = Exchanges()
    for batch, group in zip(batches, groups, strict=True):
        sending = [each for one in group for each in (_ASKING, one)] if batch.asking else group
        exchanges.append(Exchange([one.packed for one in sending], sending, batch.node))
    results = [(yield exchanges[0])] if len(exchanges) == 1 else (yield exchanges)
    replies: list[list[Any]] = []
    for batch, group, result in zip(batches, groups, results, strict=True):
        if not isinstance(result, list):
            replies.append([result] * len(group))
        else:
            replies.append(result[1::2] if batch.asking else result)
    return replies


def _follow_redirections(
    batch: _NodeBatch, group: list[PendingRequest], replies: Iterable[Any], slot_map: SlotMap
) -> list[_NodeBatch]:
    """Return the batches to send to other nodes, and mark the node as failed if it did."""
    batches: dict[tuple[Address, bool], _NodeBatch] = {}
    for index, reply in zip(batch.indexes, replies, strict=True):
        if not isinstance(reply, Exception):
            continue
        redirection = _redirection(reply)
        if redirection is None:
            if not isinstance(reply, ResponseError) or _NODE_FAILED.search(f"{type(reply).__name__} {reply}".upper()):
                slot_map.mark_failed(batch.node)
            continue
        slot, host, port, asking = redirection
        node = slot_map.address(host, port, batch.node) if asking else slot_map.move(slot, host, port, batch.node)
        batches.setdefault((node, asking), _NodeBatch(node, [], asking)).indexes.append(index)
    if batches and group[-1].follows:  # a request that refers to the others goes with them, all in one batch
        (node, asking), *_ = batches
        return [_NodeBatch(node, batch.indexes, asking)]
    return list(batches.values())


def _redirection(error: Exception) -> tuple[int, str, int, bool] | None:
    """Return slot, host and port of a MOVED or ASK, and whether it is ASK. Old clients leave these words out."""
    if not isinstance(error, ResponseError):
        return None
    match = _REDIRECTED.match(str(error))
    if match is None or not (match[1] or isinstance(error, AskError)):
        return None
    asking = match[1] == "ASK" if match[1] else not isinstance(error, MovedError)
    return int(match[2]), match[3], int(match[4]), asking
