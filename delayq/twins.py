"""Public twins, blocking and asyncio: one docstring serves both, and a test holds names and signatures together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def twin(of: Callable[..., Any]) -> Callable[[F], F]:
    """Give a method of an asyncio face the docstring of its blocking twin."""

    def document(method: F) -> F:
        method.__doc__ = of.__doc__
        return method

    return document
