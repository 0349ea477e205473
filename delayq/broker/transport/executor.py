"""Carries calls out on a Redis: a single server, the master that Sentinels name, or the nodes of a Cluster.

What is said is decided by a `Conversation`, to which node of a Cluster by `routes`; `Executor` and `AsyncExecutor` only
make its pauses and hand its bytes to the connections of `servers`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from delayq.clients import ASYNCIO, BLOCKING, Cluster, find_client, longest_block
from delayq.config import QueueOptions, Settings
from delayq.conversation import Conversation, Exchange, Patience, Request
from delayq.errors import DelayqError
from delayq.operation import Operation, Pause, single
from delayq.routes import RoutedConversation
from delayq.servers import AsyncServer, Nodes, Server
from delayq.values import Call, Command

T = TypeVar("T")


class _Client:
    """A client, the servers it speaks to, and what is said to them."""

    _kind: type[Server | AsyncServer]

    def __init__(self, client: Any, *, deadline: float, owned: bool) -> None:
        """Use `client`; `owned` says that closing the executor closes it. `deadline` in seconds."""
        self.client = client
        if isinstance(client, Cluster):
            self.conversation: Conversation = RoutedConversation(client.routes, deadline=deadline)
            nodes = Nodes(client.pool, self._kind, owned=owned)
            self._servers: Iterable[Any] = nodes
            self._exchange: Callable[[Exchange], Any] = nodes.exchange
            options = client.connection_kwargs
        else:
            self.conversation = Conversation(deadline=deadline)
            server = self._kind(client.connection_pool, owned=owned)
            self._servers, self._exchange = [server], server.exchange
            options = client.connection_pool.connection_kwargs
        self._converse = self.conversation.converse
        self.longest_block = longest_block(options)
        """The longest a blocking command may wait, in seconds, so that it answers within the socket's time-out."""

    @property
    def client_name(self) -> str:
        """A name unique to this start of this process."""
        return self.conversation.client_name


class Executor(_Client):
    """Carries calls out on a blocking client; safe to use from several threads."""

    _kind = Server

    def call(self, request: Call[T] | Command[T]) -> T:
        """Carry out one call and return its answer; raises what went wrong."""
        return self.perform(single(request))

    def run(self, requests: Iterable[Request], *, patience: Patience | None = None) -> list[Any]:
        """Carry out calls in one round trip; returns an answer or a `DelayqError` for each.

        Tries again while Redis does not answer, until the deadline or while `patience` says so.
        """
        conversation = self._converse(requests, patience)
        step = next(conversation)
        try:
            while True:
                if isinstance(step, Pause):
                    for server in self._servers:
                        server.forget()
                    time.sleep(step.seconds)
                    step = conversation.send(None)
                else:
                    step = conversation.send(self._exchange(step))
        except StopIteration as end:
            return cast("list[Any]", end.value)

    def perform(self, operation: Operation[T], *, patience: Patience | None = None) -> T:
        """Carry out an operation, call by call, each with `patience`; raises what went wrong."""
        try:
            step = next(operation)
            while True:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    step = operation.send([])
                    continue
                answers = self.run(step, patience=patience)
                trouble = _trouble(answers)
                step = operation.throw(trouble) if trouble else operation.send(answers)
        except StopIteration as end:
            return cast("T", end.value)

    def close(self) -> None:
        """Close the connections that delayq made; one that still waits for an answer, when it has it."""
        for server in self._servers:
            server.close()


class AsyncExecutor(_Client):
    """Carries calls out on an asyncio client, for the tasks of one event loop."""

    _kind = AsyncServer

    async def call(self, request: Call[T] | Command[T]) -> T:
        """Carry out one call and return its answer; raises what went wrong."""
        return await self.perform(single(request))

    async def run(self, requests: Iterable[Request], *, patience: Patience | None = None) -> list[Any]:
        """Carry out calls in one round trip; see `Executor.run`."""
        conversation = self._converse(requests, patience)
        step = next(conversation)
        try:
            while True:
                if isinstance(step, Pause):
                    for server in self._servers:
                        await server.forget()
                    await asyncio.sleep(step.seconds)
                    step = conversation.send(None)
                else:
                    step = conversation.send(await self._exchange(step))
        except StopIteration as end:
            return cast("list[Any]", end.value)

    async def perform(self, operation: Operation[T], *, patience: Patience | None = None) -> T:
        """Carry out an operation, call by call; see `Executor.perform`."""
        try:
            step = next(operation)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    step = operation.send([])
                    continue
                answers = await self.run(step, patience=patience)
                trouble = _trouble(answers)
                step = operation.throw(trouble) if trouble else operation.send(answers)
        except StopIteration as end:
            return cast("T", end.value)

    async def close(self) -> None:
        """Close the connections that delayq made; one that still waits for an answer, when it has it."""
        for server in self._servers:
            await server.close()


def _trouble(answers: list[Any]) -> DelayqError | None:
    for answer in answers:
        if isinstance(answer, DelayqError):
            return answer
    return None


def open_executor(options: QueueOptions, settings: Settings) -> Executor:
    """Return an executor on the client an option gives, or on one of its own for the URL."""
    client, owned = find_client(BLOCKING, options, settings)
    return Executor(client, deadline=settings.deadline / 1000, owned=owned)


def open_async_executor(options: QueueOptions, settings: Settings) -> AsyncExecutor:
    """Return an asyncio executor on the client an option gives, or on one of its own for the URL."""
    client, owned = find_client(ASYNCIO, options, settings)
    return AsyncExecutor(client, deadline=settings.deadline / 1000, owned=owned)
