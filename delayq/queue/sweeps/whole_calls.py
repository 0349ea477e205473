"""Calls of scripts that move a limited number of bytes at a time, repeated until all is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from delayq.broker.context import QueueContext
from delayq.broker.requests import ScriptCall
from delayq.broker.transport.operation import Operation

T = TypeVar("T")


def every_status(
    context: QueueContext, call: Callable[[Sequence[T], str], ScriptCall[str]], items: Sequence[T]
) -> Operation[str]:
    """Call a script until it has returned a status for each item.

    `call` is given the items that are left, and the statuses of those before.
    """
    statuses = ""
    while len(statuses) < len(items):
        replies, *_ = yield [call(items[len(statuses) :], statuses), *context.confirming]
        statuses += replies
    return statuses
