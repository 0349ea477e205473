"""What is said to Redis until every call has its answer: packing, slots, sending again, and what an answer means.

A conversation is a generator that yields bytes to exchange and pauses to make; it moves no byte itself. Each mutating
call gets a slot of this process and the next sequence number of that slot, so that however often it has to be sent
again, it executes once.
"""

from __future__ import annotations

import logging
import random
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple

from hiredis import pack_command
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from delayq.clock import monotonic
from delayq.errors import DelayqError, OutcomeUnknown, QueueFullError, ServerError, UnavailableError
from delayq.operation import Pause
from delayq.script import Script
from delayq.slots import Slots
from delayq.values import Call, Command

log = logging.getLogger("delayq.executor")

pack: Callable[[Any], bytes] = pack_command

MOST_HEADS, LONGEST_HEAD = 1000, 8192
"""Scripts with their keys that are kept packed, and bytes of one: keys of ids do not come again."""
Address = tuple[str, int]
"""Host and port of a server."""
Request = Call[Any] | Command[Any]
Patience = Callable[[], bool]
"""Whether to go on trying while Redis does not answer."""

_PASSING = re.compile(
    r"\b(LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|READONLY|MASTERDOWN|NOREPLICAS|UNBLOCKED)\b|loading the dataset"
)
_PASSING_TYPES = (ReadOnlyError, TryAgainError, ClusterDownError, MasterDownError)
_FULL = re.compile(r"\bOOM\b|used memory > 'maxmemory'")
_FORBIDDEN = re.compile(r"can't run this command.*@user_script:(\d+)|@user_script:(\d+).*can't run this command")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two tries, less up to half of it: a server that is back is noticed within a second."""


class Transmission:
    """One request as it goes over the wire."""

    answer: Any = None
    open = True
    doubtful = False
    """Whether it was sent once without an answer, so that it may have been carried out."""
    met: Address | None = None
    """The node of a cluster it was sent to last."""

    def __init__(
        self, request: Request, packed: bytes, slot: tuple[str, int] | None, *, to: Address | None = None
    ) -> None:
        """Send `request` as `packed`, under a slot if it is to be carried out once, to a node of a cluster if given."""
        self.request = request
        self.packed = packed
        self.slot = slot
        self.to = to

    @property
    def name(self) -> str:
        """What it is called in errors."""
        if isinstance(self.request, Call):
            return self.request.script.name
        return str(self.request.args[0]) if self.request.args else ""

    @property
    def follows(self) -> bool:
        """Whether it is about those sent before it in the same round trip."""
        return isinstance(self.request, Command) and self.request.follows


class Exchange(NamedTuple):
    """Bytes to send, and the requests whose answers are to be read."""

    data: Iterable[bytes]
    """May be made while it is sent, so that the server is at work on the first when the last is packed."""
    sent: list[Transmission]
    """What has been sent so far, an answer each."""
    to: Address | None = None
    """The node of a cluster; None where there is one server."""


Talk = Generator[Exchange | Pause, "list[Any] | Exception | None", list[Any]]


class Conversation:
    """What both executors share: slots, packing, and the conversation with its retries."""

    def __init__(self, *, deadline: float) -> None:
        """Try for `deadline` seconds where Redis does not answer."""
        self.deadline = deadline
        self._slots = Slots()
        self._heads: dict[tuple[Script, tuple[str | bytes, ...]], tuple[int, bytes]] = {}

    @property
    def client_name(self) -> str:
        """A name unique to this start of this process."""
        self._slots.free.append(self._slots.take())
        return self._slots.client

    def _seal(self, request: Request) -> Transmission:
        if isinstance(request, Command):
            return Transmission(request, pack(request.args), None)
        slot = self._slots.take() if request.script.executes_once else None
        try:
            words, head = self._heads[request.script, request.keys]
        except KeyError:
            words, head = _head(request)
            if len(self._heads) < MOST_HEADS and len(head) < LONGEST_HEAD:
                self._heads[request.script, request.keys] = words, head
        # A script and its keys are packed once: they are most of what a call of one message says.
        tail = pack((*(slot or ()), *request.args))
        end = tail.index(b"\n") + 1
        return Transmission(request, b"*%d\r\n%b%b" % (words + int(tail[1:end]), head, tail[end:]), slot)

    def _seal_all(self, requests: Iterable[Request], sent: list[Transmission]) -> Iterator[bytes]:
        for request in requests:
            sent.append(self._seal(request))
            yield sent[-1].packed

    def converse(self, requests: Iterable[Request], patience: Patience | None) -> Talk:
        """Send requests in one round trip until each has its answer; returns answers or errors, in order.

        Requests may come from a generator that does not fail: each is packed and sent while the server is at work on
        those before.
        """
        sent: list[Transmission] = []
        sealing = self._seal_all(requests, sent)
        waiting, data = sent, sealing
        end = monotonic() + self.deadline
        pause = _FIRST_PAUSE
        while True:
            replies = yield Exchange(data, waiting)
            deque(sealing, maxlen=0)  # what an exchange cut short has left
            trouble = _hear(waiting, replies)
            if trouble is None:
                waiting = []
                break
            waiting = [one for one in waiting if one.open]
            data = iter([one.packed for one in waiting])
            if isinstance(trouble, NoScriptError):
                trouble = yield from _load(waiting)
                if trouble is None:
                    continue
                waiting = [one for one in waiting if one.open]
                if not waiting:
                    break
                data = iter([one.packed for one in waiting])
            if not (patience() if patience else monotonic() < end):
                for one in waiting:
                    one.answer = _given_up(one, trouble)
                break
            if patience and pause == _FIRST_PAUSE:
                log.warning("Redis does not answer, trying again: %s", trouble)
            yield Pause(pause * (0.5 + random.random() / 2))  # noqa: S311 - spreading, not secrecy
            pause = min(2 * pause, _LONGEST_PAUSE)
        if patience and pause > _FIRST_PAUSE and not waiting:
            log.info("Redis answers again")
        self._slots.free.extend([one.slot for one in sent if one.slot])
        return [_result(one) for one in sent]


def _head(call: Call[Any]) -> tuple[int, bytes]:
    """Return what every call of a script on the same keys begins with: its number of words, and them packed."""
    words = (b"EVALSHA", call.script.sha, len(call.keys), *call.keys)
    return len(words), pack(words).partition(b"\r\n")[2]


class NotConnectedError(Exception):
    """The connection could not be made, so nothing was sent."""


def _hear(waiting: list[Transmission], replies: list[Any] | Exception | None) -> Exception | None:
    """Take in the outcome of an exchange; returns what keeps some requests open, None if nothing does."""
    if isinstance(replies, Exception):
        if _is_lost(replies):
            for one in waiting:
                one.doubtful = True
        return replies
    trouble: Exception | None = None
    for one, reply in zip(waiting, replies or (), strict=True):
        one.answer = reply
        one.open = isinstance(reply, Exception) and _may_pass(one, reply)
        if one.open and trouble is None:
            trouble = reply
    if trouble is not None:
        _open_followed(waiting)
    return trouble


def _open_followed(waiting: list[Transmission]) -> None:
    """Note what may have been carried out; and have what is followed sent again as a whole with what follows it."""
    for one in waiting:
        one.open = one.open or waiting[-1].follows
        if one.open and (not isinstance(one.answer, Exception) or _is_lost(one.answer)):
            one.doubtful = True


def _is_lost(error: Exception) -> bool:
    """Tell whether an error leaves open what became of the request: of a refusal it is known."""
    return not isinstance(error, NotConnectedError | BusyLoadingError | ResponseError)


def _load(waiting: list[Transmission]) -> Generator[Exchange | Pause, list[Any] | Exception | None, Exception | None]:
    """Load the scripts the server does not know; returns what went wrong, if anything."""
    missing = {
        (one.met, one.request.script)
        for one in waiting
        if isinstance(one.request, Call) and isinstance(one.answer, NoScriptError)
    }
    loading = [
        Transmission(Command((), bool), pack((b"SCRIPT", b"LOAD", script.text)), None, to=node)
        for node, script in missing
    ]
    loaded = yield Exchange([one.packed for one in loading], loading)
    if not isinstance(loaded, list):
        return loaded
    trouble: Exception | None = next((reply for reply in loaded if isinstance(reply, Exception)), None)
    for one in waiting:
        if trouble and isinstance(one.answer, NoScriptError) and not _may_pass(one, trouble):
            one.answer, one.open = _unknown(one, trouble), False
    return trouble


def _unknown(sent: Transmission, trouble: Exception) -> Exception:
    """Return the error of a call whose script could not be loaded."""
    if not isinstance(trouble, NoPermissionError):
        return trouble
    return ServerError(f"{sent.name}: Redis has not this script, and {trouble}: an admin loads all with delayq preload")


def _may_pass(sent: Transmission, error: Exception) -> bool:
    """Tell whether an error is one of a passing state of the server, in which the same call is to be sent again."""
    if isinstance(error, NoScriptError) or not isinstance(error, ResponseError):
        return True
    if _full(error):
        # Only what adds to the queue waits for room: to hold back a claim or a settlement would keep it full.
        return isinstance(sent.request, Call) and sent.request.script.name == "send"
    return _PASSING.search(f"{type(error).__name__} {error}") is not None or type(error) in _PASSING_TYPES


def _full(error: Exception) -> bool:
    return isinstance(error, OutOfMemoryError) or _FULL.search(str(error)) is not None


def _given_up(sent: Transmission, trouble: Exception | None) -> Exception:
    if sent.doubtful and sent.slot:
        return OutcomeUnknown(
            f"{sent.name}: Redis stopped answering; it may or may not have been carried out ({trouble})"
        )
    if isinstance(trouble, ResponseError) and _full(trouble):
        return trouble
    state = "is not ready" if isinstance(trouble, ResponseError | BusyLoadingError) else "cannot be reached"
    return UnavailableError(f"{sent.name} was not carried out: Redis {state} ({trouble})")


def _is_expected(request: Request, error: Exception) -> bool:
    return isinstance(request, Command) and request.expects != "" and str(error).startswith(request.expects)


def _result(sent: Transmission) -> Any:
    answer = sent.answer
    if isinstance(answer, DelayqError):
        return answer
    if isinstance(answer, Exception) and not _is_expected(sent.request, answer):
        text = str(answer)
        if "QUEUEFULL" in text:
            return QueueFullError(text.partition("QUEUEFULL ")[2].partition(" script: ")[0])
        if _full(answer):
            return QueueFullError("Redis is out of memory (maxmemory); nothing was stored")
        if isinstance(answer, MovedError) or text.startswith("MOVED "):
            text = "Redis is a node of a cluster, and the queue is on another: begin the url with redis+cluster://"
        return ServerError(f"{sent.name}: {_told(sent.request, text)}")
    try:
        return sent.request.parse(answer)
    except DelayqError as error:
        return error


def _told(request: Request, text: str) -> str:
    """Return what the server said; of a command that a script may not run, Redis before 7.2 gives only the line."""
    line = _FORBIDDEN.search(text)
    if line is None or not isinstance(request, Call):
        return text[:200]
    return f"this user has no permissions to run the {request.script.commands_at(int(line[1] or line[2]))} command"
