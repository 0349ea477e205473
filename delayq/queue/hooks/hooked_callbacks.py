"""Callbacks within the hooks of a program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack
from functools import partial
from inspect import isawaitable
from typing import Any

from delayq.worker.drivers.callbacks import is_blocking
from delayq.worker.drivers.work_buffer import Callback

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
