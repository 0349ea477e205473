"""Connections to Redis servers: send bytes, read replies. Only this module and `clients` use redis-py."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, cast

from redis.exceptions import AuthenticationError, RedisError, ResponseError

from delayq.broker.transport.clients import sends_plainly, uses_tls
from delayq.broker.transport.cluster import Exchanges
from delayq.broker.transport.failures import connection_error
from delayq.broker.transport.protocol import Address, Exchange


class _IdleConnections:
    """A server's connection pool, and idle connections kept between calls: the pool costs a tenth of a round trip."""

    def __init__(self, pool: Any, *, owned: bool) -> None:
        """Take connections from `pool`. If it is `owned`, connections are kept between calls and closed in the end."""
        self._pool = pool
        self._get_connection = _getter(pool)
        self._owned = self._keeping = owned
        self._idle: list[Any] = []
        self._pid = os.getpid()

    def _take_idle(self) -> Any:
        """Return an idle connection, or None; a forked process does not use its parent's."""
        if self._pid != os.getpid():
            self._idle, self._pid = [], os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _refused(self, error: Exception) -> Exception:
        return connection_error(error, tls=any(map(uses_tls, _pools(self._pool))))

    def _failed(self, error: RedisError | OSError) -> Exception:
        """Return the error of an exchange; a server that asks for the login has executed nothing."""
        return self._refused(error) if isinstance(error, AuthenticationError) else error


class Connections(_IdleConnections):
    """Blocking connections to a server; safe to use from several threads."""

    def exchange(self, step: Exchange) -> list[Any] | Exception:
        """Send the bytes; returns a reply or the server's error for each request, or the error of the connection."""
        begun = self.begin(step)
        return begun if isinstance(begun, Exception) else self.finish(begun, step)

    def begin(self, step: Exchange) -> Any:
        """Send the bytes; returns the connection to read the replies from, or its error."""
        connection = self._take_idle()
        if connection is None:
            try:
                connection = self._get_connection()
            except (RedisError, OSError) as error:
                return self._refused(error)
            except Exception as error:  # noqa: BLE001 - a provider of credentials may raise anything
                self._pool.disconnect(inuse_connections=False)  # redis-py keeps the connection without a login
                return self._refused(error)
        try:
            connection.send_packed_command(step.data)
        except (RedisError, OSError) as error:
            return self._lost(connection, error)
        except BaseException:
            self.drop(connection)
            raise
        return connection

    def drop(self, connection: Any) -> None:
        """Close a connection whose replies are not read."""
        connection.disconnect()
        self._pool.release(connection)

    def _lost(self, connection: Any, error: RedisError | OSError) -> Exception:
        self.drop(connection)
        # If one connection has failed, the others may have too: trying each would cost a timeout each.
        self.forget()
        return self._failed(error)

    def finish(self, connection: Any, step: Exchange) -> list[Any] | Exception:
        """Read a reply or the server's error for each request; returns the error of the connection if it fails."""
        try:
            replies = [_read(connection) for _ in step.sent]
        except (RedisError, OSError) as error:
            return self._lost(connection, error)
        except BaseException:
            self.drop(connection)
            raise
        if self._keeping:
            self._idle.append(connection)
            return replies
        if self._owned:
            connection.disconnect()
        self._pool.release(connection)
        return replies

    def forget(self) -> None:
        """Close the idle connections, so that the address is resolved again: it may lead to another server by now."""
        while idle := self._take_idle():
            idle.disconnect()
            self._pool.release(idle)

    def close(self) -> None:
        """Close the connections that delayq made; a connection in use is closed after its reply."""
        self._keeping = False
        if self._owned:
            while connection := self._take_idle():
                self._pool.release(connection)
            for pool in _pools(self._pool):
                pool.disconnect(inuse_connections=False)


def _read(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


class AsyncConnections(_IdleConnections):
    """Asyncio connections to a server, for the tasks of one event loop."""

    async def exchange(self, step: Exchange) -> list[Any] | Exception:
        """Send and receive; see `Connections.exchange`."""
        before = cancellations()
        connection = self._take_idle()
        if connection is None:
            try:
                connection = await self._get_connection()
            except Exception as error:  # noqa: BLE001 - a provider of credentials may raise anything
                check_cancelled(before)
                if not isinstance(error, RedisError | OSError):
                    await self._pool.disconnect(inuse_connections=False)  # redis-py keeps it without a login
                return self._refused(error)
        try:
            await _send_async(connection, step.data)
            check_cancelled(before)
            replies = [await _read_async(connection) for _ in step.sent]
        except BaseException as error:
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)
            if not isinstance(error, RedisError | OSError):
                raise
            check_cancelled(before)
            await self.forget()
            return self._failed(error)
        if self._keeping:
            self._idle.append(connection)
            return replies
        if self._owned:
            await connection.disconnect(nowait=True)
        await self._pool.release(connection)
        return replies

    async def forget(self) -> None:
        """Close the idle connections; see `Connections.forget`."""
        while idle := self._take_idle():
            await idle.disconnect(nowait=True)
            await self._pool.release(idle)

    def abandon(self) -> None:
        """Forget the connections of event loops that are closed: nothing can be sent over them, and no end either."""
        self._idle.clear()
        for pool in _pools(self._pool):
            _drop_closed(pool)

    async def close(self) -> None:
        """Close the connections that delayq made; a connection in use is closed after its reply."""
        self._keeping = False
        if self._owned:
            while connection := self._take_idle():
                await self._pool.release(connection)
            for pool in _pools(self._pool):
                await pool.disconnect(inuse_connections=False)


def _drop_closed(pool: Any) -> None:
    """Take the connections out of a pool whose event loop is closed, and replace what waits for its turn in it."""
    for name in ("_available_connections", "_in_use_connections"):
        connections: Any = getattr(pool, name, ())
        for connection in [*connections]:
            writer = getattr(connection, "_writer", None)
            if writer is not None and ((loop := getattr(writer, "_loop", None)) is None or loop.is_closed()):
                connections.remove(connection)
    for name, kind in (("_lock", asyncio.Lock), ("_condition", asyncio.Condition)):
        if isinstance(getattr(pool, name, None), kind):
            setattr(pool, name, kind())


def cancellations() -> int:
    """Return how often the current task was cancelled.

    redis-py can lose a cancellation: it sends with `asyncio.wait_for`, which up to Python 3.11 swallows one that
    arrives when everything is sent, or when sending has just failed.
    """
    task = asyncio.current_task()
    return task.cancelling() if task else 0


def check_cancelled(before: int) -> None:
    """Raise a `CancelledError` that was lost since the task had been cancelled so often."""
    if cancellations() > before:
        raise asyncio.CancelledError


async def _send_async(connection: Any, data: Iterable[bytes]) -> None:
    """Send bytes: at once if the socket takes them, as nearly always, since redis-py starts a task to wait for that."""
    writer = getattr(connection, "_writer", None)
    if type(writer) is not asyncio.StreamWriter or writer.is_closing() or not sends_plainly(connection):
        await connection.send_packed_command(data)
        return
    writer.writelines(data)
    if writer.transport.get_write_buffer_size():
        await connection.send_packed_command(())  # waits until it is sent


async def _read_async(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


def _pools(pool: Any) -> list[Any]:
    """Return a pool, and the pools of the Sentinels that it asks for the master."""
    sentinels = pool.sentinel_manager.sentinels if hasattr(pool, "sentinel_manager") else ()
    return [pool, *(sentinel.connection_pool for sentinel in sentinels)]


class ClusterConnections:
    """Connections to the nodes of a cluster, each made at first use."""

    def __init__(self, pool_of: Callable[[Address], Any], kind: Any, *, owned: bool) -> None:
        """Make connections of class `kind` from the pool of each node."""
        self._pool_of = pool_of
        self._connect = partial(kind, owned=owned)
        self._known: dict[Address, Any] = {}

    def _server(self, step: Exchange) -> Any:
        node = cast("Address", step.node)
        # If two threads make one for the same node at once, both use the same.
        return self._known.get(node) or self._known.setdefault(node, self._connect(self._pool_of(node)))

    def exchange(self, step: Exchange | Exchanges) -> Any:
        """Exchange with the node of the step, or with several side by side: what to await, of an asyncio client."""
        if not isinstance(step, Exchanges):
            return self._server(step).exchange(step)
        servers = [self._server(one) for one in step]
        if isinstance(servers[0], AsyncConnections):
            return asyncio.gather(*(server.exchange(one) for server, one in zip(servers, step, strict=True)))
        begun: list[Any] = []
        results: list[Any] = []
        try:
            for server, one in zip(servers, step, strict=True):
                begun.append(server.begin(one))
            for server, connection, one in zip(servers, begun, step, strict=True):
                results.append(connection if isinstance(connection, Exception) else server.finish(connection, one))
        except BaseException:
            for server, connection in list(zip(servers, begun, strict=False))[len(results) + 1 :]:
                if not isinstance(connection, Exception):
                    server.drop(connection)
            raise
        return results

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._known.values()))


def _getter(pool: Any) -> Any:
    """Return the function that gets a connection; before redis-py 5.3 it needs the name of a command."""
    named = inspect.signature(pool.get_connection).parameters.get("command_name")
    return partial(pool.get_connection, "EVALSHA") if named and named.default is named.empty else pool.get_connection
