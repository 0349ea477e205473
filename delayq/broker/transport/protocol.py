"""Sans-I/O request protocol: packs calls, assigns idempotence slots, retries, and maps errors.

`RedisProtocol.run` is a generator. It yields the bytes to exchange and the pauses to make; an executor does the I/O.
Each mutating call gets a slot of this process and the next sequence number of that slot. Redis remembers the last reply
of each slot, so a call executes once, however often it is sent.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple

from hiredis import pack_command
from redis.exceptions import BusyLoadingError, MovedError, NoPermissionError, NoScriptError, ResponseError

from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.broker.scripts import Script
from delayq.broker.transport.call_slots import CallSlot, CallSlots
from delayq.broker.transport.operation import Wait
from delayq.broker.transport.outage_log import OutageLog
from delayq.errors import DelayqError, OutcomeUnknown, QueueFullError, ServerError, UnavailableError
from delayq.times import monotonic

pack: Callable[[Any], bytes] = pack_command

MAX_PREFIXES, MAX_PREFIX_BYTES = 1000, 8192
"""Packed prefixes (a script with its keys) to cache, and the size limit of one: long ones hold ids and do not recur."""
Address = tuple[str, int]
"""Host and port of a server."""
Request = ScriptCall[Any] | RedisCommand[Any]
Requests = Iterable[Request]
Replies = list[Any] | Exception | None
"""The replies to an exchange, or the error of the connection."""
ShouldRetry = Callable[[], bool] | None
"""Returns whether to keep trying while Redis does not reply; None for as long as the deadline allows."""

# Errors by their texts, or by the classes of redis-py, which takes the first word off the text of such an error.
_TEMPORARY = re.compile(
    r"\b(LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|READONLY|MASTERDOWN|NOREPLICAS|UNBLOCKED)\b|loading the dataset"
    r"|^(ReadOnly|TryAgain|ClusterDown|MasterDown)Error "
)
_OUT_OF_MEMORY = re.compile(r"\bOOM\b|used memory > 'maxmemory'|^OutOfMemoryError ")
_NO_PERMISSION = re.compile(r"can't run this command.*@user_script:(\d+)|@user_script:(\d+).*can't run this command")
_FIRST_PAUSE, _MAX_PAUSE = 0.02, 0.5
"""Seconds between two tries, minus up to half at random. A server that is back is noticed within a second."""


class PendingRequest:
    """One request as it goes over the wire."""

    reply: Any = None
    unanswered = True
    """Whether it still needs a final reply; if so, it is sent again."""
    maybe_executed = False
    """Whether it was sent and the reply was lost: Redis may have executed it."""
    last_node: Address | None = None
    """The cluster node it was last sent to."""

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
            return self.request.script.name
        return str(self.request.args[0]) if self.request.args else ""

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


ProtocolSteps = Generator[Exchange | Wait, Replies, list[Any]]


class RedisProtocol:
    """The protocol with one server, shared by both executors: slots, packing and retries."""

    def __init__(self, *, deadline: float, server: str = "") -> None:
        """Give up after `deadline` seconds without a reply; `server` names the server in messages."""
        self.deadline = deadline
        self._outage_log = OutageLog(server)
        self._call_slots = CallSlots()
        self._prefixes: dict[tuple[Script, tuple[str | bytes, ...]], tuple[int, bytes]] = {}

    @property
    def consumer_id(self) -> str:
        """The id under which this process holds messages, `host:pid:start`; a forked process has its own."""
        return self.call_slots.consumer_id

    @property
    def call_slots(self) -> CallSlots:
        """The slots of this process: a fork must not use its parent's."""
        # Threads that get here at once may each make their own: two calls never share a slot.
        if self._call_slots.forked:
            self._call_slots = CallSlots()
        return self._call_slots

    def _pack(self, request: Request, slots: CallSlots) -> PendingRequest:
        if isinstance(request, RedisCommand):
            return PendingRequest(request, pack(request.args), None)
        slot = slots.take() if request.script.executes_once else None
        try:
            words, prefix = self._prefixes[request.script, request.keys]
        except KeyError:
            head = (b"EVALSHA", request.script.sha, len(request.keys), *request.keys)
            words, prefix = len(head), pack(head).partition(b"\r\n")[2]
            if len(self._prefixes) < MAX_PREFIXES and len(prefix) < MAX_PREFIX_BYTES:
                self._prefixes[request.script, request.keys] = words, prefix
        # A script and its keys are packed once: they are most of the bytes of a call with one message.
        tail = pack((*(slot or ()), *request.args))
        end = tail.index(b"\n") + 1
        return PendingRequest(request, b"*%d\r\n%b%b" % (words + int(tail[1:end]), prefix, tail[end:]), slot)

    def _pack_all(self, requests: Requests, sent: list[PendingRequest], slots: CallSlots) -> Iterator[bytes]:
        for request in requests:
            sent.append(self._pack(request, slots))
            yield sent[-1].packed

    def run(self, requests: Requests, should_retry: ShouldRetry, deadline: float | None = None) -> ProtocolSteps:
        """Send requests in one round trip until each has a reply; returns replies or errors, in order.

        `requests` may be a generator that does not fail. Each request is packed and sent while the server works on
        those before it. If the generator is closed, because its call was cancelled, it gives the slots back.
        """
        sent: list[PendingRequest] = []
        slots = self.call_slots
        try:
            yield from self._send_until_answered(self._pack_all(requests, sent, slots), sent, should_retry, deadline)
        finally:
            slots.give_back([one.slot for one in sent if one.slot])
        return [read_reply(one) for one in sent]

    def _send_until_answered(
        self,
        packing: Iterator[bytes],
        sent: list[PendingRequest],
        should_retry: ShouldRetry,
        deadline: float | None,
    ) -> Generator[Exchange | Wait, Replies, None]:
        """Send requests, which `packing` adds to `sent`, until each has a reply."""
        waiting, data = sent, packing
        end = monotonic() + (self.deadline if deadline is None else deadline)
        pause = _FIRST_PAUSE
        while True:
            replies = yield Exchange(data, waiting)
            deque(packing, maxlen=0)  # pack what an interrupted exchange has not
            error = _record_replies(waiting, replies)
            if error is None:
                waiting = []
                break
            waiting = [one for one in waiting if one.unanswered]
            data = iter([one.packed for one in waiting])
            if isinstance(error, NoScriptError):
                error = yield from _load_scripts(waiting)
                if error is None:
                    continue
                waiting = [one for one in waiting if one.unanswered]
                if not waiting:
                    break
                data = iter([one.packed for one in waiting])
            if not (should_retry() if should_retry else monotonic() < end):
                for one in waiting:
                    one.reply = _final_error(one, error, self._outage_log.at)
                break
            first = pause == _FIRST_PAUSE
            self._outage_log.retrying(error, None if should_retry else end, first=first, lost=_is_lost(error))
            yield Wait(pause * (0.5 + random.random() / 2))  # noqa: S311 - spreading, not secrecy
            pause = min(2 * pause, _MAX_PAUSE)
        if should_retry and pause > _FIRST_PAUSE and not waiting:
            self._outage_log.answers()


class NotConnectedError(Exception):
    """The connection could not be made, so nothing was sent."""


def _record_replies(waiting: list[PendingRequest], replies: Replies) -> Exception | None:
    """Store the replies of an exchange; returns the first error after which requests must be sent again, if any."""
    if isinstance(replies, Exception):
        if _is_lost(replies):
            for one in waiting:
                one.maybe_executed = True
        return replies
    error: Exception | None = None
    for one, reply in zip(waiting, replies or (), strict=True):
        one.reply = reply
        one.unanswered = isinstance(reply, Exception) and _is_temporary(one, reply)
        if one.unanswered and error is None:
            error = reply
    if error is not None:
        _reopen_followed(waiting)
    return error


def _reopen_followed(waiting: list[PendingRequest]) -> None:
    """Send a round trip again as a whole if its last request follows the others; note what may have executed."""
    for one in waiting:
        one.unanswered = one.unanswered or waiting[-1].follows
        if one.unanswered and (not isinstance(one.reply, Exception) or _is_lost(one.reply)):
            one.maybe_executed = True


def _is_lost(error: Exception) -> bool:
    """Return whether the reply was lost, so that the outcome is unknown. After a refusal it is known."""
    return not isinstance(error, NotConnectedError | BusyLoadingError | ResponseError)


def _load_scripts(waiting: list[PendingRequest]) -> Generator[Exchange | Wait, Replies, Exception | None]:
    """Load the scripts that the server does not have; returns the error if that fails."""
    missing = {
        (one.last_node, one.request.script)
        for one in waiting
        if isinstance(one.request, ScriptCall) and isinstance(one.reply, NoScriptError)
    }
    loading = [
        PendingRequest(RedisCommand((), bool), pack((b"SCRIPT", b"LOAD", script.text)), None, node=node)
        for node, script in missing
    ]
    loaded = yield Exchange([one.packed for one in loading], loading)
    if not isinstance(loaded, list):
        return loaded
    error: Exception | None = next((reply for reply in loaded if isinstance(reply, Exception)), None)
    for one in waiting:
        if error and isinstance(one.reply, NoScriptError) and not _is_temporary(one, error):
            one.reply, one.unanswered = error, False
            if isinstance(error, NoPermissionError):
                text = f"{one.name}: Redis does not have this script, and {error}; as an admin, run delayq preload"
                one.reply = ServerError(text)
    return error


def _is_temporary(sent: PendingRequest, error: Exception) -> bool:
    """Return whether the server can recover from an error, so that the same call is sent again."""
    if isinstance(error, NoScriptError) or not isinstance(error, ResponseError):
        return True
    if _is_out_of_memory(error):
        # Only what adds to the queue waits for memory: to hold back a claim or a settlement would keep it full.
        return isinstance(sent.request, ScriptCall) and sent.request.script.name == "send"
    return _TEMPORARY.search(_described(error)) is not None


def _is_out_of_memory(error: Exception) -> bool:
    return _OUT_OF_MEMORY.search(_described(error)) is not None


def _described(error: Exception) -> str:
    return f"{type(error).__name__} {error}"


def _final_error(one: PendingRequest, error: Exception | None, at: str) -> Exception:
    """Return the error of a request that had no reply before the deadline."""
    if one.maybe_executed and one.slot:
        return OutcomeUnknown(f"{one.name}: Redis stopped answering; it may or may not have been carried out ({error})")
    if isinstance(error, ResponseError) and _is_out_of_memory(error):
        return error
    state = "is not ready" if isinstance(error, ResponseError | BusyLoadingError) else "cannot be reached"
    # The name of a plain command, such as those that open a queue, tells a user nothing.
    what = f"{one.name} was not carried out: " if isinstance(one.request, ScriptCall) else ""
    return UnavailableError(f"{what}Redis {state}{at}: {error}")


def read_reply(sent: PendingRequest) -> Any:
    """Return the parsed reply of a request, or the `DelayqError` it failed with."""
    reply = sent.reply
    if isinstance(reply, DelayqError):
        return reply
    expects = sent.request.expects if isinstance(sent.request, RedisCommand) else ""
    if isinstance(reply, Exception) and not (expects and str(reply).startswith(expects)):
        return _refusal(sent, reply)
    if reply == b"" and isinstance(sent.request, ScriptCall):
        return OutcomeUnknown(f"{sent.name}: a later call of the same slot has overtaken this one")
    try:
        return sent.request.parse(reply)
    except DelayqError as error:
        return error


def _refusal(sent: PendingRequest, error: Exception) -> DelayqError:
    """Return the error of a request that the server refused, with its text shortened."""
    text = str(error)
    if "QUEUEFULL" in text:
        return QueueFullError(text.partition("QUEUEFULL ")[2].partition(" script: ")[0])
    if _is_out_of_memory(error):
        return QueueFullError("Redis is out of memory (maxmemory); nothing was stored")
    line = _NO_PERMISSION.search(text)
    if isinstance(error, MovedError) or text.startswith("MOVED "):
        text = "Redis is a node of a cluster, and the queue is on another: begin the url with redis+cluster://"
    elif line and isinstance(sent.request, ScriptCall):  # Redis before 7.2 names only the line of a forbidden command
        commands = sent.request.script.commands_at(int(line[1] or line[2]))
        text = f"this user has no permissions to run the {commands} command"
    return ServerError(f"{sent.name}: {text[:200]}")
