"""One partition: an ordinary queue whose methods return their operations, so that several run side by side."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

from delayq.broker.keys import Keys
from delayq.broker.partition_calls import PartitionCalls
from delayq.broker.transport.operation import Operation
from delayq.queue.base import QueueParts
from delayq.queue.dead_letter import DeadLetter
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.inspecting.inspector import Inspector
from delayq.queue.sending.producer import Producer
from delayq.queue.server_check import Opening

if TYPE_CHECKING:
    from delayq.queue.control.limits import Limits
    from delayq.queue.scheduling.schedules import Schedules
    from delayq.queue.tasks.handlers import HandlerRegistry

_SHARED = ("prefix", "settings", "codec", "handlers", "awaits", "_options")
"""What a partition has of its queue."""


class Unperformed:
    """In place of an executor: returns the operations that it is given."""

    def perform(self, operation: Operation[Any], **_: Any) -> Operation[Any]:
        """Return an operation; whoever runs it opens the queue before."""
        return operation


class Partition(DelayQueue[Any]):
    """One partition of a queue. What its methods return are operations, which the queue performs."""

    def __init__(self, queue: Any, name: str) -> None:
        """Share options, functions and connections with a queue."""
        self.__dict__.update({attribute: getattr(queue, attribute) for attribute in _SHARED})
        self.name, self._queue = name, queue
        self.executor = copy(queue.executor)
        self.executor.opening = self.executor.checking = None  # the queue does both
        self.own_lifespan = None
        self._identity = None
        self._unperformed: Any = Unperformed()
        self._perform: Any = self._unperformed.perform
        self.context = self._make_context()
        self.producer = Producer(self.context, self.codec, self.handlers.in_one_form)
        self._inspector = Inspector(self.context)
        self._dead = DeadLetter(self.context, self._unperformed, self.codec.encode)

    def _make_calls(self) -> PartitionCalls:
        return PartitionCalls(
            Keys.of(self.prefix, self.name),
            epoch=lambda: self._queue.layout.epoch,
            on_close=lambda delay, pause: self._queue.closings.note(self.name, delay, pause),
        )

    @property
    def _parts(self) -> QueueParts:
        parts = super()._parts
        return parts._replace(source=(*parts.source[:-1], (parts.source[-1], self.node)), is_known=self._knows)

    def _knows(self, identity: Any) -> bool:
        """Return whether an identity is that of the partition, which another process may have opened."""
        if self._identity is None:
            self._identity = identity
        return bool(identity == self._identity)

    def _reopen_if_lost(self) -> Operation[None]:
        if self._identity is None:
            (identity,) = yield [Opening.split(self._opening())[0].identity]
            self._knows(identity)
        else:
            yield from super()._reopen_if_lost()

    def _put_declared(self) -> Operation[Any]:
        return self._queue.declare_in(self)  # type: ignore[no-any-return]  # the schedules whose names belong here

    def _open_again(self) -> Operation[None]:
        yield from self._queue.store_layout(self)
        yield from super()._open_again()

    @property
    def node(self) -> tuple[str, int | None]:
        """The address of the node that has it, as far as known."""
        if self.executor.is_cluster:
            return self.executor.client.slot_map.owner(self.context.calls.keys.meta)  # type: ignore[no-any-return]
        return self.executor.address

    def select(self, *args: Any, **options: Any) -> Any:
        """Return a selection whose methods return operations."""
        selection = super().select(*args, **options)
        selection._executor = self._unperformed  # noqa: SLF001 - that of the base class performs
        return selection

    @cached_property
    def schedules(self) -> Schedules:
        """Its schedules."""
        return self.schedules_of(self.handlers)

    def schedules_of(self, handlers: HandlerRegistry) -> Schedules:
        """Return its schedules, where a program declares those of these functions."""
        from delayq.queue.scheduling.schedules import Schedules

        return Schedules(self.context, self.producer, handlers, self._unperformed)

    @cached_property
    def limits(self) -> Limits:
        """Its limits."""
        from delayq.queue.control.limits import Limits

        return Limits(self.context, self._unperformed)


def handlers_of(handlers: HandlerRegistry, is_own: Callable[[str], bool], *, limited: bool) -> HandlerRegistry:
    """Return the functions of a queue with some of the declared schedules; limits are those of the whole queue."""
    own = copy(handlers)
    if not limited:
        own.limits = {}
    own.declared = {name: spec for name, spec in handlers.declared.items() if is_own(name)}
    return own
