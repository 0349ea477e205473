"""The arguments of a task: bound by name when a message is sent, and converted to their types when it is delivered."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter
from string import Formatter
from typing import Any, get_type_hints

import msgspec
from msgspec import UNSET

from delayq.errors import ConfigurationError, PayloadError
from delayq.values.codec import Codec, without_values
from delayq.values.plain import changed, convert, to_model, to_plain

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
        self.returns = types.get("return", Any)
        """What the function returns, by its annotation."""
        self._takes_any = any(one.kind is Parameter.VAR_KEYWORD for one in parameters)
        named = [one for one in parameters if one.kind is not Parameter.VAR_KEYWORD]
        self._defaults = {one.name: one.default for one in named if one.default is not Parameter.empty}
        self._types = {one.name: types.get(one.name, Any) for one in named}
        fields = [(name, kind, *([UNSET] if name in self._defaults else [])) for name, kind in self._types.items()]
        try:
            self._kind = msgspec.defstruct(
                "Arguments", fields, kw_only=True, forbid_unknown_fields=not self._takes_any, gc=False
            )
            msgspec.json.Decoder(self._kind, dec_hook=to_model)  # checks the types
        except TypeError as error:
            raise ConfigurationError(f"the parameters of task {name} cannot be decoded: {error}") from None

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the payload for a call; raises `PayloadError` if the function would not get these arguments.

        Arguments that the codec refuses are stored as plain JSON if they come back equal by the types of the
        parameters. Those that it takes, such as a text for a date, become what the type says.
        """
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise PayloadError(f"task {self._name} cannot be called like this: {error}") from None
        for one in self._signature.parameters.values():
            if one.kind is Parameter.VAR_KEYWORD:
                given |= given.pop(one.name, {})
        try:
            stored, back = given, self._as_delivered(given)
        except PayloadError as error:
            try:
                stored = to_plain(given)
            except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
                raise error from None
            back = self._as_delivered(stored)
            for name, value in given.items():
                if changed(value, stored[name]) and (why := changed(value, back[name])):
                    text = f"argument {name} of task {self._name} cannot be sent: {why}: annotate the parameter"
                    raise PayloadError(text) from None
        return stored

    def check_pattern(self, pattern: str, option: str) -> None:
        """Raise `ConfigurationError` for a text whose fields, as in `account:{account}`, are not all parameters."""
        try:
            fields = {re.split(r"[.\[]", name)[0] for _, name, _, _ in Formatter().parse(pattern) if name is not None}
        except ValueError as error:
            raise ConfigurationError(f"the {option} of task {self._name} cannot be read: {error}") from None
        if unknown := fields - self._types.keys():
            known = ", ".join(self._types) or "none"
            text = f"the {option} of task {self._name} has {{{min(unknown)}}}, which is no parameter: it takes {known}"
            raise ConfigurationError(text)

    def fill(self, pattern: str, payload: Mapping[str, Any]) -> str:
        """Return a text with the arguments of a call in its fields, see `check_pattern`."""
        return pattern.format_map({**self._defaults, **payload})

    def _as_delivered(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a payload as the worker will read them; raises `PayloadError` if they do not fit."""
        try:
            return self.read(self._codec.decode(self._codec.encode(payload)))
        except MisfitError as error:
            raise PayloadError(f"task {self._name} does not take these arguments: {error}") from None

    def canonical(self, payload: Any) -> Any:
        """Return the payload of a call in one form for all equal calls: by the types, and without the defaults."""
        try:
            values = {**payload, **to_plain(self.read(payload), order="deterministic")}
        except (MisfitError, TypeError):  # no call of it, or of a codec that carries what JSON does not
            return payload
        return {name: value for name, value in values.items() if not self._is_default(name, value)}

    def _is_default(self, name: str, value: Any) -> bool:
        if name not in self._defaults:
            return False
        try:
            default = convert(to_plain(self._defaults[name], order="deterministic"), self._types[name])
            default = to_plain(default, order="deterministic")
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            default = self._defaults[name]  # such as None for an int, or an object that stands for no value
        return type(value) is type(default) and bool(value == default)

    def read(self, payload: Any) -> dict[str, Any]:
        """Return the arguments for the function; raises `MisfitError` if the payload does not fit its parameters."""
        try:
            struct = convert(payload, self._kind)
        except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
            raise MisfitError(without_values(error)) from None
        arguments = {name: value for name in self._types if (value := getattr(struct, name)) is not UNSET}
        return {**payload, **arguments} if self._takes_any else arguments
