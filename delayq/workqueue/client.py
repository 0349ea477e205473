"""Runs the operations of a work queue on a redis-py client that the caller passes in, blocking or asyncio.

Errors are the client's own. Replies are bytes whatever the client is set to: data may be any bytes, which
`decode_responses=True` would break.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Generator
from typing import Any, TypeVar

from redis.exceptions import NoScriptError, OutOfMemoryError, RedisError, ResponseError

from delayq.broker.requests import Argument, RedisCommand, ScriptCall
from delayq.broker.transport.clients import max_block
from delayq.broker.transport.connections import cancellations, check_cancelled
from delayq.broker.transport.operation import Operation, Wait
from delayq.errors import ConfigurationError, short_repr
from delayq.workqueue.keys import WorkQueueKeys

T = TypeVar("T")
Command = tuple[Argument, ...]


def add_to_pipeline(pipeline: Any, call: ScriptCall[Any]) -> None:
    """Add a script call to a pipeline."""
    if not hasattr(pipeline, "execute"):
        raise ConfigurationError(
            f"pipeline must be one of a redis-py client, such as db.pipeline(), not {short_repr(pipeline)}"
        )
    pipeline.execute_command(*_eval(call))


def max_wait(db: Any) -> float:
    """Return how long a blocking command may wait, in seconds, so that it answers within the socket's time-out."""
    owner = next((getattr(db, name) for name in ("connection_pool", "nodes_manager") if hasattr(db, name)), db)
    return max_block(getattr(owner, "connection_kwargs", {}))


def perform(db: Any, keys: WorkQueueKeys, operation: Operation[T]) -> T:
    """Run an operation on a blocking client."""
    _check(db, keys, is_async=False)
    steps, reply = _steps(operation), None
    try:
        while True:
            step = steps.send(reply)
            if isinstance(step, Wait):
                time.sleep(step.seconds)
                continue
            try:
                reply = _target(db, keys, step).execute_command(*step, NEVER_DECODE=True)
            except RedisError as error:
                reply = error
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what an Operation[T] returns is a T


async def perform_async(db: Any, keys: WorkQueueKeys, operation: Operation[T]) -> T:
    """Run an operation on an asyncio client."""
    _check(db, keys, is_async=True)
    steps, reply = _steps(operation), None
    before = cancellations()
    try:
        while True:
            step = steps.send(reply)
            check_cancelled(before)
            if isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
                continue
            try:
                reply = await _target(db, keys, step).execute_command(*step, NEVER_DECODE=True)
            except RedisError as error:
                reply = error
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what an Operation[T] returns is a T


def _steps(operation: Operation[T]) -> Generator[Command | Wait, Any, T]:
    """Turn the calls of an operation into commands, one at a time; yields each and is sent its reply or error."""
    try:
        step = next(operation)
        while True:
            replies = []
            if isinstance(step, Wait):
                yield step
            else:
                for call in step:
                    reply = yield from _reply(call)
                    replies.append(reply)
            step = operation.send(replies)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what an Operation[T] returns is a T


def _reply(call: ScriptCall[Any] | RedisCommand[Any]) -> Generator[Command, Any, Any]:
    if isinstance(call, RedisCommand):
        reply = yield call.args
    else:
        reply = yield ("EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args)
        if isinstance(reply, NoScriptError):
            reply = yield _eval(call)
    if isinstance(reply, ResponseError) and "-OOM command not allowed" in str(reply):
        raise OutOfMemoryError(str(reply))  # Redis 6.2 hides it in the error of the script
    if isinstance(reply, RedisError):
        raise reply
    return call.parse(reply)


def _eval(call: ScriptCall[Any]) -> Command:
    """Return the command that runs a script on any server, whether or not it is loaded there."""
    return ("EVAL", call.script.text, len(call.keys), *call.keys, *call.args)


def _check(db: Any, keys: WorkQueueKeys, *, is_async: bool) -> None:
    """Raise `ConfigurationError` for anything but a client of this kind, or if a Cluster would spread the keys."""
    execute = getattr(db, "execute_command", None)
    if execute is None or inspect.iscoroutinefunction(execute) is not is_async or hasattr(db, "execute"):
        kind = "redis.asyncio" if is_async else "redis"
        raise ConfigurationError(f"db must be a client such as {kind}.Redis, not {short_repr(db)}")
    if _is_cluster(db):
        keys.check_for_cluster()


def _is_cluster(db: Any) -> bool:
    return hasattr(db, "get_node_from_key")


def _target(db: Any, keys: WorkQueueKeys, command: Command) -> Any:
    """Return the client for a command: SCAN on a Cluster reads the node that holds the queue."""
    if command[0] != "SCAN" or not _is_cluster(db):
        return db
    node = db.get_node_from_key(keys.queue)
    return node if hasattr(node, "execute_command") else db.get_redis_connection(node)
