"""The arguments of a task: bound by name when a message is sent, and converted to their types when it is delivered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter
from typing import Any, get_type_hints

import msgspec
from msgspec import UNSET

from delayq.codec import Codec, to_model, without_values
from delayq.errors import ConfigurationError, PayloadError

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL)


def _annotated(function: Callable[..., Any]) -> Any:
    """Return the function that has the types of what is called: a `partial`, a class or an object with `__call__`."""
    function = inspect.unwrap(function)
    while isinstance(function, partial):
        function = inspect.unwrap(function.func)
    if isinstance(function, type):
        return inspect.getattr_static(function, "__init__")
    return function if inspect.isroutine(function) else type(function).__call__


class MisfitError(Exception):
    """A payload does not fit the parameters of a task; the text says why, without the values."""


class TaskArguments:
    """The parameters of one function, as they are stored: an object with a field for each argument that was given."""

    def __init__(self, name: str, function: Callable[..., Any], codec: Codec) -> None:
        """Read the parameters; raises `ConfigurationError` if a message cannot carry them."""
        self._name, self._codec = name, codec
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError):  # some functions written in C do not tell
            text = f"the parameters of task {name} cannot be read: write a Python function that calls it"
            raise ConfigurationError(text) from None
        parameters = self._signature.parameters.values()
        unnamed = [one.name for one in parameters if one.kind in _BY_POSITION]
        if unnamed:
            raise ConfigurationError(
                f"task {name} must take its arguments by name, and {unnamed[0]} has none: messages store names, so"
                " that parameters can be added and moved"
            )
        try:
            types = get_type_hints(_annotated(function), include_extras=True)
        except (NameError, AttributeError, SyntaxError, TypeError) as error:
            text = f"the parameter types of task {name} cannot be read: {error}; import it outside of TYPE_CHECKING"
            raise ConfigurationError(text) from None
        self._takes_any = any(one.kind is Parameter.VAR_KEYWORD for one in parameters)
        named = [one for one in parameters if one.kind is not Parameter.VAR_KEYWORD]
        fields = [
            (one.name, types.get(one.name, Any), *([] if one.default is Parameter.empty else [UNSET])) for one in named
        ]
        self._names = [one.name for one in named]
        try:
            self._kind = msgspec.defstruct(
                "Arguments", fields, kw_only=True, forbid_unknown_fields=not self._takes_any, gc=False
            )
            msgspec.json.Decoder(self._kind, dec_hook=to_model)  # checks the types
        except TypeError as error:
            raise ConfigurationError(f"the parameters of task {name} cannot be decoded: {error}") from None

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the payload for a call; raises `PayloadError` if the function does not take these arguments."""
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise PayloadError(f"task {self._name} cannot be called like this: {error}") from None
        for one in self._signature.parameters.values():
            if one.kind is Parameter.VAR_KEYWORD:
                given |= given.pop(one.name, {})
        try:
            self.read(self._codec.decode(self._codec.encode(given)))  # as the worker will
        except MisfitError as error:
            raise PayloadError(f"task {self._name} does not take these arguments: {error}") from None
        return given

    def read(self, payload: Any) -> dict[str, Any]:
        """Return the arguments for the function; raises `MisfitError` if the payload does not fit its parameters."""
        try:
            struct = msgspec.convert(payload, self._kind, str_keys=True, dec_hook=to_model)
        except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
            raise MisfitError(without_values(error)) from None
        arguments = {name: value for name in self._names if (value := getattr(struct, name)) is not UNSET}
        return {**payload, **arguments} if self._takes_any else arguments
