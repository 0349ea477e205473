"""Which node of a Redis Cluster holds what, and the way of a conversation through its nodes.

A conversation speaks to one Redis. A `RoutedConversation` turns what it says into exchanges with nodes: it groups the
requests of a round trip by the node of their keys, follows MOVED and ASK at once, and asks anew where the slots are
when a node fails. What cannot be had for now goes back to the conversation, which pauses and sends again.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, ResponseError, TryAgainError

from delayq.conversation import (
    Address,
    Conversation,
    Exchange,
    NotConnectedError,
    Patience,
    Request,
    Talk,
    Transmission,
    pack,
)
from delayq.operation import Pause
from delayq.values import Call, Command

MOST_HOPS = 5
"""Redirections followed one after another: more than one is a topology in motion."""

_KEYLESS = frozenset({"INFO", "SCRIPT", "WAIT"})
"""Commands with arguments of which none is a key."""
_REDIRECTED = re.compile(r"^(?:(MOVED|ASK) )?(\d+) (.*):(\d+)$")
_ASTRAY = re.compile("CLUSTERDOWN|MASTERDOWN|READONLY")
"""A node that is cut off, or no master any more: the others know better where its slots are."""
_LOOKING = Transmission(Command(("CLUSTER", "SLOTS"), bool), pack(("CLUSTER", "SLOTS")), None)
_ASKING = Transmission(Command(("ASKING",), bool), pack(("ASKING",)), None)

Replies = list[Any] | Exception | None


class Routes:
    """Where the slots of a cluster are, as far as it is known; shared by those who talk to it."""

    def __init__(self, seeds: Sequence[Address], remap: Callable[[str, int], Address] | None = None) -> None:
        """Know nothing but some nodes to ask; `remap` tells under which address one is reached."""
        self._remap = remap or (lambda host, port: (host, port))
        self._owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._seeds = list(dict.fromkeys(seeds))
        self.nodes: list[Address] = self._seeds
        """Nodes to ask, those that have failed of late last."""
        self.members: list[Address] = []
        """Masters and replicas."""
        self.stale = True
        """Whether to ask before anything else is sent."""

    def owner(self, key: str) -> Address:
        """Return the node to ask for a key: its master, or any node if the slot is served by none."""
        return self._owners[key_slot(key.encode("utf-8", "surrogateescape"))] or self.nodes[0]

    def learn(self, slots: list[Any], told_by: Address) -> bool:
        """Take in an answer of CLUSTER SLOTS; returns whether it names the owner of any slot."""
        owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        nodes: dict[Address, None] = {}
        for first, last, *servers in slots:
            addresses = [self.address(host, port, told_by) for host, port, *_ in servers]
            owners[first : last + 1] = [addresses[0]] * (last - first + 1)
            nodes |= dict.fromkeys(addresses)
        if nodes:
            self._owners, self.members = owners, list(nodes)
            # First the one that answers. The seeds stay: they may be names that outlive every address behind them.
            self.nodes, self.stale = list({told_by: None} | nodes | dict.fromkeys(self._seeds)), False
        return bool(nodes)

    def move(self, slot: int, host: str, port: int, told_by: Address) -> Address:
        """Note the new owner of a slot, and return it."""
        self._owners[slot] = address = self.address(host, port, told_by)
        return address

    def doubt(self, node: Address) -> None:
        """Note that a node has failed: the others are to be asked who has its slots now."""
        self.stale = True
        self.nodes = [*(other for other in self.nodes if other != node), node]

    def address(self, host: str | bytes | None, port: int, told_by: Address) -> Address:
        """Return the address of a node as we reach it, from what another said."""
        name = host.decode() if isinstance(host, bytes) else host or ""
        # A node that does not know its own address leaves it out: it is then that by which it was reached.
        return self._remap(told_by[0] if name in ("", "?") else name, port)


class _Party(NamedTuple):
    """Requests that go to one node together, by their places in the exchange."""

    to: Address
    places: list[int]
    asking: bool = False
    """Whether the node is to serve them although it does not own their slot yet."""


class RoutedConversation(Conversation):
    """A conversation with the nodes of a cluster."""

    def __init__(self, routes: Routes, *, deadline: float) -> None:
        """Find the nodes by `routes`; `deadline` in seconds."""
        super().__init__(deadline=deadline)
        self._routes = routes

    def converse(self, requests: Iterable[Request], patience: Patience | None) -> Talk:
        """Send requests, each to the node of its key, until each has its answer; see `Conversation.converse`."""
        return _routed(super().converse(requests, patience), self._routes)


def _routed(talk: Talk, routes: Routes) -> Talk:
    try:
        step = next(talk)
        while True:
            if isinstance(step, Pause):
                yield step
                step = talk.send(None)
            else:
                step = talk.send((yield from _exchange(step, routes)))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what a Talk returns


def _exchange(step: Exchange, routes: Routes) -> Generator[Exchange, Replies, Replies]:
    deque(step.data, maxlen=0)  # what goes where shows only when all is packed
    if routes.stale and (trouble := (yield from _look(routes))):
        return [trouble] * len(step.sent) if isinstance(trouble, ResponseError) else trouble
    answers: list[Any] = [None] * len(step.sent)
    parties = _parties(step.sent, routes)
    for _ in range(MOST_HOPS):
        redirected: list[_Party] = []
        heard: set[int] = set()
        for party in parties:
            group = [step.sent[place] for place in party.places]
            replies = yield from _say(party, group)
            for place, one, reply in zip(party.places, group, replies, strict=True):
                one.met = party.to
                if place not in heard or isinstance(reply, Exception):  # of what all are told, an error counts
                    answers[place] = reply
                heard.add(place)
            redirected += _follow(party, group, replies, routes)
        parties = redirected
        if not parties:
            break
    for party in parties:
        for place in party.places:
            answers[place] = TryAgainError("TRYAGAIN the slot keeps moving")
    return answers


def _look(routes: Routes) -> Generator[Exchange, Replies, Exception | None]:
    """Ask nodes in turn where the slots are; returns why none could say."""
    trouble: Exception | None = None
    for node in list(routes.nodes):
        replies = yield Exchange([_LOOKING.packed], [_LOOKING], node)
        answer = replies[0] if isinstance(replies, list) else replies
        if isinstance(answer, list):
            if routes.learn(answer, node):
                return None
            answer = ClusterDownError("CLUSTERDOWN no node serves any slot")
        if isinstance(answer, ResponseError):  # which tells more than that another is gone
            trouble = answer
        else:
            routes.doubt(node)
            trouble = trouble or NotConnectedError(str(answer))
    return trouble


def _parties(sent: Sequence[Transmission], routes: Routes) -> list[_Party]:
    """Group requests by node; one without a key goes where the one before it does, else where the next one does."""
    keys = [_key_of(one.request) for one in sent]
    first = next((key for key in keys if key is not None), None)
    to = routes.nodes[0] if first is None else routes.owner(first)
    parties: dict[Address, _Party] = {}
    for place, (one, key) in enumerate(zip(sent, keys, strict=True)):
        to = one.to or (to if key is None else routes.owner(key))
        for node in routes.members if one.name == "SCRIPT" and not one.to else (to,):
            parties.setdefault(node, _Party(node, [])).places.append(place)
    return list(parties.values())


def _key_of(request: Request) -> str | None:
    """Return a key of a request; all keys of a request have the same slot."""
    if isinstance(request, Call):
        key = request.keys[0]
        return key if isinstance(key, str) else key.decode("utf-8", "surrogateescape")
    if len(request.args) < 2 or request.args[0] in _KEYLESS:  # noqa: PLR2004 - a name and a key
        return None
    return str(request.args[request.args.index("STREAMS") + 1 if "STREAMS" in request.args else 1])


def _say(party: _Party, group: list[Transmission]) -> Generator[Exchange, Replies, list[Any]]:
    """Exchange with one node; a failure of the connection is the reply to each request."""
    saying = [each for one in group for each in (_ASKING, one)] if party.asking else group
    replies = yield Exchange([one.packed for one in saying], saying, party.to)
    if not isinstance(replies, list):
        return [replies] * len(group)
    return replies[1::2] if party.asking else replies


def _follow(party: _Party, group: list[Transmission], replies: Iterable[Any], routes: Routes) -> list[_Party]:
    """Return where requests are to go instead, and note which node is to be doubted."""
    parties: dict[tuple[Address, bool], _Party] = {}
    for place, reply in zip(party.places, replies, strict=True):
        if not isinstance(reply, Exception):
            continue
        found = _redirection(reply)
        if found is None:
            if not isinstance(reply, ResponseError) or _ASTRAY.search(f"{type(reply).__name__} {reply}".upper()):
                routes.doubt(party.to)
            continue
        slot, host, port, asking = found
        to = routes.address(host, port, party.to) if asking else routes.move(slot, host, port, party.to)
        parties.setdefault((to, asking), _Party(to, [], asking)).places.append(place)
    if parties and group[-1].follows:  # what is about the others goes with them, and all of them as one
        (to, asking), *_ = parties
        return [_Party(to, party.places, asking)]
    return list(parties.values())


def _redirection(error: Exception) -> tuple[int, str, int, bool] | None:
    """Return slot, host and port of a MOVED or ASK, and whether it is the latter. Old clients do not know them."""
    if not isinstance(error, ResponseError):
        return None
    match = _REDIRECTED.match(str(error))
    if match is None or not (match[1] or isinstance(error, AskError)):
        return None
    asking = match[1] == "ASK" if match[1] else not isinstance(error, MovedError)
    return int(match[2]), match[3], int(match[4]), asking
