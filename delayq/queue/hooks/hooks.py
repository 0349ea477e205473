"""`queue.hooks`: what a program has done around its sends and callbacks, and when messages end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, TypeVar

from delayq.errors import ConfigurationError, short_repr
from delayq.queue.hooks.ending_hooks import EndingHooks
from delayq.queue.hooks.hook_calls import ENDINGS, Ended, Ending, HookCalls
from delayq.queue.hooks.hooked_callbacks import CallbackHook, HookedCallbacks
from delayq.queue.hooks.hooked_sends import HookedSend, SendHook
from delayq.queue.sending.observed_sends import observe_sends
from delayq.worker.drivers.work_buffer import Callback

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

    def around(self, callback: Callback, queue: str) -> Callback:
        """Return a callback within its hooks, for a consumer of `queue`."""
        if self._callbacks:
            callback = HookedCallbacks(self._callbacks, awaits=self._queue.awaits).around(callback)
        return self._told(callback, queue) if self._ended else callback

    def _told(self, callback: Callback, queue: str) -> Callback:
        hooks = partial(EndingHooks, HookCalls(self._ended, queue), queue)
        return callback._replace(parts=(*callback.parts, hooks))


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
