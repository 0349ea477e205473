"""Results of messages: what `queue.result` reads, and what it raises if there is none."""

from __future__ import annotations

from typing import Any, NoReturn

from delayq.broker.results import Ending, EndReply, KeptRecord, ResultCodec
from delayq.errors import MessageFailedError, NoResultError
from delayq.queue.deaths import Death, read_death
from delayq.text import pluralize
from delayq.times import timestamp


def has_ended(reply: EndReply) -> bool:
    """Tell whether there is nothing to wait for: the message has ended, is unknown, or its result will not be kept."""
    return reply.alive != "kept"


def value_of(id: str, reply: EndReply, results: ResultCodec, *, before: EndReply | None) -> Any:
    """Return the result of a message that has ended; raise an error that says why there is none.

    `before` is what this process saw while the message was alive, None if it has not: what was there already is of an
    earlier message with this id.
    """
    if before:
        reply = reply.since(before)
    elif reply.alive:
        raise NoResultError(f"no result of message {id}: it was sent without retention")
    record = KeptRecord.read(reply.record) if reply.record else None
    death = read_death(reply.death)
    if death is not None and (record is None or timestamp(death.died) > record.completed):
        _raise_failure(id, death)
    if record is None:
        if reply.alive:
            raise NoResultError(f"no result of message {id}: one without retention has taken its place")
        if before:
            reason = "cancelled or purged"
            raise MessageFailedError(f"message {id} was {reason}", id=id, reason=reason)
        text = "the queue has none with this id; it was never sent, had no retention, or its time is over"
        raise NoResultError(f"no result of message {id}: {text}")
    if record.ending == Ending.DISCARDED:
        text = f"message {id} was discarded{f': {record.note}' if record.note else ''}"
        raise MessageFailedError(text, id=id, reason=record.note or "discarded", attempts=record.attempts)
    if record.ending == Ending.UNKEPT:
        raise NoResultError(f"message {id} is done, but its result was not kept: {record.note}")
    return results.read(record)


def _raise_failure(id: str, death: Death) -> NoReturn:
    why = f"{death.reason}{f': {death.error}' if death.error else ''}"
    text = f"message {id} failed after {pluralize(death.attempts, 'attempt')}: {why}"
    raise MessageFailedError(text, id=id, reason=death.reason, error=death.error, attempts=death.attempts)
