"""The `lifespan` of a queue: entered before a consumer claims anything, left after its end."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from contextvars import copy_context
from typing import Any, Self

from delayq.errors import ConfigurationError, short_repr
from delayq.safe_log import SafeLog

log = SafeLog("delayq.consumer")


class Lifespan:
    """The lifespan of a queue object in one run, and its value for the callbacks of that run."""

    value: Any = None
    """What was entered has returned it."""
    _entered: Any = None

    def __init__(self, queue: str, function: Any, *, awaits: bool) -> None:
        """Check the option of a queue; only one that `awaits` takes an async lifespan."""
        self._queue, self._function, self._awaits = queue, function, awaits
        if not callable(function) or inspect.iscoroutinefunction(function):
            text = "lifespan must be a function that yields once, or one that returns a context manager, not"
            raise ConfigurationError(f"{text} {short_repr(function)}")
        if inspect.isasyncgenfunction(function) and not awaits:
            raise self._refusal(function)
        if not _takes_nothing(function):
            raise ConfigurationError(f"lifespan is called without arguments: {short_repr(function)} needs some")
        self._make: Callable[[], Any] = function
        if inspect.isgeneratorfunction(function):
            self._make = contextmanager(function)
        elif inspect.isasyncgenfunction(function):
            self._make = asynccontextmanager(function)

    def _refusal(self, found: object) -> ConfigurationError:
        return ConfigurationError(
            f"the lifespan of {self._queue} is asynchronous ({short_repr(found)}): use it with an AsyncDelayQueue, or"
            " write it without async"
        )

    def anew(self) -> Lifespan:
        """Return the same lifespan for one more run."""
        return Lifespan(self._queue, self._function, awaits=self._awaits)

    @staticmethod
    def together(lifespans: Sequence[Lifespan]) -> Lifespans:
        """Return these as those of one run."""
        return Lifespans(lifespans)

    def enter(self) -> None:
        """Enter it in the calling thread."""
        around = self._make()
        if not isinstance(around, AbstractContextManager):
            if isinstance(around, AbstractAsyncContextManager):
                raise self._refusal(around)
            raise self._no_manager(around)
        self.value, self._entered = around.__enter__(), around

    async def enter_async(self) -> None:
        """Enter it in the calling task; a blocking one blocks the event loop."""
        around = self._make()
        if isinstance(around, AbstractAsyncContextManager):
            self.value, self._entered = await around.__aenter__(), around
        elif isinstance(around, AbstractContextManager):
            self.value, self._entered = around.__enter__(), around
        else:
            raise self._no_manager(around)

    def _no_manager(self, found: object) -> ConfigurationError:
        text = f"the lifespan of {self._queue} returned {short_repr(found)}: it must return a context manager, or yield"
        return ConfigurationError(text)

    def leave(self) -> BaseException | None:
        """Leave it; returns what that has raised, which is logged."""
        around, self._entered = self._entered, None
        try:
            around.__exit__(None, None, None)
        except BaseException as error:  # noqa: BLE001 - those of other queues are to be left, too
            return self._failed(error)
        return None

    async def leave_async(self) -> BaseException | None:
        """Leave it in the task that has entered it; returns what that has raised, which is logged."""
        if not isinstance(self._entered, AbstractAsyncContextManager):
            return self.leave()
        around, self._entered = self._entered, None
        try:
            await around.__aexit__(None, None, None)
        except BaseException as error:  # noqa: BLE001 - as above
            return self._failed(error)
        return None

    def _failed(self, error: BaseException) -> BaseException:
        log.error("the lifespan of %s failed at its end", self._queue, exc_info=error, extra={"queue": self._queue})
        return error


def _takes_nothing(function: Any) -> bool:
    try:
        inspect.signature(function).bind()
    except ValueError:  # some functions written in C do not tell
        return True
    except TypeError:
        return False
    return True


class Lifespans:
    """Those of all queues of one run: entered in their order, left in reverse order, each whatever others raise."""

    def __init__(self, lifespans: Sequence[Lifespan]) -> None:
        """Enter nothing yet."""
        self._lifespans = lifespans
        self._entered: list[Lifespan] = []
        self._context = copy_context()
        """What they set of context variables, they find again in the thread that leaves them."""

    def __enter__(self) -> Self:
        """Enter all; if one fails, those before it are left."""
        self._context.run(self._enter)
        return self

    def _enter(self) -> None:
        try:
            for one in self._lifespans:
                one.enter()
                self._entered.append(one)
        except BaseException:
            self._leave()
            raise

    def leave(self) -> BaseException | None:
        """Leave all, in any thread; returns the first error."""
        return self._context.run(self._leave)

    def _leave(self) -> BaseException | None:
        first = None
        while self._entered:
            error = self._entered.pop().leave()
            first = first or error
        return first

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Leave all; raises the first error, unless there is one already."""
        failed = self.leave()
        if failed is not None and error is None:
            raise failed

    async def __aenter__(self) -> Self:
        """Enter all in this task; if one fails, those before it are left."""
        try:
            for one in self._lifespans:
                await one.enter_async()
                self._entered.append(one)
        except BaseException:
            await self._leave_async()
            raise
        return self

    async def _leave_async(self) -> BaseException | None:
        first = None
        while self._entered:
            error = await self._entered.pop().leave_async()
            first = first or error
        return first

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Leave all in the task that has entered them; see `__exit__`."""
        failed = await self._leave_async()
        if failed is not None and error is None:
            raise failed
