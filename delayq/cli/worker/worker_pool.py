"""Several queues of the command line with weights: one worker consumes them, in place of a consumer each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from delayq.cli.support.app_loader import AnyQueue, find_queues
from delayq.errors import ConfigurationError
from delayq.queue.async_base import AsyncBase
from delayq.queue.consuming.consumer import AsyncConsuming, Consuming
from delayq.queue.pooling.worker import AsyncWorker, Worker


def split_number(word: str, what: str) -> tuple[str, int | None]:
    """Return a target and the number after its equals sign, None without one; `what` says what the number is."""
    target, equals, text = word.partition("=")
    if not equals:
        return target, None
    if not (text.isascii() and text.isdigit()):
        raise click.UsageError(f"{word}: {what} must be a whole number from 1, as in {target}=5")
    return target, int(text)


def find_pool(words: Sequence[str], limits: Sequence[str], *, strict: bool) -> PooledQueues | None:
    """Return the queues of MODULE:QUEUE=WEIGHT words as one; None if no word has a weight and nothing asks for it."""
    weighted = [split_number(word, "the weight") for word in words]
    if not strict and not limits and all(weight is None for _, weight in weighted):
        return None
    if strict and any(weight is not None for _, weight in weighted):
        given = next(word for word, (_, weight) in zip(words, weighted, strict=True) if weight is not None)
        raise click.UsageError(f"--strict serves queues in the order given, without weights such as {given}")
    queues = find_queues([target for target, _ in weighted])
    weights: dict[Any, int] = {}
    for target, weight in weighted:
        weights |= {queue: weight if weight is not None else 1 for queue in find_queues([target]) if queue in queues}
    bounds: dict[Any, int] = {}
    for word in limits:
        target, limit = split_number(word, "the limit")
        if limit is None:
            raise click.UsageError(f"--limit {word}: give a number of callbacks, as in --limit {target}=5")
        found = [queue for queue in find_queues([target]) if queue in queues]
        if not found:
            raise click.UsageError(f"--limit {word}: the worker does not serve {target}: add it")
        bounds |= dict.fromkeys(found, limit)
    kinds = {isinstance(queue, AsyncBase) for queue in weights}
    if len(kinds) > 1:
        raise click.UsageError("one worker cannot share its callbacks between blocking and asyncio queues: start two")
    try:
        kind: Any = AsyncWorker if kinds == {True} else Worker
        name = ", ".join(f"{queue.name}={weight}" for queue, weight in weights.items())
        return PooledQueues([*weights], name, kind(weights, limits=bounds, strict=strict))
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error


def find_matching(pattern: str, words: Sequence[str], limits: Sequence[str], *, strict: bool) -> PooledQueues:
    """Return all queues of a pattern as one, served like the queue of the only word."""
    if strict or any("=" in word for word in words):
        raise click.UsageError("--queues serves all queues alike, without weights and --strict")
    queues = find_queues(words)
    if len(queues) != 1:
        names = ", ".join(queue.name for queue in queues)
        text = "--queues needs the one queue whose callback and options are those of all"
        raise click.UsageError(f"{text}: {f'name it in place of {names}' if names else 'give MODULE:QUEUE'}")
    (queue,) = queues
    limit = None
    for word in limits:
        target, limit = split_number(word, "the limit")
        if limit is None or find_queues([target]) != queues:
            raise click.UsageError(f"--limit {word}: with --queues, give the limit of each, as in {words[0]}=5")
    try:
        kind: Any = AsyncWorker if isinstance(queue, AsyncBase) else Worker
        return PooledQueues(queues, pattern, kind.matching(pattern, queue, limit=limit))
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error


class PooledQueues:
    """Queues with one worker, under the names that a queue has for the command."""

    def __init__(self, queues: Sequence[AnyQueue], name: str, worker: Worker | AsyncWorker) -> None:
        """Serve queues of one kind; `name` says which."""
        self.queues = [*queues]
        self.is_async = isinstance(worker, AsyncWorker)
        self.name = name
        all_settings = [queue.settings for queue in queues]
        self.settings = replace(
            all_settings[0],
            concurrency=sum(settings.concurrency for settings in all_settings),
            grace=max(settings.grace for settings in all_settings),
        )
        self._worker: Any = worker

    async def open(self, *, connect_timeout: Any = None) -> None:
        """Open all queues, with few round trips."""
        opening = self._worker.open(connect_timeout=connect_timeout)
        if opening is not None:
            await opening

    async def start_consume(self, **options: Any) -> Consuming | AsyncConsuming:
        """Start the worker."""
        starting = self._worker.start_consume(**options)
        consuming: Consuming | AsyncConsuming = await starting if self.is_async else starting
        return consuming

    async def close(self) -> None:
        """Close all queues."""
        for queue in self.queues:
            closing = queue.close()
            if closing is not None:
                await closing
