"""Carries out what a work queue says, on a client of redis-py that the caller passes in, blocking or asyncio.

Answers are bytes whatever the client is set to: data is any bytes, and `decode_responses=True` would break on it.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Any, TypeVar

from redis.exceptions import NoScriptError, OutOfMemoryError, ResponseError

from delayq.clients import longest_block
from delayq.errors import ConfigurationError, shown
from delayq.operation import Pause
from delayq.servers import cancellations
from delayq.workqueue.calls import Run, Scan, Work
from delayq.workqueue.keys import Keys

T = TypeVar("T")


def check(db: Any, keys: Keys, *, awaited: bool) -> None:
    """Refuse what is no client of this kind, and a Cluster that would spread the keys over its nodes."""
    execute = getattr(db, "execute_command", None)
    if execute is None or inspect.iscoroutinefunction(execute) is not awaited or hasattr(db, "execute"):
        kind = "redis.asyncio" if awaited else "redis"
        raise ConfigurationError(f"db must be a client such as {kind}.Redis, not {shown(db)}")
    if hasattr(db, "get_node_from_key") and not keys.tagged:
        raise ConfigurationError("on a Cluster the prefix of a work queue must hold a hash tag, such as {jobs}")


def queue_in(pipeline: Any, run: Run[Any]) -> None:
    """Have a pipeline run a script; refuse what is none."""
    if not hasattr(pipeline, "execute"):
        raise ConfigurationError(f"pipeline must be one of a client of redis-py, not {shown(pipeline)}")
    pipeline.execute_command(*run.whole)


def longest_wait(db: Any) -> float:
    """Return how long a blocking command may wait, in seconds, so that it answers within the socket's time-out."""
    holder = next((getattr(db, name) for name in ("connection_pool", "nodes_manager") if hasattr(db, name)), db)
    return longest_block(getattr(holder, "connection_kwargs", {}))


def _typed(error: ResponseError) -> ResponseError:
    """Return an error in the type that redis-py has for it: Redis 6.2 hides it in a text about the script."""
    return OutOfMemoryError(str(error)) if "-OOM command not allowed" in str(error) else error


def perform(db: Any, work: Work[T]) -> T:
    """Carry work out on a blocking client."""
    answer = None
    try:
        while True:
            step = work.send(answer)
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                answer = None
            elif isinstance(step, Run):
                try:
                    answer = step.parse(db.execute_command(*step.known, NEVER_DECODE=True))
                except NoScriptError:
                    answer = step.parse(db.execute_command(*step.whole, NEVER_DECODE=True))
            elif isinstance(step, Scan):
                node = db
                if hasattr(db, "get_node_from_key"):
                    node = db.get_redis_connection(db.get_node_from_key(step.key))
                answer = step.parse(node.execute_command(*step.args, NEVER_DECODE=True))
            else:
                answer = step.parse(db.execute_command(*step.args, NEVER_DECODE=True))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what a Work[T] returns is a T
    except ResponseError as error:
        raise _typed(error) from None


async def perform_async(db: Any, work: Work[T]) -> T:
    """Carry work out on an asyncio client."""
    answer = None
    before = cancellations()
    try:
        while True:
            step = work.send(answer)
            if cancellations() > before:
                raise asyncio.CancelledError
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                answer = None
            elif isinstance(step, Run):
                try:
                    answer = step.parse(await db.execute_command(*step.known, NEVER_DECODE=True))
                except NoScriptError:
                    answer = step.parse(await db.execute_command(*step.whole, NEVER_DECODE=True))
            elif isinstance(step, Scan):
                node = db.get_node_from_key(step.key) if hasattr(db, "get_node_from_key") else db
                answer = step.parse(await node.execute_command(*step.args, NEVER_DECODE=True))
            else:
                answer = step.parse(await db.execute_command(*step.args, NEVER_DECODE=True))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what a Work[T] returns is a T
    except ResponseError as error:
        raise _typed(error) from None
