"""Carries calls out on a Redis: the only module that touches a client.

Each mutating call gets a slot of this process and the next sequence number of that slot, so that however often it has
to be sent again, it executes once. What is sent, when it is sent again and what an answer means is decided by one
generator, `_conversation`; `Executor` and `AsyncExecutor` only move bytes and sleep.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import random
import re
import secrets
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, cast
from urllib.parse import urlsplit

import redis
import redis.asyncio
from hiredis import pack_command
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.retry import Retry

from delayq.calls import Call, Command
from delayq.config import QueueOptions, Settings, find_url
from delayq.errors import (
    ConfigurationError,
    DelayqError,
    OutcomeUnknown,
    QueueFullError,
    ServerError,
    UnavailableError,
)
from delayq.operation import Operation, Pause

log = logging.getLogger("delayq.executor")

T = TypeVar("T")
Request = Call[Any] | Command[Any]
Patience = Callable[[], bool]
"""Whether to go on trying while Redis does not answer."""

_PASSING = re.compile(r"\b(LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|READONLY|MASTERDOWN|NOREPLICAS)\b|loading the dataset")
_FULL = re.compile(r"\bOOM\b|used memory > 'maxmemory'")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0


class Exchange(NamedTuple):
    """Bytes to send, and how many answers to read."""

    data: bytes
    answers: int


_Conversation = Generator[Exchange | Pause, "list[Any] | Exception | None", list[Any]]


@dataclass(slots=True)
class _Slots:
    """The call slots of this process: one call in flight each, taken and given back around every call."""

    client: str = ""
    pid: int = 0
    free: list[tuple[str, int]] = field(default_factory=list)
    made: int = 0

    def take(self) -> tuple[str, int]:
        if self.pid != os.getpid():  # a fork must not answer in its parent's name
            self.client, self.pid, self.free, self.made = secrets.token_hex(6), os.getpid(), [], 0
        try:
            slot, sequence = self.free.pop()
        except IndexError:
            self.made += 1
            return f"{self.client}.{self.made}", 1
        return slot, sequence + 1


@dataclass(slots=True)
class _Sent:
    """One request as it goes over the wire."""

    request: Request
    packed: bytes
    slot: tuple[str, int] | None
    answer: Any = None
    open: bool = True


class _Core:
    """What both executors share: slots, packing, and the conversation with its retries."""

    _pool: Any

    def __init__(self, *, deadline: float) -> None:
        self.deadline = deadline
        self._slots = _Slots()

    @property
    def longest_block(self) -> float:
        """The longest a blocking command may wait, in seconds, so that its answer comes within the socket's time-out."""
        timeout = self._pool.connection_kwargs.get("socket_timeout")
        return 60.0 if timeout is None else float(timeout) / 2

    @property
    def client_name(self) -> str:
        """A name unique to this start of this process."""
        self._slots.free.append(self._slots.take())
        return self._slots.client

    def _seal(self, request: Request) -> _Sent:
        if isinstance(request, Command):
            return _Sent(request, pack_command(request.args), None)
        script = request.script
        head = (b"EVALSHA", script.sha, len(request.keys), *request.keys)
        if not script.executes_once:
            return _Sent(request, pack_command((*head, *request.args)), None)
        slot = self._slots.take()
        return _Sent(request, pack_command((*head, *slot, *request.args)), slot)

    def _conversation(self, requests: Sequence[Request], patience: Patience | None) -> _Conversation:
        """Send requests in one round trip until each has its answer; returns answers or errors, in order."""
        sent = [self._seal(request) for request in requests]
        waiting, pause, reached = sent, _FIRST_PAUSE, False
        end = time.monotonic() + self.deadline
        while True:
            replies = yield Exchange(b"".join([one.packed for one in waiting]), len(waiting))
            trouble = replies if isinstance(replies, Exception) else None
            if isinstance(replies, list):
                reached = True
                for one, reply in zip(waiting, replies, strict=True):
                    one.answer = reply
                    one.open = isinstance(reply, RedisError) and _may_pass(one, reply)
                waiting = [one for one in waiting if one.open]
                if not waiting:
                    break
                missing = {one.request.script for one in waiting if isinstance(one.answer, NoScriptError)}  # type: ignore[union-attr]
                if missing:
                    load = [pack_command((b"SCRIPT", b"LOAD", script.text)) for script in missing]
                    loaded = yield Exchange(b"".join(load), len(load))
                    if isinstance(loaded, list) and not any(isinstance(reply, Exception) for reply in loaded):
                        continue
                trouble = waiting[0].answer
            elif not isinstance(trouble, _NotConnectedError):
                reached = True
            if not (patience() if patience else time.monotonic() < end):
                for one in waiting:
                    one.answer = _given_up(one, trouble, reached=reached)
                break
            if patience and pause == _FIRST_PAUSE:
                log.warning("Redis does not answer, trying again: %s", trouble)
            yield Pause(pause * (0.5 + random.random() / 2))  # noqa: S311 - spreading, not secrecy
            pause = min(2 * pause, _LONGEST_PAUSE)
        if patience and pause > _FIRST_PAUSE and not waiting:
            log.info("Redis answers again")
        for one in sent:
            if one.slot:
                self._slots.free.append(one.slot)
        return [_result(one) for one in sent]


class _NotConnectedError(Exception):
    """The connection could not be made, so nothing was sent."""


def _may_pass(sent: _Sent, error: RedisError) -> bool:
    """Tell whether an error is one of a passing state of the server, in which the same call is to be sent again."""
    if isinstance(error, NoScriptError):
        return True
    if _full(error):
        # Only what adds to the queue waits for room: to hold back a claim or a settlement would keep it full.
        return isinstance(sent.request, Call) and sent.request.script.name == "send"
    return _PASSING.search(f"{type(error).__name__} {error}") is not None or type(error) in _PASSING_TYPES


_PASSING_TYPES = (
    redis.exceptions.BusyLoadingError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.TryAgainError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.MasterDownError,
)


def _full(error: Exception) -> bool:
    return isinstance(error, redis.exceptions.OutOfMemoryError) or _FULL.search(str(error)) is not None


def _given_up(sent: _Sent, trouble: Exception | None, *, reached: bool) -> Exception:
    if isinstance(trouble, ResponseError) and not isinstance(trouble, NoScriptError):
        return trouble
    name = sent.request.script.name if isinstance(sent.request, Call) else str(sent.request.args[0])
    if reached and sent.slot:
        return OutcomeUnknown(f"{name}: Redis stopped answering; it may or may not have been carried out ({trouble})")
    return UnavailableError(f"{name} was not carried out: Redis cannot be reached ({trouble})")


def _result(sent: _Sent) -> Any:
    answer = sent.answer
    if isinstance(answer, DelayqError):
        return answer
    if isinstance(answer, Exception):
        text = str(answer)
        if "QUEUEFULL" in text:
            return QueueFullError(text[text.index("QUEUEFULL") + 10 :].split(" script: ")[0])
        if _full(answer):
            return QueueFullError("Redis is out of memory (maxmemory); nothing was stored")
        name = sent.request.script.name if isinstance(sent.request, Call) else str(sent.request.args[0])
        return ServerError(f"{name}: {text[:200]}")
    try:
        return sent.request.parse(answer)
    except DelayqError as error:
        return error


class _Connection(Protocol):
    def connect(self) -> Any: ...
    def send_packed_command(self, command: Any) -> Any: ...
    def read_response(self) -> Any: ...
    def disconnect(self) -> Any: ...


class Executor(_Core):
    """Carries calls out on a blocking client; safe to use from several threads."""

    def __init__(self, client: Any, *, deadline: float, owned: bool) -> None:
        """Use `client`; `owned` says that closing the executor closes it. `deadline` in seconds."""
        super().__init__(deadline=deadline)
        self.client = client
        self._pool = client.connection_pool
        self._get_connection = _getter(self._pool)
        self._owned = owned

    def call(self, request: Call[T] | Command[T]) -> T:
        """Carry out one call and return its answer; raises what went wrong."""
        return cast("T", _sound(self.run([request]))[0])

    def run(self, requests: Sequence[Request], *, patience: Patience | None = None) -> list[Any]:
        """Carry out calls in one round trip; returns an answer or a `DelayqError` for each.

        Tries again while Redis does not answer, until the deadline or while `patience` says so.
        """
        conversation = self._conversation(requests, patience)
        step = next(conversation)
        try:
            while True:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    step = conversation.send(None)
                else:
                    step = conversation.send(self._exchange(step))
        except StopIteration as end:
            return cast("list[Any]", end.value)

    def perform(self, operation: Operation[T]) -> T:
        """Carry out an operation, call by call; raises what went wrong."""
        try:
            step = next(operation)
            while True:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    step = operation.send([])
                else:
                    step = operation.send(_sound(self.run(step)))
        except StopIteration as end:
            return cast("T", end.value)

    def _exchange(self, step: Exchange) -> list[Any] | Exception:
        connection = None
        try:
            connection = self._get_connection()
            connection.send_packed_command([step.data])
            return [_read(connection) for _ in range(step.answers)]
        except BaseException as error:
            if connection is None:
                if isinstance(error, RedisError | OSError):
                    return _refuse(error)
                raise
            connection.disconnect()
            if isinstance(error, RedisError | OSError):
                return error
            raise
        finally:
            if connection is not None:
                self._pool.release(connection)

    def close(self) -> None:
        """Close the connections that delayq made."""
        if self._owned:
            self.client.close()
            self._pool.disconnect()


def _read(connection: _Connection) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


class AsyncExecutor(_Core):
    """Carries calls out on an asyncio client, for the tasks of one event loop."""

    def __init__(self, client: Any, *, deadline: float, owned: bool) -> None:
        """Use `client`; `owned` says that closing the executor closes it. `deadline` in seconds."""
        super().__init__(deadline=deadline)
        self.client = client
        self._pool = client.connection_pool
        self._get_connection = _getter(self._pool)
        self._owned = owned

    async def call(self, request: Call[T] | Command[T]) -> T:
        """Carry out one call and return its answer; raises what went wrong."""
        return cast("T", _sound(await self.run([request]))[0])

    async def run(self, requests: Sequence[Request], *, patience: Patience | None = None) -> list[Any]:
        """Carry out calls in one round trip; see `Executor.run`."""
        conversation = self._conversation(requests, patience)
        step = next(conversation)
        try:
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    step = conversation.send(None)
                else:
                    step = conversation.send(await self._exchange(step))
        except StopIteration as end:
            return cast("list[Any]", end.value)

    async def perform(self, operation: Operation[T]) -> T:
        """Carry out an operation, call by call; raises what went wrong."""
        try:
            step = next(operation)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    step = operation.send([])
                else:
                    step = operation.send(_sound(await self.run(step)))
        except StopIteration as end:
            return cast("T", end.value)

    async def _exchange(self, step: Exchange) -> list[Any] | Exception:
        connection = None
        try:
            connection = await self._get_connection()
            await connection.send_packed_command([step.data])
            return [await _read_async(connection) for _ in range(step.answers)]
        except BaseException as error:
            if connection is None:
                if isinstance(error, RedisError | OSError):
                    return _refuse(error)
                raise
            await connection.disconnect(nowait=True)
            if isinstance(error, RedisError | OSError):
                return error
            raise
        finally:
            if connection is not None:
                await self._pool.release(connection)

    async def close(self) -> None:
        """Close the connections that delayq made."""
        if self._owned:
            await self.client.aclose()
            await self._pool.disconnect()


async def _read_async(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


def _getter(pool: Any) -> Any:
    """Return the pool's way to hand out a connection; before redis-py 5.3 it wanted the name of a command."""
    named = inspect.signature(pool.get_connection).parameters.get("command_name")
    return partial(pool.get_connection, "EVALSHA") if named and named.default is named.empty else pool.get_connection


def _refuse(error: Exception) -> Exception:
    if isinstance(error, ResponseError | redis.exceptions.AuthenticationError):
        raise ServerError(f"Redis refused the connection: {error}") from error
    return _NotConnectedError(str(error))


def _sound(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, DelayqError):
            raise answer
    return answers


def open_executor(options: QueueOptions, settings: Settings) -> Executor:
    """Return an executor on the client an option gives, or on one of its own for the URL."""
    client = options.get("redis")
    if client is not None:
        return Executor(_given(client, redis.Redis), deadline=settings.deadline / 1000, owned=False)
    url = find_url(options)
    if name := _memory_name(url):
        made: Any = _embedded("FakeRedis", name)
    else:
        made = _connected(redis.Redis, url, settings, retry=Retry(NoBackoff(), 0))
    return Executor(made, deadline=settings.deadline / 1000, owned=True)


def open_async_executor(options: QueueOptions, settings: Settings) -> AsyncExecutor:
    """Return an asyncio executor on the client an option gives, or on one of its own for the URL."""
    client = options.get("redis")
    if client is not None:
        return AsyncExecutor(_given(client, redis.asyncio.Redis), deadline=settings.deadline / 1000, owned=False)
    url = find_url(options)
    if name := _memory_name(url):
        made: Any = _embedded("FakeAsyncRedis", name)
    else:
        made = _connected(redis.asyncio.Redis, url, settings, retry=redis.asyncio.retry.Retry(NoBackoff(), 0))
    return AsyncExecutor(made, deadline=settings.deadline / 1000, owned=True)


def _given(client: Any, kind: type) -> Any:
    if not isinstance(client, kind):
        raise ConfigurationError(f"redis must be a {kind.__module__}.{kind.__name__}, not {type(client).__name__}")
    if client.connection_pool.connection_kwargs.get("decode_responses"):
        raise ConfigurationError("the client has decode_responses=True, and payloads are bytes: make it without")
    return client


def _connected(kind: Any, url: str, settings: Settings, retry: Any) -> Any:
    timeout = settings.socket_timeout / 1000
    limits = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": retry}
    try:
        scheme = urlsplit(url).scheme
        if scheme not in ("redis", "rediss", "unix"):
            raise ValueError(f"unknown scheme {scheme!r:.20}")  # noqa: TRY301 - one text for every bad URL
        if scheme != "unix":
            limits["socket_keepalive"] = True
        return kind.from_url(url, **limits)
    except ValueError as error:
        raise ConfigurationError(
            f"url must begin with redis://, rediss://, unix:// or memory:// and be well-formed: {error}"
        ) from error


def _memory_name(url: str) -> str | None:
    return (url.removeprefix("memory://") or "default") if url.startswith("memory://") else None


_MEMORY: dict[str, Any] = {}
"""The embedded servers of this process by name, shared between its queues."""


def _embedded(kind: str, name: str) -> Any:
    try:
        import fakeredis  # noqa: PLC0415 - an extra, loaded only where it is asked for
        import lupa  # noqa: F401, PLC0415
    except ImportError as error:
        raise ConfigurationError("memory:// needs the extra: pip install 'delayq[embedded]'") from error
    server = _MEMORY.setdefault(name, fakeredis.FakeServer(version=(7,)))
    return getattr(fakeredis, kind)(server=server)
