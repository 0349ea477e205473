"""Removing a queue: all of its keys, and its name in the registry of queues."""

from __future__ import annotations

from contextlib import suppress

from delayq.broker.context import QueueContext
from delayq.broker.keys import registry
from delayq.broker.replies import RemoveReply
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.operation import Operation
from delayq.errors import QueueInUseError, ServerError
from delayq.queue.registered import is_in_use, register
from delayq.text import pluralize


def remove(context: QueueContext, prefix: str) -> Operation[bool]:
    """Remove a queue that has nothing any more; returns whether it was in use. Raises `QueueInUseError`.

    Whoever may remove this queue alone may not write the registry: its name stays there, and stands for no queue.
    """
    was_used, found = yield [is_in_use(prefix, context.queue), context.calls.remove()]
    if any(found):
        raise QueueInUseError(f"{context.queue} is not removed, it has {_told(found)}")
    with suppress(ServerError):
        yield [RedisCommand(("SREM", registry(prefix), context.queue), bool)]
        # A process that has opened the queue anew since then has listed it before its name was taken off.
        (is_back,) = yield [is_in_use(prefix, context.queue)]
        if is_back:
            yield [register(prefix, context.queue)]
    return bool(was_used)


def _told(found: RemoveReply) -> str:
    """Return what a queue has, with what to do about it."""
    things = {
        "message": (found.messages, "purge it"),
        "dead message": (found.dead, "purge its dead letter"),
        "schedule": (found.schedules, "remove them"),
        "live consumer": (found.consumers, "stop them"),
    }
    return ", ".join(f"{pluralize(count, what)} ({todo})" for what, (count, todo) in things.items() if count)
