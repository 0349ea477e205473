"""Runs calls on Redis: a single server, the master behind Sentinels, or the nodes of a cluster.

`RedisProtocol` decides what to send, and `ClusterProtocol` to which node. `Executor` and `AsyncExecutor` only sleep
when the protocol asks for a pause, and pass its bytes to `connections`.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.broker.transport.clients import Cluster, describe_server, find_client, max_block
from delayq.broker.transport.cluster import ClusterProtocol
from delayq.broker.transport.connections import AsyncConnections, ClusterConnections, Connections
from delayq.broker.transport.operation import Operation, Wait, first_error, may_write, reads_errors, single
from delayq.broker.transport.protocol import Exchange, RedisProtocol, Requests, ShouldRetry, Steps, read_reply
from delayq.errors import ConfigurationError, DelayqError
from delayq.options import QueueOptions, Settings
from delayq.values.times import monotonic

T = TypeVar("T")
R = TypeVar("R")


class _Client:
    """A client with its connections and its protocol."""

    _kind: type[Connections | AsyncConnections]
    blocks = True
    """Whether a call holds up its thread."""

    def __init__(self, client: Any, *, deadline: float, owned: bool, server: str = "") -> None:
        """Use `client`; closing the executor closes it if it is `owned`. `deadline` in seconds.

        Messages name the `server`.
        """
        self.client = client
        self.is_cluster = isinstance(client, Cluster)
        """Whether the calls of one round trip may go to several nodes."""
        if isinstance(client, Cluster):
            self.protocol: RedisProtocol = ClusterProtocol(client.slot_map, deadline=deadline, server=server)
            nodes = ClusterConnections(client.pool, self._kind, owned=owned)
            self._servers: Iterable[Any] = nodes
            self.exchange: Callable[[Exchange], Any] = nodes.exchange
            options = client.connection_kwargs
            limit = options.get("max_connections")
        else:
            self.protocol = RedisProtocol(deadline=deadline, server=server)
            connections = self._kind(client.connection_pool, owned=owned)
            self._servers, self.exchange = [connections], connections.exchange
            options = client.connection_pool.connection_kwargs
            limit = client.connection_pool.max_connections
        self.max_connections: float = limit or math.inf
        """Connections to one server that may be open at a time."""
        self.opening: Callable[[], Any] | None = None
        """Opens the queue before the first operation that writes; None if there is nothing to open any more."""
        self.checking: Callable[[], Operation[None]] | None = None
        """Opens the queue again if Redis has lost it; sets the time of the next check."""
        self.check_at = math.inf
        """The local time of the next check; never for a queue that is not open."""
        self.max_block = max_block(options)
        """Seconds that a blocking command may wait at most, so that it replies within the socket's timeout."""

    @property
    def address(self) -> tuple[str, int | None]:
        """The host and port of the server, or the path of its socket and None; ('', None) if there are several."""
        options = {} if self.is_cluster else self.client.connection_pool.connection_kwargs
        return options.get("path") or options.get("host") or "", options.get("port")

    @property
    def consumer_id(self) -> str:
        """The id under which this process holds messages, `host:pid:start`."""
        return self.protocol.consumer_id


class Executor(_Client):
    """Runs calls on a blocking client; safe to use from several threads."""

    _kind = Connections

    def call(self, request: ScriptCall[T] | RedisCommand[T]) -> T:
        """Run one call and return its reply; raises its error. Opens the queue before, as `perform` does."""
        self.check()
        if (opening := self.opening) and may_write([request]):
            opening()
        (reply,) = self.run([request])
        if isinstance(reply, DelayqError):
            raise reply
        return reply  # type: ignore[no-any-return]  # the reply of a ScriptCall[T] is a T

    def run(self, requests: Requests, *, should_retry: ShouldRetry = None, deadline: float | None = None) -> list[Any]:
        """Run calls in one round trip; returns a reply or a `DelayqError` for each.

        Retries while Redis does not reply: for `deadline` seconds, or as long as `should_retry` returns true.
        """
        if self.is_cluster or not isinstance(requests, list) or len(requests) != 1:
            return self._follow(self.protocol.run(requests, should_retry, deadline))
        one, slots, end = self.protocol.first(requests[0], deadline)
        try:
            replies = self.exchange(Exchange((one.packed,), [one]))
            if isinstance(replies, list) and not isinstance(replies[0], Exception):  # as nearly always
                one.reply = replies[0]
            else:
                self._follow(self.protocol.again([one], replies, should_retry, end))
            return [read_reply(one)]
        finally:
            if one.slot:
                slots.give_back([one.slot])

    def _follow(self, steps: Steps[R]) -> R:
        """Do what the protocol asks for; returns its result."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, Wait):
                    for server in self._servers:
                        server.forget()
                    time.sleep(step.seconds)
                    step = steps.send(None)
                else:
                    step = steps.send(self.exchange(step))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the protocol returns
        finally:
            steps.close()

    def perform(self, operation: Operation[T], *, writes: bool = False, should_retry: ShouldRetry = None) -> T:
        """Run an operation, one round trip after another, each with `should_retry`; raises its error.

        Opens the queue before, if the operation `writes` or begins with a call that does.
        """
        self.check()  # not after the operation: its result would be late, or lost by a cancellation
        try:
            step = next(operation)
            if (opening := self.opening) and (writes or may_write(step)):  # reading does not register the queue
                opening()
            while True:
                if isinstance(step, Wait):
                    time.sleep(step.seconds)
                    step = operation.send([])
                    continue
                replies = self.run(step, should_retry=should_retry)
                error = first_error(replies)
                step = operation.send(replies) if error is None or reads_errors(step) else operation.throw(error)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the operation returns

    def check(self) -> None:
        """Check from time to time that Redis still has the queue, and open it again if not; tries once, never fails."""
        if monotonic() < self.check_at or (checking := self.checking) is None:
            return
        self.checking = None  # one at a time
        try:
            with suppress(DelayqError):
                self.perform(checking(), should_retry=lambda _: False)
        finally:
            self.checking = checking

    def close(self) -> None:
        """Close the connections that delayq made; a connection in use is closed after its reply."""
        for server in self._servers:
            server.close()


class AsyncExecutor(_Client):
    """Runs calls on an asyncio client, for the tasks of one event loop at a time.

    That is the one of the first call, until the executor or the event loop is closed.
    """

    _kind = AsyncConnections
    blocks = False

    def __init__(self, client: Any, **options: Any) -> None:
        """Belong to no event loop yet; see `_Client`."""
        super().__init__(client, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self.on_new_loop: list[Callable[[], None]] = []
        """Called when the event loop was closed and another one goes on: what waited in it waits no more."""

    def check_loop(self) -> None:
        """Raise `ConfigurationError` if another event loop, whose connections these are, may still run.

        One that is closed can run nothing any more: its connections are forgotten.
        """
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        if self._loop is not None:
            closed = self._loop.is_closed()
            if not closed and self._pid == os.getpid():  # a fork has its own loop and connections
                text = "this queue belongs to another event loop"
                raise ConfigurationError(f"{text}: make a queue in each event loop, or close it there first")
            for server in self._servers:
                server.abandon()
            for forget in self.on_new_loop:
                forget()
        self._loop, self._pid = loop, os.getpid()

    async def call(self, request: ScriptCall[T] | RedisCommand[T]) -> T:
        """Run one call and return its reply; raises its error."""
        return await self.perform(single(request))

    async def run(
        self,
        requests: Requests,
        *,
        should_retry: ShouldRetry = None,
        deadline: float | None = None,
        on_cancel: Callable[[], None] | None = None,
    ) -> list[Any]:
        """Run calls in one round trip; see `Executor.run`.

        With `on_cancel`, a cancellation calls it, and then the calls are sent again to learn their replies.
        """
        self.check_loop()
        if on_cancel is not None or self.is_cluster or not isinstance(requests, list) or len(requests) != 1:
            return await self._follow(self.protocol.run(requests, should_retry, deadline), on_cancel)
        one, slots, end = self.protocol.first(requests[0], deadline)
        try:
            replies = await self.exchange(Exchange((one.packed,), [one]))
            if isinstance(replies, list) and not isinstance(replies[0], Exception):
                one.reply = replies[0]
            else:
                await self._follow(self.protocol.again([one], replies, should_retry, end))
            return [read_reply(one)]
        finally:
            if one.slot:
                slots.give_back([one.slot])

    async def _follow(self, steps: Steps[R], on_cancel: Callable[[], None] | None = None) -> R:
        """Do what the protocol asks for; returns its result."""
        try:
            step = next(steps)
            while True:
                replies = None
                try:
                    if isinstance(step, Wait):
                        for server in self._servers:
                            await server.forget()
                        await asyncio.sleep(step.seconds)
                    else:
                        replies = await self.exchange(step)
                except asyncio.CancelledError:
                    if on_cancel is None:
                        raise
                    on_cancel()
                    step = Wait(0) if isinstance(step, Wait) else step.again()
                    continue
                step = steps.send(replies)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the protocol returns
        finally:
            steps.close()

    async def perform(
        self,
        operation: Operation[T],
        *,
        writes: bool = False,
        should_retry: ShouldRetry = None,
        on_cancel: Callable[[], None] | None = None,
    ) -> T:
        """Run an operation; see `Executor.perform`.

        With `on_cancel`, a cancellation during a round trip calls it; the operation goes on unless it raises.
        """
        await self.check()
        try:
            step = next(operation)
            if (opening := self.opening) and (writes or may_write(step)):
                await opening()
            while True:
                if isinstance(step, Wait):
                    await asyncio.sleep(step.seconds)
                    step = operation.send([])
                    continue
                replies = await self.run(step, should_retry=should_retry, on_cancel=on_cancel)
                error = first_error(replies)
                step = operation.send(replies) if error is None or reads_errors(step) else operation.throw(error)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the operation returns

    async def check(self) -> None:
        """Check from time to time that Redis still has the queue; see `Executor.check`."""
        if monotonic() < self.check_at or (checking := self.checking) is None:
            return
        self.checking = None  # one at a time
        try:
            with suppress(DelayqError):
                await self.perform(checking(), should_retry=lambda _: False)
        finally:
            self.checking = checking

    async def close(self) -> None:
        """Close the connections that delayq made; a connection in use is closed after its reply."""
        self.check_loop()
        for server in self._servers:
            await server.close()
        self._loop = None


def open_executor(options: QueueOptions, settings: Settings) -> Executor:
    """Return an executor on the client in the options, or on a new one for the URL."""
    client, owned = find_client(options, settings, awaits=False)
    return Executor(client, deadline=settings.deadline / 1000, owned=owned, server=describe_server(client, options))


def open_async_executor(options: QueueOptions, settings: Settings) -> AsyncExecutor:
    """Return an asyncio executor on the client in the options, or on a new one for the URL."""
    client, owned = find_client(options, settings, awaits=True)
    server = describe_server(client, options)
    return AsyncExecutor(client, deadline=settings.deadline / 1000, owned=owned, server=server)
