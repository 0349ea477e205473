"""Opening many queues on one server with few round trips, and telling later that Redis has lost one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from delayq.broker.engine import Feature
from delayq.broker.requests import RedisCommand
from delayq.errors import CannotConnectError, DelayqError, UnavailableError
from delayq.queue.base import QueueBase, parts_of
from delayq.queue.server_check import Opening, check
from delayq.values.times import Duration, to_millis
from delayq.worker.pool.pool import Identity

OPENED_TOGETHER = 100
"""Queues that are opened in one round trip."""

AnyBase = QueueBase[Any, Any]


Q = TypeVar("Q", bound=AnyBase)


def by_server(queues: Iterable[Q]) -> list[list[Q]]:
    """Return the queues grouped by server."""
    groups: dict[object, list[Q]] = {}
    for queue in queues:
        groups.setdefault(parts_of(queue).source[-1], []).append(queue)
    return list(groups.values())


def to_open(queues: Iterable[Q]) -> list[tuple[Q, list[Q]]]:
    """Return for each server the queue that checks it, and those to open over its connection if they are not open."""
    groups = [sorted(group, key=lambda queue: not queue.settings.strict) for group in by_server(queues)]
    return [(group[0], [one for one in group[1:] if one.executor.opening]) for group in groups]


def declaring(queues: Iterable[Q]) -> list[tuple[Q, Q]]:
    """Return the queues with declared schedules, each after the queue over whose connection they are stored."""
    return [(group[0], one) for group in by_server(queues) for one in group if one.handlers.declares]


def identity_of(queue: AnyBase, *, restores: bool = True) -> Identity:
    """Return how a worker can tell that Redis has lost an open queue; without `restores` it does not make it anew."""
    parts = parts_of(queue)
    opening, _ = Opening.split(parts.opening())
    has_registry = queue.context.calls.capabilities.has(Feature.REGISTRY)
    register = opening.registered if restores and has_registry else None
    return Identity(opening.identity, parts.is_known, parts.reopen_if_lost, restores, register)


def opening_of_many(queues: Sequence[AnyBase]) -> list[Any]:
    """Return the requests that open queues on a server that was checked before."""
    return [request for queue in queues for request in parts_of(queue).opening()[1:]]  # the first asks the server


def read_opened(queues: Sequence[AnyBase], replies: Sequence[Any]) -> list[DelayqError | None]:
    """Read the replies to these requests; returns for each queue why it could not be opened, None if it was."""
    errors: list[DelayqError | None] = []
    first = 0
    for queue in queues:
        parts = parts_of(queue)
        last = first + len(parts.opening()) - 1
        try:
            parts.check([None, *replies[first:last]])
        except DelayqError as error:
            errors.append(error)
        else:
            errors.append(None)
        first = last
    return errors


def raise_first(errors: Sequence[DelayqError | None]) -> None:
    """Raise the first error, if there is one."""
    for error in errors:
        if error is not None:
            raise error


def connect_deadline(timeout: Duration | None) -> float | None:
    """Return for how many seconds to try to reach a server before a run; None for what its queue says."""
    return None if timeout is None else to_millis(timeout, "connect_timeout") / 1000


def ask_server() -> RedisCommand[Any]:
    """Read what tells whether the server could lose messages, without opening a queue."""
    return RedisCommand(("INFO",), lambda reply: reply)


def check_server(queue: AnyBase, name: str, reply: Any) -> None:
    """Check the server of a queue, see `server_check.check`; raise `UnavailableError` if it does not answer."""
    if isinstance(reply, UnavailableError | CannotConnectError):
        raise reply
    embedded = queue.is_embedded
    check(name, Opening(reply, *[None] * (len(Opening._fields) - 1)), embedded=embedded, strict=queue.settings.strict)
