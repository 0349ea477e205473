"""The context variables of callbacks: each message starts from those of the consumer's start."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context, ContextVar, copy_context
from types import CoroutineType
from typing import Any, cast


class StartContext:
    """The context variables at the start of a consumer."""

    def __init__(self) -> None:
        """Keep those of the caller."""
        start = copy_context()
        self._start = start
        self._changing = [(variable, copier) for variable, value in start.items() if (copier := _copier(value))]
        self.copy: Callable[[], Context] = self._copy_all if self._changing else start.copy
        """Returns a context for one callback."""

    def _copy_all(self) -> Context:
        context = self._start.copy()
        for variable, copier in self._changing:
            context.run(_set_copy, variable, copier)
        return context


def _copier(value: Any) -> Callable[[], object] | None:
    """Return what copies a value that callbacks would change in place: the precision of decimals, tags of Sentry."""
    if (decimal := sys.modules.get("decimal")) is not None and type(value) is decimal.Context:
        return cast("Callable[[], object]", value.copy)
    if type(value).__module__.startswith("sentry_sdk."):
        return cast("Callable[[], object] | None", getattr(value, "fork", None))
    return None


def _set_copy(variable: ContextVar[Any], copier: Callable[[], object]) -> None:
    variable.set(copier())


class InContext:
    """Awaits what a function returns, all within a context."""

    __slots__ = ("_argument", "_context", "_function")

    def __init__(self, context: Context, function: Callable[[Any], Awaitable[Any]], argument: Any) -> None:
        """Call the function with this argument when it is awaited."""
        self._context, self._function, self._argument = context, function, argument

    def __await__(self) -> Generator[Any, Any, Any]:
        """Run the function and each step of what it returns in the context; returns the result."""
        run = self._context.run
        found: Any = run(self._function, self._argument)
        steps = found if type(found) is CoroutineType else _steps_of(found)
        act: Callable[[Any], Any] = steps.send
        given: Any = None
        while True:
            try:
                step = run(act, given)
            except StopIteration as end:
                return end.value
            try:
                act, given = steps.send, (yield step)
            except GeneratorExit:
                run(steps.close)
                raise
            except BaseException as error:  # noqa: BLE001 - a cancellation, for the callback to see
                act, given = steps.throw, error


async def _steps_of(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
