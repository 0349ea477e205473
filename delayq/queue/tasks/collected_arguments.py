"""The arguments of a task with `collect`: a send has one of each, and the function is called with lists of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any, get_args, get_origin, get_type_hints

from delayq.errors import ConfigurationError
from delayq.queue.tasks.task_arguments import TaskArguments

_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def called_once(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the parameters of one send: for each `list[T]` of a task, one T.

    Raises `ConfigurationError` for a parameter that is no list, or has a default.
    """
    try:
        signature, types = inspect.signature(function), get_type_hints(function, include_extras=True)
    except (TypeError, ValueError, NameError, AttributeError):
        text = f"the parameter types of task {name} cannot be read: collect needs a Python function that takes lists"
        raise ConfigurationError(text) from None
    given = [one for one in signature.parameters.values() if one.kind in _NAMED]
    if not given or len(given) < len(signature.parameters):
        raise ConfigurationError(f"task {name} must take each of its arguments as a list, as it has collect")
    for one in given:
        kind = types.get(one.name, list)
        if (get_origin(kind) or kind) is not list or one.default is not Parameter.empty:
            raise ConfigurationError(
                f"task {name} has collect, so {one.name} must be a list without a default, as in {one.name}: list[int]"
            )
    single = {one.name: (get_args(types.get(one.name)) or (Any,))[0] for one in given}

    def called(**arguments: Any) -> None:
        """Stands for the function."""

    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # as `functools.wraps` sets it
        [one.replace(annotation=single[one.name]) for one in given]
    )
    called.__annotations__ = {**single, **({"return": types["return"]} if "return" in types else {})}
    return called


def read_lists(arguments: TaskArguments, payload: Any) -> dict[str, list[Any]]:
    """Return the lists for the function; a payload that was sent without `collect` counts as one of them.

    Raises `MisfitError` if one of the payloads does not fit.
    """
    sends = [arguments.read(one) for one in (payload if isinstance(payload, list) else [payload])]
    return {name: [one[name] for one in sends] for name in (sends[0] if sends else ())}
