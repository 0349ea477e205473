"""Sans-I/O request protocol: packs calls, assigns idempotence slots, retries, and maps errors.

`RedisProtocol.run` is a generator. It yields the bytes to exchange and the pauses to make; an executor does the I/O.
A single request has its `first` try without it, and then, unless that brings its reply, goes on with `again`.
Each mutating call gets a slot of this process and the next sequence number of that slot. Redis remembers the last reply
of each slot, so a call executes once, however often it is sent.
"""

from __future__ import annotations

import os
import random
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

from redis.exceptions import BusyLoadingError, MovedError, NoPermissionError, NoScriptError, ResponseError

from delayq.broker.message.ids import CallSlot, CallSlots
from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.broker.scripts import BUDGETS, Script, whole
from delayq.broker.transport.failures import EpochError, OutageLog, is_cut, is_lost, is_out_of_memory, is_passing
from delayq.broker.transport.operation import Wait
from delayq.broker.transport.packing import pack
from delayq.errors import (
    CannotConnectError,
    DelayqError,
    OutcomeUnknown,
    QueueFullError,
    ServerError,
    UnavailableError,
    short_repr,
)
from delayq.safe_log import SafeLog
from delayq.values.times import monotonic

log = SafeLog("delayq.executor")

_NO_PERMISSION = re.compile(r"can't run this command.*@user_script:(\d+)|@user_script:(\d+).*can't run this command")
_NO_EVAL = re.compile(r"permissions to run the 'eval' command")
T = TypeVar("T")
Address = tuple[str, int]
"""Host and port of a server."""
Request = ScriptCall[Any] | RedisCommand[Any]
Requests = Iterable[Request]
Replies = list[Any] | Exception | None
"""The replies to an exchange, or the error of the connection."""


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


RAISE_AFTER = 60.0
"""Seconds without such an end of a connection, after which more is asked for again."""


class ReplyBudget:
    """What the calls to one server ask for at a time."""

    def __init__(self) -> None:
        """Start with all that the scripts read by themselves."""
        self.reduced = 0
        """How many of `BUDGETS` were too large, and one more; 0 for none."""
        self._raise_at = 0.0

    def fit(self, request: ScriptCall[Any]) -> ScriptCall[Any]:
        """Return the request with the budget of now; of use while it is reduced."""
        now = monotonic()
        if now >= self._raise_at:
            self.reduced, self._raise_at = self.reduced - 1, now + RAISE_AFTER
        return _reading(request, BUDGETS[self.reduced - 1]) if self.reduced else request

    def reduce(self, error: Exception, waiting: Iterable[PendingRequest]) -> None:
        """Have those that wait for a large reply ask for less, if the error is that the server closes the connection.

        The first end is not counted, as servers restart. In the end a claim is made again for the sizes of large
        payloads in their place.
        """
        large = [one for one in waiting if isinstance(one.request, ScriptCall) and one.request.script.has_budget]
        if not large or not is_cut(error):
            return
        seen = self.reduced or any(one.cut for one in large)
        for one in large:
            one.cut = True
        if not seen:
            return
        self._raise_at = monotonic() + RAISE_AFTER
        budget = BUDGETS[self.reduced]
        if budget:  # the last is for these calls alone: the next claim asks for payloads again
            self.reduced += 1
        for one in large:
            one.repack(lambda call: _reading(call, budget))
        if all(one.least for one in large):
            return  # it is said already
        for one in large:
            one.least = not budget
        text = "Redis closed the connection while %s waited for a reply: asking for %s; is %s too small?"
        what = f"{budget:,} bytes of payloads at a time" if budget else "no large payload"
        log.warning(text, ", ".join(sorted({one.name for one in large})), what, "client-output-buffer-limit")


def _reading(request: ScriptCall[Any], budget: int) -> ScriptCall[Any]:
    script = request.script.reading(budget)  # another one, unless it has no budget
    if script is request.script:
        return request
    parse = request.parse
    return replace(request, script=script, parse=lambda reply: parse(whole(reply)))


MAX_PREFIXES, MAX_PREFIX_BYTES = 1000, 8192
"""Packed prefixes (a script with its keys) to cache, and the size limit of one: long ones hold ids and do not recur."""
ShouldRetry = Callable[[Exception], bool] | None
"""Returns whether to keep trying after an error; None for as long as the deadline allows."""
_FIRST_PAUSE, _MAX_PAUSE = 0.02, 0.5
"""Seconds between two tries, minus up to half at random. A server that is back is noticed within a second."""
Steps = Generator[Exchange | Wait, Replies, T]
ProtocolSteps = Steps[list[Any]]


class RedisProtocol:
    """The protocol with one server, shared by both executors: slots, packing and retries."""

    def __init__(self, *, deadline: float, server: str = "") -> None:
        """Give up after `deadline` seconds without a reply; `server` names the server in messages."""
        self.deadline = deadline
        self._outage_log = OutageLog(server)
        self._call_slots = CallSlots()
        self._budget = ReplyBudget()
        self._prefixes: dict[tuple[Script, tuple[str | bytes, ...]], tuple[int, bytes]] = {}

    @property
    def consumer_id(self) -> str:
        """The id under which this process holds messages, `host:pid:start`; a forked process has its own."""
        return self.call_slots.consumer_id

    @property
    def call_slots(self) -> CallSlots:
        """The slots of this process: a fork must not use its parent's."""
        # Threads that get here at once may each make their own: two calls never share a slot.
        if self._call_slots.pid != os.getpid():
            self._call_slots = CallSlots()
        return self._call_slots

    def _pack(self, request: Request, slots: CallSlots) -> PendingRequest:
        if isinstance(request, RedisCommand):
            return PendingRequest(request, pack(request.args), None)
        request = self._budget.fit(request) if self._budget.reduced else request
        slot = slots.take() if request.script.executes_once else None
        try:
            words, prefix = self._prefixes[request.script, request.keys]
        except KeyError:
            head = (b"EVALSHA", request.script.sha, len(request.keys), *request.keys)
            words, prefix = len(head), pack(head).partition(b"\r\n")[2]
            if len(self._prefixes) < MAX_PREFIXES and len(prefix) < MAX_PREFIX_BYTES:
                self._prefixes[request.script, request.keys] = words, prefix
        # A script and its keys are packed once: they are most of the bytes of a call with one message.
        rest = (*slot, *request.args) if slot else tuple(request.args)
        tail = pack(rest)
        packed = b"*%d\r\n%b%b" % (words + len(rest), prefix, tail[tail.index(b"\n") + 1 :])
        return PendingRequest(request, packed, slot)

    def _pack_all(self, requests: Requests, sent: list[PendingRequest], slots: CallSlots) -> Iterable[bytes]:
        if isinstance(requests, list):  # few and ready: one system call, and threads wait for the GIL after each
            sent.extend(map(self._pack, requests, repeat(slots)))
            return (sent[0].packed if len(sent) == 1 else b"".join([one.packed for one in sent]),)
        return self._pack_each(requests, sent, slots)

    def _pack_each(self, requests: Requests, sent: list[PendingRequest], slots: CallSlots) -> Iterator[bytes]:
        for request in requests:
            sent.append(self._pack(request, slots))
            yield sent[-1].packed

    def first(self, request: Request, deadline: float | None) -> tuple[PendingRequest, CallSlots, float]:
        """Return a single request, ready to send, the slots that its slot goes back to, and the time to give up."""
        slots = self.call_slots
        return self._pack(request, slots), slots, monotonic() + (self.deadline if deadline is None else deadline)

    def run(self, requests: Requests, should_retry: ShouldRetry, deadline: float | None = None) -> ProtocolSteps:
        """Send requests in one round trip until each has a reply; returns replies or errors, in order.

        `requests` may be a generator that does not fail. Each request is then packed and sent while the server works on
        those before it; those of a list are sent in one piece. If the generator is closed, because its call was
        cancelled, it gives the slots back. What no later try can mend ends a call at once, unless `should_retry`
        decides.
        """
        sent, slots = list[PendingRequest](), self.call_slots
        try:
            data = self._pack_all(requests, sent, slots)
            end = monotonic() + (self.deadline if deadline is None else deadline)
            replies = yield Exchange(data, sent)
            deque(data, maxlen=0)  # pack what an interrupted exchange has not
            yield from self.again(sent, replies, should_retry, end)
            return [read_reply(one) for one in sent]
        finally:
            slots.give_back([one.slot for one in sent if one.slot])

    def again(self, sent: list[PendingRequest], replies: Replies, should_retry: ShouldRetry, end: float) -> Steps[None]:
        """Send requests again until each has its final reply, after a first exchange that brought these."""
        waiting, pause, at = sent, _FIRST_PAUSE, ""
        while (error := _record_replies(waiting, replies)) is not None:
            waiting = [one for one in waiting if one.unanswered]
            if isinstance(error, NoScriptError):
                error = yield from _load_scripts(waiting)
                if error is None:
                    replies = yield Exchange(iter([one.packed for one in waiting]), waiting)
                    continue
                waiting = [one for one in waiting if one.unanswered]
            if not waiting:
                break
            passing = monotonic() < end and not isinstance(error, CannotConnectError)
            if not (should_retry(error) if should_retry else passing):
                for one in waiting:
                    one.reply = final_error(one, error, self._outage_log.where([one.last_node]))
                return
            first = pause == _FIRST_PAUSE
            known, at = None if should_retry else end, self._outage_log.where(one.last_node for one in waiting)
            self._outage_log.retrying(error, known, at=at, first=first, lost=is_lost(error))
            yield Wait(pause * (0.5 + random.random() / 2))  # noqa: S311 - spreading, not secrecy
            pause = min(2 * pause, _MAX_PAUSE)
            for one in waiting:
                one.pack_without_text()
            self._budget.reduce(error, waiting)
            replies = yield Exchange(iter([one.packed for one in waiting]), waiting)
        if should_retry and pause > _FIRST_PAUSE:
            self._outage_log.answers(at)


def _record_replies(waiting: list[PendingRequest], replies: Replies) -> Exception | None:
    """Store the replies of an exchange; returns the first error after which requests must be sent again, if any."""
    if isinstance(replies, Exception):
        if is_lost(replies):
            for one in waiting:
                one.maybe_executed = True
        return replies
    error: Exception | None = None
    for one, reply in zip(waiting, replies or (), strict=True):
        one.reply = reply
        one.unanswered = isinstance(reply, Exception) and is_temporary(one, reply)
        if one.unanswered and error is None:
            error = reply
    if error is not None:
        _reopen_followed(waiting)
    return error


def is_temporary(sent: PendingRequest, error: Exception) -> bool:
    """Return whether the same request may succeed later, so that it is sent again."""
    if isinstance(error, NoScriptError) or not isinstance(error, ResponseError):
        return True
    if is_out_of_memory(error):
        # Only what adds to the queue waits for memory: to hold back a claim or a settlement would keep it full.
        return isinstance(sent.request, ScriptCall) and sent.name == "send"
    return is_passing(error) or (sent.with_text and _NO_EVAL.search(str(error)) is not None)


def final_error(one: PendingRequest, error: Exception, at: str) -> Exception:
    """Return the error of a request that had no reply before the deadline; `at` names the server."""
    if one.maybe_executed and one.slot:
        text = f"Redis stopped answering; it may or may not have been carried out ({error}{at})"
        return OutcomeUnknown(f"{one.name}: {text}")
    # The name of a plain command, such as those that open a queue, tells a user nothing.
    what = f"{one.name} was not carried out: " if isinstance(one.request, ScriptCall) else ""
    if isinstance(error, CannotConnectError):
        final: Exception = CannotConnectError(f"{what}cannot connect to Redis{at}: {error}")
        final.__cause__ = error.__cause__
        return final
    if isinstance(error, ResponseError) and is_out_of_memory(error):
        return error
    state = "is not ready" if isinstance(error, ResponseError | BusyLoadingError) else "cannot be reached"
    reason = f"{error}"
    if one.least and is_cut(error):
        reason += " Perhaps its client-output-buffer-limit is too small for the reply."
    return UnavailableError(f"{what}Redis {state}{at}: {reason}")


def read_reply(sent: PendingRequest) -> Any:
    """Return the parsed reply of a request, or the `DelayqError` it failed with."""
    reply = sent.reply
    if isinstance(reply, Exception):
        if isinstance(reply, DelayqError):
            return reply
        expects = sent.request.expects if isinstance(sent.request, RedisCommand) else ()
        code = "NOPERM " if isinstance(reply, NoPermissionError) else ""  # redis-py takes it off
        if not f"{code}{reply}".startswith(expects):
            return _refusal(sent, reply)
    elif reply == b"" and isinstance(sent.request, ScriptCall):
        return OutcomeUnknown(f"{sent.name}: a later call of the same slot has overtaken this one")
    try:
        return sent.request.parse(reply)
    except DelayqError as error:
        return error
    except Exception as error:  # noqa: BLE001 - what another program has stored must not end a consumer
        return ServerError(f"{sent.name}: what is stored cannot be read: {short_repr(error)}")


def _refusal(sent: PendingRequest, error: Exception) -> DelayqError:
    """Return the error of a request that the server refused, with its text shortened."""
    text, node = str(error), sent.last_node
    at = "" if node is None else f" on {node[0]}:{node[1]}"
    if "QUEUEFULL" in text:
        return QueueFullError(text.partition("QUEUEFULL ")[2].partition(" script: ")[0])
    if text.startswith("EPOCH "):
        return EpochError(f"{sent.name}: the queue has other partitions now")
    if is_out_of_memory(error):
        return QueueFullError(f"Redis{at} is out of memory (maxmemory): this call stored nothing")
    line = _NO_PERMISSION.search(text)
    if isinstance(error, MovedError) or text.startswith("MOVED "):
        text = "Redis is a node of a cluster, and the queue is on another: begin the url with redis+cluster://"
    elif line and isinstance(sent.request, ScriptCall):  # Redis before 7.2 names only the line of a forbidden command
        commands = sent.request.script.commands_at(int(line[1] or line[2]))
        text = f"this user has no permissions to run the {commands} command"
    return ServerError(f"{sent.name}{at}: {text[:200]}")


def _reopen_followed(waiting: list[PendingRequest]) -> None:
    """Send a round trip again as a whole if its last request follows the others; note what may have executed."""
    for one in waiting:
        one.unanswered = one.unanswered or waiting[-1].follows
        if one.unanswered and (not isinstance(one.reply, Exception) or is_lost(one.reply)):
            one.maybe_executed = True


def _load_scripts(waiting: list[PendingRequest]) -> Steps[Exception | None]:
    """Load the scripts that the server does not have; returns the error if that fails.

    If a script was loaded before and is missing again, the request gets its text, so that this cannot go on.
    """
    unknown = [one for one in waiting if isinstance(one.reply, NoScriptError)]
    for one in unknown:
        if one.with_text:
            return one.reply  # type: ignore[no-any-return]  # a NoScriptError
        if one.loaded:
            one.pack_with_text()
    scripts = {
        (one.last_node, one.request.script)
        for one in unknown
        if isinstance(one.request, ScriptCall) and not one.with_text
    }
    if not scripts:
        return None
    loading = [
        PendingRequest(RedisCommand((), bool), pack((b"SCRIPT", b"LOAD", script.text)), None, node=node)
        for node, script in scripts
    ]
    loaded = yield Exchange([one.packed for one in loading], loading)
    if not isinstance(loaded, list):
        return loaded
    error: Exception | None = next((reply for reply in loaded if isinstance(reply, Exception)), None)
    for one in unknown:
        one.loaded = error is None
        if error and not is_temporary(one, error):
            one.reply, one.unanswered = error, False
            if isinstance(error, NoPermissionError):
                text = f"{one.name}: Redis does not have this script, and {error}; as an admin, run delayq preload"
                one.reply = ServerError(text)
    return error
