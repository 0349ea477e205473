"""Values of the request protocol: slots of calls, requests as they go over the wire, exchanges with a server."""

from __future__ import annotations

import os
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, NamedTuple

from hiredis import pack_command

from delayq.broker.message.ids import new_consumer_id
from delayq.broker.requests import RedisCommand, ScriptCall

CallSlot = tuple[str, int]
"""A slot of this process, and the sequence number of a call in it."""


class CallSlots:
    """The slots of one client in one process; a forked process needs new ones."""

    def __init__(self) -> None:
        """Start without slots; they are drawn as calls need them, and used again."""
        self.client_name = secrets.token_hex(6)
        """A name unique to this start of this process: the prefix of all its slots."""
        self.consumer_id = new_consumer_id()
        """The id under which this process holds messages."""
        self._pid = os.getpid()
        self._names = map(f"{self.client_name}.%d".__mod__, count(1))
        self._drawing = threading.RLock()  # a signal handler may send while its own thread draws a name
        self._free: list[CallSlot] = []
        """The free slots, each with the sequence number of its last call."""

    @property
    def forked(self) -> bool:
        """Whether they belong to the process from which this one was forked."""
        return self._pid != os.getpid()

    def take(self) -> CallSlot:
        """Return a slot and the sequence number of its next call."""
        try:
            slot, sequence = self._free.pop()
        except IndexError:
            with self._drawing:  # without the GIL, two threads could draw the same name
                return next(self._names), 1
        return slot, sequence + 1

    def give_back(self, slots: list[CallSlot]) -> None:
        """Make slots free again, also those of calls without a reply.

        If such a call still reaches Redis after a later call of its slot, Redis does not execute it.
        """
        self._free.extend(slots)


_pack: Callable[[Any], bytes] = pack_command
_NUMBERS = frozenset((int, float))
Address = tuple[str, int]
"""Host and port of a server."""
Request = ScriptCall[Any] | RedisCommand[Any]
Requests = Iterable[Request]
Replies = list[Any] | Exception | None
"""The replies to an exchange, or the error of the connection."""


def pack(words: Iterable[Any]) -> bytes:
    """Return a command as it goes over the wire.

    Numbers are made text here: hiredis 3.5 would crash the process if a signal handler raised, as Ctrl-C does, while
    it does so.
    """
    texts = tuple([str(word) if word.__class__ in _NUMBERS else word for word in words])
    try:
        return _pack(texts)
    except UnicodeEncodeError:  # an id of another program that is no UTF-8: its bytes are surrogates
        return _pack(tuple([one.encode("utf-8", "surrogateescape") if isinstance(one, str) else one for one in texts]))


class NotConnectedError(Exception):
    """The connection could not be made, so nothing was sent."""


class ProviderError(NotConnectedError):
    """It is not the network that has failed, but a provider of credentials or a hook of the client."""


class PendingRequest:
    """One request as it goes over the wire."""

    reply: Any = None
    unanswered = True
    """Whether it still needs a final reply; if so, it is sent again."""
    maybe_executed = False
    """Whether it was sent and the reply was lost: Redis may have executed it."""
    last_node: Address | None = None
    """The cluster node it was last sent to."""
    loaded = False
    """Whether its script was loaded because the server did not know it."""
    cut = False
    """Whether the server has closed a connection while its reply was awaited."""
    least = False
    """Whether it asks for the least that can be asked for."""
    with_text = False
    """Whether it carries the text of its script."""

    def __init__(self, request: Request, packed: bytes, slot: CallSlot | None, *, node: Address | None = None) -> None:
        """`slot` is set for a call that must execute once, `node` for a request that is bound to a cluster node."""
        self.request = request
        self.packed = packed
        self.slot = slot
        self.node = node

    @property
    def name(self) -> str:
        """The name of the script or command, for errors."""
        if isinstance(self.request, ScriptCall):
            return self.request.script.name.removesuffix("_one")  # to a user, `send_one` is a send
        return str(self.request.args[0]) if self.request.args else ""

    def pack_with_text(self) -> None:
        """Send the text of the script from now on, for a server that does not keep it."""
        request = self.request
        if isinstance(request, ScriptCall):
            slot = self.slot or ()
            words = (b"EVAL", request.script.text, len(request.keys), *request.keys, *slot, *request.args)
            self._by_digest, self.packed, self.with_text = self.packed, pack(words), True

    def repack(self, change: Callable[[ScriptCall[Any]], ScriptCall[Any]]) -> None:
        """Send another call from now on, under the same slot."""
        if isinstance(self.request, ScriptCall):
            request = change(self.request)
            slot = self.slot or ()
            words = (b"EVALSHA", request.script.sha, len(request.keys), *request.keys, *slot, *request.args)
            self.request, self.packed, self.with_text, self.loaded = request, pack(words), False, False

    def pack_without_text(self) -> None:
        """Send the digest of the script again: the user may not be allowed to send its text."""
        if self.with_text:
            self.packed, self.with_text, self.loaded = self._by_digest, False, False

    @property
    def follows(self) -> bool:
        """Whether it refers to the requests before it in the same round trip."""
        return isinstance(self.request, RedisCommand) and self.request.follows


class Exchange(NamedTuple):
    """One exchange with a server: the bytes to send, and the requests whose replies to read."""

    data: Iterable[bytes]
    """May be produced while it is sent: the server works on the first request while the last is packed."""
    sent: list[PendingRequest]
    """The requests sent so far; each gets one reply."""
    node: Address | None = None
    """The cluster node to send to; None for a single server."""

    def again(self) -> Exchange:
        """Return the same exchange, to be sent once more because it was interrupted."""
        deque(self.data, maxlen=0)  # pack what was not
        return self._replace(data=[one.packed for one in self.sent])
