"""Plain JSON values: what other types become in JSON, such as models, and whether they come back equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, get_args

import msgspec

from delayq.errors import PayloadError

NO_TYPE = (
    "send what JSON has, or name the type: `payload_type` for payloads, an annotation for what a task takes and"
    " returns; or use another codec"
)
"""What to do about a value that would come back as another."""


def to_base(value: Any) -> Any:
    """Return a model as plain values, and a text or number of a subclass as that of its base, for msgspec."""
    for kind, base in _BASES:
        if isinstance(value, kind):
            return base(value)
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True, warnings=False)  # it is decoded again, to check it
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


_BASES: Any = ((str, str.__str__), (int, int.__int__), (float, float.__float__))
"""The types whose subclasses msgspec refuses, and what makes one of the type itself."""


to_plain: Callable[..., Any] = partial(msgspec.to_builtins, str_keys=True, enc_hook=to_base)
"""Returns a value as JSON has it, its containers anew; `TypeError` for one that JSON cannot express.

A tuple stays one. With `order="deterministic"`, the items of objects and sets are sorted.
"""


def changed(value: Any, back: Any) -> str:
    """Return how a value differs from what it comes back as, by its types alone; '' if it does not.

    A tuple may come back as a list: JSON has nothing else for it.
    """
    try:
        if value == back:
            return ""
    except Exception:  # noqa: BLE001 - a class may raise anything when it is compared
        return f"a {type(value).__name__} cannot be compared with what it would come back as"
    if isinstance(value, list | tuple) and isinstance(back, list | tuple) and len(value) == len(back):
        return _first(map(changed, value, back))
    if isinstance(value, dict) and isinstance(back, dict) and len(value) == len(back):
        keys = map(partial(_changed_key, back), value)
        return _first(keys) or _first(changed(one, back[key]) for key, one in value.items())
    names = _fields(type(value)) if type(value) is type(back) else ()
    if names:  # it need not have an equality of its own, and one of its values may be a tuple
        return _first(changed(getattr(value, name, None), getattr(back, name, None)) for name in names)
    as_what = "a different one" if type(value) is type(back) else type(back).__name__
    return f"a {type(value).__name__} would come back as {as_what}"


def _changed_key(back: dict[Any, Any], key: Any) -> str:
    return "" if key in back else f"a key that is a {type(key).__name__} would come back as another"


def _first(texts: Iterable[str]) -> str:
    return next(filter(None, texts), "")


def _fields(kind: Any) -> tuple[str, ...]:
    """Return the names of what an object of a class holds; none for a class that does not tell."""
    declared: Any = getattr(kind, "model_fields", None) or getattr(kind, "__dataclass_fields__", ())
    attrs = (one.name for one in getattr(kind, "__attrs_attrs__", ()))
    return (*declared, *attrs, *tuple(getattr(kind, "__struct_fields__", ())))


class AnnotatedType:
    """The type that a task's function is annotated with, for what it returns."""

    __slots__ = ("_kind",)

    def __init__(self, kind: Any) -> None:
        """Take any type; one that msgspec does not know converts nothing."""
        self._kind = kind

    def read(self, plain: Any) -> Any:
        """Return a decoded value as the type says; the value itself if it does not fit."""
        try:
            return convert(plain, self._kind)
        except (msgspec.ValidationError, TypeError, ValueError, RecursionError):
            return plain

    def plain(self, value: Any) -> Any:
        """Return a value as plain JSON; `PayloadError` if it does not come back equal by its type."""
        try:
            plain = to_plain(value)
            why = changed(value, self.read(plain))
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            why = f"JSON has nothing for a {type(value).__name__}"
        if why:
            raise PayloadError(f"payload cannot be encoded as JSON: {why}: {NO_TYPE}")
        return plain


def convert(plain: Any, kind: Any) -> Any:
    """Return a decoded value as one of a type; raises what msgspec raises if it does not fit."""
    return msgspec.convert(plain, kind, str_keys=True, dec_hook=to_model)


# Models


def is_model(kind: Any) -> bool:
    """Tell whether a class is a model as those of pydantic: it checks JSON itself, and its objects become JSON."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump")


def to_model(kind: Any, value: Any) -> Any:
    """Return plain values as a model; `ValueError`, which msgspec reports with its place, if it refuses them."""
    if isinstance(value, kind):
        return value
    if not is_model(kind):
        raise TypeError(f"Decoding objects of type {kind.__name__} is unsupported")
    return read_model(kind, msgspec.json.encode(value))  # as JSON: even in a strict model a text may be a date


def read_model(kind: Any, data: bytes) -> Any:
    """Return a model from JSON; `ValidationError` without its values if the model refuses it."""
    try:
        return kind.model_validate_json(data)
    except ValueError as error:
        raise msgspec.ValidationError(_model_error(kind, error)) from None


def _model_error(kind: type, error: ValueError) -> str:
    """Return what a model has refused, without quoting the payload: only the name of the first field and the rule."""
    errors = getattr(error, "errors", None)
    found = errors(include_url=False, include_context=False, include_input=False) if callable(errors) else []
    name = "payload" if kind is ModelUnion else kind.__name__
    if not found:
        return f"not a valid {name}"
    fields = getattr(kind, "model_fields", {})
    at = next((f" in {field}" for field in found[0]["loc"][:1] if field in fields), "")
    return f"not a valid {name}: {found[0]['type']}{at}"


def models_in(payload_type: Any) -> bool:
    """Tell whether a type is a model, or has one among its parts."""
    return is_model(payload_type) or any(models_in(part) for part in get_args(payload_type))


class ModelUnion:
    """Decodes types that msgspec refuses because they are unions of models, with pydantic itself."""

    def __init__(self, payload_type: Any) -> None:
        from pydantic import TypeAdapter  # is there: one of its models is part of the type

        self._adapter = TypeAdapter(payload_type)

    def decode(self, data: bytes) -> Any:
        """Return the payload."""
        try:
            return self._adapter.validate_json(data)
        except ValueError as error:
            raise msgspec.ValidationError(_model_error(ModelUnion, error)) from None

    def check(self, payload: Any) -> None:
        """Raise `ValueError` for a payload of another type."""
        try:
            self._adapter.validate_python(payload, strict=True)
        except ValueError as error:
            raise msgspec.ValidationError(_model_error(ModelUnion, error)) from None
