"""`queue.hooks`: what a program has done around its sends and callbacks, and when messages end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from inspect import isasyncgenfunction, isawaitable, iscoroutinefunction, isgeneratorfunction
from typing import Any, TypeVar

from delayq.broker.replies import ExpiredLease
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.hooks.hook_calls import ENDINGS, Ended, Ending, HookCalls
from delayq.queue.hooks.hooked_sends import HookedSend, SendHook
from delayq.queue.sending.observed_sends import observe_sends
from delayq.worker.delivery.disposition import Completion, Disposition
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery, truncate
from delayq.worker.delivery.message import BY_HAND
from delayq.worker.drivers.callbacks import is_blocking
from delayq.worker.drivers.work_buffer import Callback
from delayq.worker.parts.part import LoopPart, Stage

CallbackHook = Callable[[Any], Any]
"""Returns what is entered before the callback and left after it, plain or to be awaited."""


class HookedCallbacks:
    """Puts hooks around the callback of a queue; the first one is outermost."""

    def __init__(self, hooks: Sequence[CallbackHook], *, awaits: bool) -> None:
        """Callbacks may be coroutine functions if the queue `awaits` them."""
        self._hooks, self._awaits = hooks, awaits

    def around(self, callback: Callback) -> Callback:
        """Return a callback that does the same within the hooks."""
        return callback.wrapped(self._wrapped)

    def _wrapped(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return partial(self._call if is_blocking(function) else self._call_async, function)

    def _call(self, function: Callable[[Any], Any], argument: Any) -> Any:
        result = None  # a hook may keep what the function raises
        with ExitStack() as stack:
            for hook in self._hooks:
                stack.enter_context(hook(argument))
            result = function(argument)
            if self._awaits and isawaitable(result):  # a function that returns a coroutine
                return self._finish(stack.pop_all(), result)
        return result

    async def _finish(self, stack: ExitStack, awaited: Awaitable[Any]) -> Any:
        with stack:
            return await awaited

    async def _call_async(self, function: Callable[[Any], Awaitable[Any]], argument: Any) -> Any:
        async with AsyncExitStack() as stack:
            for hook in self._hooks:
                around = hook(argument)
                if isinstance(around, AbstractAsyncContextManager):
                    await stack.enter_async_context(around)
                else:
                    stack.enter_context(around)
            return await function(argument)


_DONE: dict[Disposition, Ending] = {
    Disposition.ACK: "acked",
    Disposition.DISCARD: "discarded",
    Disposition.DROP: "discarded",
    Disposition.JOIN: "acked",
}


class EndingHooks(LoopPart):
    """Looks at what was settled."""

    stage = Stage.BESIDE

    def __init__(self, calls: HookCalls, queue: str) -> None:
        """Tell of the messages of `queue`."""
        self._calls, self._queue = calls, queue
        self._errors: dict[InFlightDelivery, str] = {}

    def on_settling(self, completions: Sequence[Completion]) -> None:
        """Keep the texts of what has failed until Redis has replied, and tell of what was settled by hand."""
        for deliveries, disposition, text, _delay, _took in completions:
            for delivery in deliveries:
                if delivery.by_hand:
                    self._tell(BY_HAND[delivery.by_hand], delivery)
                elif text and disposition in (Disposition.NACK, Disposition.REJECT) and not delivery.settled:
                    self._errors[delivery] = truncate(text)

    def on_settled(self, disposition: Disposition, settled: Sequence[InFlightDelivery]) -> None:
        """Tell of what Redis has settled."""
        for delivery in settled:
            self._tell(disposition, delivery)

    def on_expired(self, expired: Iterable[ExpiredLease]) -> None:
        """Tell of expired leases: their workers were lost."""
        for lease in expired:
            event: Ending = "failed" if lease.retries_left else "dead"
            if event in self._calls.events:
                of_lease = lease.id, lease.name, lease.attempt, lease.retries_left
                self._calls.tell(Ended(event, self._queue, *of_lease, "lease expired"))

    def _tell(self, disposition: Disposition, delivery: InFlightDelivery) -> None:
        error, claimed = self._errors.pop(delivery, ""), delivery.claimed
        event = _event_of(disposition, delivery)
        if event is not None and event in self._calls.events:
            of_message = claimed.id, delivery.attributes.name, claimed.attempt, claimed.retries_left
            self._calls.tell(Ended(event, self._queue, *of_message, error))

    def leave(self) -> list[Any]:
        """Wait for the last calls: nobody makes them afterwards."""
        self._calls.finish()
        return []


def _event_of(disposition: Disposition, delivery: InFlightDelivery) -> Ending | None:
    if disposition is Disposition.NACK:
        if delivery.cancel_requested:
            return "discarded"
        return "failed" if delivery.claimed.retries_left else "dead"
    return "dead" if disposition is Disposition.REJECT else _DONE.get(disposition)


F = TypeVar("F", bound=Callable[..., Any])


class Hooks:
    """The hooks of one queue object, and of those that a worker makes from it for other names. Register them early.

    A hook is a function that yields once, like a fixture of pytest: what is before the `yield` runs before, what is
    after it runs after. Functions that return context managers are hooks, too. The first that was registered is
    outermost. A queue without hooks pays nothing for them.
    """

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._callbacks: list[CallbackHook] = []
        self._ended: dict[Ending, tuple[Callable[[Ended], Any], ...]] = {}
        self._firing: tuple[Callable[..., object], ...] = ()
        self._firing_part: Any = None

    def around_callback(self, hook: F) -> F:
        """Run a hook around each call of a callback, with its message, or with the list of a batch; returns it.

        It runs where the callback runs, with its context variables. It may raise what a callback may, before or after
        the `yield`, which raises what the callback has raised: a hook that keeps that to itself makes it a success. An
        `async def` hook is for coroutine functions. Counts for consumers that start afterwards.
        """
        self._callbacks.append(_entered(hook))
        return hook

    def around_send(self, hook: F) -> F:
        """Run a hook around each send of this queue object, with a `Sending`; returns it.

        It may change the headers of the messages before the `yield`, and read `sending.sent` after it. An exception
        before the `yield` refuses the send; one after it is raised, though the messages are stored. It runs in the
        thread or task that sends, and never waits for asyncio: it is a plain function on all queues.
        """
        if isasyncgenfunction(hook) or iscoroutinefunction(hook):
            raise ConfigurationError(f"around_send takes a plain function, not {short_repr(hook)}: see the handbook")
        observe_sends(self._queue, partial(self._sending, _entered(hook)))
        return hook

    def _sending(self, hook: SendHook, messages: list[Any], _: bool) -> HookedSend:  # noqa: FBT001 - of the protocol
        return HookedSend(hook, self._queue.name, messages)

    def on(self, event: Ending) -> Callable[[F], F]:
        """Return a decorator: the function is called with an `Ended` after Redis has stored how an attempt has ended.

        `acked` and `discarded` messages are done, `failed` ones are tried again, and `dead` ones go to the dead letter,
        also those whose worker was lost. It tells of what a consumer of this queue object settles: not of leases
        without a callback, nor of what others kill by hand. The functions run apart from the consumer, one after the
        other, in a thread; on an asyncio queue coroutine functions run in its event loop. One that raises is logged
        and changes nothing. Use it for news, not for work that must be done: if the process dies, nobody is told.
        """
        if event not in ENDINGS:
            raise ConfigurationError(f"the event of a hook is one of {', '.join(ENDINGS)}, not {short_repr(event)}")

        def register(function: F) -> F:
            if not callable(function):
                raise ConfigurationError(f"the hook for {event} must be callable, not {short_repr(function)}")
            if iscoroutinefunction(function) and not self._queue.awaits:
                raise ConfigurationError(
                    f"the hook for {event} is a coroutine function: use it with an AsyncDelayQueue"
                )
            self._ended = {**self._ended, event: (*self._ended.get(event, ()), function)}
            return function

        return register

    def before_fire(self, hook: F) -> F:
        """Call a function with a `Firing` before an occurrence of a schedule fires; returns it.

        It may `skip` the occurrence, or change its payload and headers. It is called in the consumer's loop up to a
        quarter of a second ahead, so it must be quick; each consumer that tries to fire an occurrence calls it, and one
        of them fires. Every consumer of the queue must have it. If it raises, the occurrence does not fire here, which
        is logged, and is tried again. Counts for consumers that start afterwards.
        """
        if not callable(hook) or iscoroutinefunction(hook):
            raise ConfigurationError(f"before_fire takes a plain function, not {short_repr(hook)}")
        from delayq.queue.hooks.firing_hooks import FiringHooks  # few programs decide what fires

        self._firing, self._firing_part = (*self._firing, hook), FiringHooks
        return hook

    def around(self, callback: Callback, queue: str) -> Callback:
        """Return a callback within its hooks, for a consumer of `queue`."""
        if self._callbacks:
            callback = HookedCallbacks(self._callbacks, awaits=self._queue.awaits).around(callback)
        parts: list[Callable[[], LoopPart]] = []
        if self._ended:
            parts.append(partial(EndingHooks, HookCalls(self._ended, queue), queue))
        if self._firing:
            parts.append(partial(self._firing_part, self._firing, self._queue, queue))
        return callback._replace(parts=(*callback.parts, *parts)) if parts else callback


def _entered(hook: Any) -> Any:
    """Return what makes a context manager of a hook's function."""
    if not callable(hook):
        raise ConfigurationError(f"a hook must be callable, not {short_repr(hook)}")
    if isgeneratorfunction(hook):
        return contextmanager(hook)
    if isasyncgenfunction(hook):
        return asynccontextmanager(hook)
    if iscoroutinefunction(hook):
        raise ConfigurationError(f"a hook yields once, around what it is for: {short_repr(hook)} has no yield")
    return hook
