"""Removing a queue: all of its keys, and its name in the registry of queues."""

from __future__ import annotations

from delayq.broker.context import QueueContext
from delayq.broker.keys import registry
from delayq.broker.replies import RemoveReply
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.operation import Operation
from delayq.errors import QueueInUseError
from delayq.text import pluralize


def remove(context: QueueContext, prefix: str) -> Operation[bool]:
    """Remove a queue that has nothing any more; returns whether it was listed. Raises `QueueInUseError`."""
    (found,) = yield [context.calls.remove()]
    if any(found):
        raise QueueInUseError(f"{context.queue} is not removed, it has {_told(found)}")
    (listed,) = yield [RedisCommand(("SREM", registry(prefix), context.queue), bool)]
    # A process that has opened the queue anew since then has listed it before its name was taken off.
    (is_back,) = yield [RedisCommand(("EXISTS", context.calls.keys.meta), bool)]
    if is_back:
        yield [RedisCommand(("SADD", registry(prefix), context.queue), bool)]
    return bool(listed)


def _told(found: RemoveReply) -> str:
    """Return what a queue has, with what to do about it."""
    things = {
        "message": (found.messages, "purge it"),
        "dead message": (found.dead, "purge its dead letter"),
        "schedule": (found.schedules, "remove them"),
        "live consumer": (found.consumers, "stop them"),
    }
    return ", ".join(f"{pluralize(count, what)} ({todo})" for what, (count, todo) in things.items() if count)
