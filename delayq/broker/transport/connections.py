"""The connections to one Redis server: bytes out, answers back. With `clients`, all that touches redis-py."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

from redis.exceptions import AuthenticationError, RedisError, ResponseError

from delayq.conversation import Address, Exchange, NotConnectedError
from delayq.errors import ServerError

_CLIENT = re.compile(r"<redis\..*?> - ")
"""A client as redis-py shows it before what each Sentinel has said: half a line of nested names."""


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


class _Connections:
    """A server's pool, and those of its connections that are kept between calls."""

    def __init__(self, pool: Any, *, owned: bool) -> None:
        """Take connections of `pool`; `owned` says that it is ours, so that they may be kept and are to be closed."""
        self._pool = pool
        self._get_connection = _getter(pool)
        self._owned = owned
        self._idle = _Idle(keeping=owned)


class Server(_Connections):
    """A server reached by blocking connections; safe to use from several threads."""

    def exchange(self, step: Exchange) -> list[Any] | Exception:
        """Send the bytes and return an answer, or the server's error, for each request; or why there are none."""
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
            self.forget()
            return error
        if self._idle.keeping:
            self._idle.keep(connection)
            return answers
        if self._owned:
            connection.disconnect()
        self._pool.release(connection)
        return answers

    def forget(self) -> None:
        """Close the connections kept, so that the address is asked anew: it may lead to another server by now."""
        while idle := self._idle.take():
            idle.disconnect()
            self._pool.release(idle)

    def close(self) -> None:
        """Close the connections that delayq made; one that still waits for an answer, when it has it."""
        self._idle.keeping = False
        if self._owned:
            while connection := self._idle.take():
                self._pool.release(connection)
            for pool in _pools(self._pool):
                pool.disconnect(inuse_connections=False)


def _read(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


class AsyncServer(_Connections):
    """A server reached by asyncio connections, for the tasks of one event loop."""

    async def exchange(self, step: Exchange) -> list[Any] | Exception:
        """Send and receive; see `Server.exchange`."""
        before = cancellations()
        connection = self._idle.take()
        if connection is None:
            try:
                connection = await self._get_connection()
            except (RedisError, OSError) as error:
                return _refuse(error)
        try:
            await connection.send_packed_command(step.data)
            if cancellations() > before:
                raise asyncio.CancelledError  # noqa: TRY301 - as if it had come out of the line before
            answers = [await _read_async(connection) for _ in step.sent]
        except BaseException as error:
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)
            if not isinstance(error, RedisError | OSError):
                raise
            await self.forget()
            return error
        if self._idle.keeping:
            self._idle.keep(connection)
            return answers
        if self._owned:
            await connection.disconnect(nowait=True)
        await self._pool.release(connection)
        return answers

    async def forget(self) -> None:
        """Close the connections kept; see `Server.forget`."""
        while idle := self._idle.take():
            await idle.disconnect(nowait=True)
            await self._pool.release(idle)

    async def close(self) -> None:
        """Close the connections that delayq made; one that still waits for an answer, when it has it."""
        self._idle.keeping = False
        if self._owned:
            while connection := self._idle.take():
                await self._pool.release(connection)
            for pool in _pools(self._pool):
                await pool.disconnect(inuse_connections=False)


def cancellations() -> int:
    """Return how often the task that runs was cancelled.

    redis-py does not let each of them through: it sends by `asyncio.wait_for`, which up to Python 3.11 swallows one
    that comes when all is sent.
    """
    task = asyncio.current_task()
    return task.cancelling() if task else 0


async def _read_async(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


def _pools(pool: Any) -> list[Any]:
    """Return a pool, and those of the Sentinels that it asks for its server."""
    sentinels = pool.sentinel_manager.sentinels if hasattr(pool, "sentinel_manager") else ()
    return [pool, *(sentinel.connection_pool for sentinel in sentinels)]


class Nodes:
    """The servers of a cluster, each connected to when it is first spoken to."""

    def __init__(self, pool_of: Callable[[Address], Any], kind: Any, *, owned: bool) -> None:
        """Make a `kind` of server out of the pool of each node."""
        self._pool_of = pool_of
        self._kind = kind
        self._owned = owned
        self._known: dict[Address, Any] = {}

    def exchange(self, step: Exchange) -> Any:
        """Have the server that a step is for carry it out."""
        node = cast("Address", step.to)
        # Of two that are made for a node at once, both threads take the same.
        server = self._known.get(node) or self._known.setdefault(
            node, self._kind(self._pool_of(node), owned=self._owned)
        )
        return server.exchange(step)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the servers spoken to."""
        return iter(list(self._known.values()))


def _getter(pool: Any) -> Any:
    """Return the pool's way to hand out a connection; before redis-py 5.3 it wanted the name of a command."""
    named = inspect.signature(pool.get_connection).parameters.get("command_name")
    return partial(pool.get_connection, "EVALSHA") if named and named.default is named.empty else pool.get_connection


def _refuse(error: Exception) -> Exception:
    if isinstance(error, ResponseError | AuthenticationError):
        raise ServerError(f"Redis refused the connection: {error}") from error
    return NotConnectedError(_CLIENT.sub("", str(error)))
