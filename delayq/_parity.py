"""Blocking and asyncio classes share docstrings; a test keeps their names and signatures equal."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


def mirrors(of: Callable[..., Any]) -> Callable[[F], F]:
    """Give an asyncio method the docstring of its blocking counterpart."""

    def copy_docstring(method: F) -> F:
        method.__doc__ = of.__doc__
        return method

    return copy_docstring


def awaited(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return the asyncio counterpart of a blocking method, which must return what its last call returns.

    In an asyncio class that call returns an awaitable of the result, so one body serves both classes.
    """

    @wraps(method)
    async def asynchronous(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        result: Any = method(self, *args, **kwargs)
        return await result

    asynchronous.__qualname__ = f"Async{method.__qualname__}"
    return asynchronous
