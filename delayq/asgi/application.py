"""The lifespan of queues in a web application: open, consume or only send, then drain and close.

It knows no framework. What is blocking, of a `DelayQueue`, runs in a thread, so that the event loop of the server
goes on.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import copy_context
from typing import Any

from delayq.errors import CannotConnectError, ConfigurationError, UnavailableError
from delayq.safe_log import SafeLog
from delayq.values.checks import check_bool
from delayq.worker.drivers.own_threads import start_needed, start_task

log = SafeLog("delayq.asgi")

FIRST_TRY = 1
"""Seconds for which an application that does not need Redis tries to reach it before it starts."""
TRY_EVERY = 1.0
"""Seconds between two tries after that."""
_AWAY = (UnavailableError, CannotConnectError)
"""What may end by itself, or by somebody who repairs the server."""


def serving(
    consumed: Any, queues: Callable[[], Sequence[Any]], options: Mapping[str, Any], *, consume: bool, required: bool
) -> Callable[[], AbstractAsyncContextManager[None]]:
    """Return what makes the context manager of one run; raises `ConfigurationError` for wrong options.

    `consumed` is a queue or a worker, and `queues` returns the queue objects to close at the end.
    """
    check_bool(consume, "consume")
    check_bool(required, "required")
    if not consume and options.keys() - {"connect_timeout"}:
        wrong = min(options.keys() - {"connect_timeout"})
        raise ConfigurationError(f"{wrong} is an option of consuming: leave it out, or do not give consume=False")
    if "burst" in options:
        raise ConfigurationError("an application consumes until it ends: burst is an option of run and start_consume")

    @asynccontextmanager
    async def run() -> AsyncIterator[None]:
        ending, retrying = asyncio.Event(), None
        start = _start(consumed, options, consume=consume)
        try:
            if required:
                await start(options.get("connect_timeout"))
            else:
                retrying = await _start_without(consumed, start, options.get("connect_timeout"), ending)
            yield
        finally:
            ending.set()
            if retrying is not None:  # not cancelled: a thread would go on, and start what nobody stops
                await asyncio.wait([retrying])
            await _end(consumed, queues(), consume=consume)

    return run


def _start(consumed: Any, options: Mapping[str, Any], *, consume: bool) -> Callable[[Any], Any]:
    """Return the function that opens what is consumed within a timeout, and starts to consume."""

    async def start(timeout: Any) -> None:  # noqa: ASYNC109 - that of Redis
        if consume:
            await _do(consumed.start_consume, **{**options, "connect_timeout": timeout})
        else:
            await _do(consumed.open, connect_timeout=timeout)

    return start


async def _start_without(
    consumed: Any,
    start: Callable[[Any], Any],
    timeout: Any,  # noqa: ASYNC109 - that of Redis
    ending: asyncio.Event,
) -> asyncio.Task[None] | None:
    """Try to start once; without Redis, return a task that goes on trying until it is `ending`."""
    within = FIRST_TRY if timeout is None else timeout
    try:
        await start(within)
    except _AWAY as error:
        log.warning("%r starts without Redis, which is tried again every %g s: %s", consumed, TRY_EVERY, error)
    else:
        return None

    async def try_again() -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), TRY_EVERY)
            if ending.is_set():
                return
            with suppress(*_AWAY):
                await start(within)
                break
        log.warning("%r has reached Redis", consumed)

    return start_task(try_again, "delayq-asgi", on_death=lambda *_: None)  # which has been logged


async def _end(consumed: Any, queues: Sequence[Any], *, consume: bool) -> None:
    """Drain and close; if the server cuts this short, callbacks that still run are cut off."""
    try:
        if consume:
            await _do(consumed.stop_consume)
    except asyncio.CancelledError:
        await _do(consumed.stop_consume, 0)
        raise
    finally:
        for queue in queues:
            await _do(queue.close)


async def _do(method: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Await a method of an asyncio queue, or run that of a blocking one in a thread, to its end."""
    if inspect.iscoroutinefunction(method):
        return await method(*args, **options)
    loop, done, context = asyncio.get_running_loop(), asyncio.Event(), copy_context()
    ended: list[tuple[Any, BaseException | None]] = []

    def work() -> None:
        try:
            ended.append((context.run(method, *args, **options), None))
        except BaseException as error:  # noqa: BLE001 - it is raised below
            ended.append((None, error))
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(done.set)

    start_needed(work, "delayq-asgi")
    await done.wait()
    result, error = ended[0]
    if error is not None:
        raise error
    return result
