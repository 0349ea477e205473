"""Carries calls out on a Redis: the only module that touches a client.

What is said is decided by a `Conversation`; `Executor` and `AsyncExecutor` only move its bytes and make its pauses.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, TypeVar, cast

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from delayq.calls import Call, Command
from delayq.config import QueueOptions, Settings, find_url
from delayq.conversation import Conversation, Exchange, NotConnectedError, Patience, Request
from delayq.errors import ConfigurationError, DelayqError, ServerError
from delayq.operation import Operation, Pause, single

T = TypeVar("T")


class _Idle:
    """Connections of our own kept between calls: a pool costs as much as a tenth of a round trip each time."""

    def __init__(self, *, keeping: bool) -> None:
        self.keeping = keeping
        self._kept: list[Any] = []
        self._pid = os.getpid()

    def take(self) -> Any:
        """Return a connection, or None; a forked process has none of its parent's."""
        if self._pid != os.getpid():
            self._kept, self._pid = [], os.getpid()
        try:
            return self._kept.pop()
        except IndexError:
            return None

    def keep(self, connection: Any) -> None:
        """Keep a connection whose answers have all been read."""
        self._kept.append(connection)


class _Client(Conversation):
    """A client and its connections."""

    def __init__(self, client: Any, *, deadline: float, owned: bool) -> None:
        """Use `client`; `owned` says that closing the executor closes it. `deadline` in seconds."""
        super().__init__(deadline=deadline)
        self.client = client
        self._pool = client.connection_pool
        self._get_connection = _getter(self._pool)
        self._owned = owned
        self._idle = _Idle(keeping=owned)


class Executor(_Client):
    """Carries calls out on a blocking client; safe to use from several threads."""

    def call(self, request: Call[T] | Command[T]) -> T:
        """Carry out one call and return its answer; raises what went wrong."""
        return self.perform(single(request))

    def run(self, requests: Iterable[Request], *, patience: Patience | None = None) -> list[Any]:
        """Carry out calls in one round trip; returns an answer or a `DelayqError` for each.

        Tries again while Redis does not answer, until the deadline or while `patience` says so.
        """
        conversation = self.converse(requests, patience)
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
                    continue
                answers = self.run(step)
                trouble = _trouble(answers)
                step = operation.throw(trouble) if trouble else operation.send(answers)
        except StopIteration as end:
            return cast("T", end.value)

    def _exchange(self, step: Exchange) -> list[Any] | Exception:
        connection = self._idle.take()
        if connection is None:
            try:
                connection = self._get_connection()
            except (RedisError, OSError) as error:
                return _refuse(error)
        try:
            connection.send_packed_command(step.data)
            answers = [_read(connection) for _ in step.sent]
        except BaseException as error:
            connection.disconnect()
            self._pool.release(connection)
            if not isinstance(error, RedisError | OSError):
                raise
            # Where one has fallen silent, the others may have too: to try them in turn would cost a time-out each.
            while idle := self._idle.take():
                idle.disconnect()
                self._pool.release(idle)
            return error
        if self._idle.keeping:
            self._idle.keep(connection)
            return answers
        if self._owned:
            connection.disconnect()
        self._pool.release(connection)
        return answers

    def close(self) -> None:
        """Close the connections that delayq made; one that still waits for an answer, when it has it."""
        self._idle.keeping = False
        if self._owned:
            while connection := self._idle.take():
                self._pool.release(connection)
            self._pool.disconnect(inuse_connections=False)


def _read(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


class AsyncExecutor(_Client):
    """Carries calls out on an asyncio client, for the tasks of one event loop."""

    async def call(self, request: Call[T] | Command[T]) -> T:
        """Carry out one call and return its answer; raises what went wrong."""
        return await self.perform(single(request))

    async def run(self, requests: Iterable[Request], *, patience: Patience | None = None) -> list[Any]:
        """Carry out calls in one round trip; see `Executor.run`."""
        conversation = self.converse(requests, patience)
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
                    continue
                answers = await self.run(step)
                trouble = _trouble(answers)
                step = operation.throw(trouble) if trouble else operation.send(answers)
        except StopIteration as end:
            return cast("T", end.value)

    async def _exchange(self, step: Exchange) -> list[Any] | Exception:
        connection = self._idle.take()
        if connection is None:
            try:
                connection = await self._get_connection()
            except (RedisError, OSError) as error:
                return _refuse(error)
        try:
            await connection.send_packed_command(step.data)
            answers = [await _read_async(connection) for _ in step.sent]
        except BaseException as error:
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)
            if not isinstance(error, RedisError | OSError):
                raise
            while idle := self._idle.take():
                await idle.disconnect(nowait=True)
                await self._pool.release(idle)
            return error
        if self._idle.keeping:
            self._idle.keep(connection)
            return answers
        if self._owned:
            await connection.disconnect(nowait=True)
        await self._pool.release(connection)
        return answers

    async def close(self) -> None:
        """Close the connections that delayq made; one that still waits for an answer, when it has it."""
        self._idle.keeping = False
        if self._owned:
            while connection := self._idle.take():
                await self._pool.release(connection)
            await self._pool.disconnect(inuse_connections=False)


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
    return NotConnectedError(str(error))


def _trouble(answers: list[Any]) -> DelayqError | None:
    return next((answer for answer in answers if isinstance(answer, DelayqError)), None)


def open_executor(options: QueueOptions, settings: Settings) -> Executor:
    """Return an executor on the client an option gives, or on one of its own for the URL."""
    client = options.get("redis")
    if client is not None:
        return Executor(_given(client, redis.Redis), deadline=settings.deadline / 1000, owned=False)
    url = find_url(options)
    if name := _memory_name(url):
        # Nothing to close: there is no socket, and fakeredis cannot end a blocking wait of another thread.
        return Executor(_embedded("FakeRedis", name), deadline=settings.deadline / 1000, owned=False)
    made = _connected(redis.Redis, url, settings, retry=Retry(NoBackoff(), 0))
    return Executor(made, deadline=settings.deadline / 1000, owned=True)


def open_async_executor(options: QueueOptions, settings: Settings) -> AsyncExecutor:
    """Return an asyncio executor on the client an option gives, or on one of its own for the URL."""
    client = options.get("redis")
    if client is not None:
        return AsyncExecutor(_given(client, redis.asyncio.Redis), deadline=settings.deadline / 1000, owned=False)
    url = find_url(options)
    if name := _memory_name(url):
        # Nothing to close: there is no socket, and fakeredis cannot end a blocking wait of another thread.
        return AsyncExecutor(_embedded("FakeAsyncRedis", name), deadline=settings.deadline / 1000, owned=False)
    made = _connected(redis.asyncio.Redis, url, settings, retry=redis.asyncio.retry.Retry(NoBackoff(), 0))
    return AsyncExecutor(made, deadline=settings.deadline / 1000, owned=True)


def _given(client: Any, kind: Any) -> Any:
    if not isinstance(client, kind):
        raise ConfigurationError(f"redis must be a {kind.__module__}.{kind.__name__}, not {type(client).__name__}")
    if client.connection_pool.connection_kwargs.get("decode_responses"):
        raise ConfigurationError("the client has decode_responses=True, and payloads are bytes: make it without")
    return client


def _connected(kind: Any, url: str, settings: Settings, retry: Any) -> Any:
    """Return a client of our own. What is wrong with a URL is not quoted: any part of it may be of a password."""
    scheme, colon, _ = url.partition("://")
    if not colon or scheme not in ("redis", "rediss", "unix"):
        raise ConfigurationError("url must begin with redis://, rediss://, unix:// or memory://")
    timeout = settings.socket_timeout / 1000
    limits = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": retry}
    if scheme != "unix":
        limits["socket_keepalive"] = True
    try:
        client = kind.from_url(url, **limits)
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # refuses options that redis-py does not know
    except (ValueError, TypeError):
        text = "url is malformed: check its port and options, and percent-encode reserved characters of its password"
        raise ConfigurationError(text) from None
    return _given(client, kind)


def _memory_name(url: str) -> str | None:
    return (url.removeprefix("memory://") or "default") if url.startswith("memory://") else None


_MEMORY: dict[str, Any] = {}
"""The embedded servers of this process by name, shared between its queues."""


def _embedded(kind: str, name: str) -> Any:
    try:
        import fakeredis
        import lupa  # noqa: F401 - what fakeredis runs the scripts with
    except ImportError as error:
        raise ConfigurationError("memory:// needs the extra: pip install 'delayq[embedded]'") from error
    server = _MEMORY.setdefault(name, fakeredis.FakeServer(version=(7,)))
    return getattr(fakeredis, kind)(server=server)
