"""The options of sends as columns of a table of messages: their types, how their texts are read, and what is stored.

The columns are derived from `SendOptions`: a new option of a send is a column without a line here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

from delayq.broker.context import QueueContext
from delayq.broker.keys import check_id
from delayq.broker.message.joining import joins
from delayq.broker.requests import OutgoingTable
from delayq.errors import ConfigurationError, DelayqError, InvalidValueError, did_you_mean, short_repr
from delayq.queue.sending.due_times import placed
from delayq.queue.sending.message_options import SendOptions, attributes_of, check_attributes, replacing

NO_COLUMNS = {
    "replace": "say for the whole table what happens to an id that is there: on_conflict=replace",
    "unique": "each row has its id: make it of what is to be unique, such as sha2(payload, 256) in SQL",
}
"""The options that are no columns, and what to do instead."""
_OF_THEIR_OWN = ("id", "headers")
NOT_OF_RULES = ("jitter", "hours", "tz", "group", "debounce", "at_most", "collect")
"""The options that a plan cannot have: they move the due time, for which the plan and its audit account."""
_BURST = ("debounce", "at_most", "collect")
"""The options that say how a group gathers."""
_WORDS = {
    str: ("STRING", ("string",)),
    int: ("INT", ("byte", "short", "integer", "long")),
    float: ("a number of seconds", ("byte", "short", "integer", "long", "float", "double")),
    timedelta: ("INTERVAL DAY TO SECOND", ("daytimeinterval",)),
    datetime: ("TIMESTAMP", ("timestamp",)),
}
"""The types that an option may have: how users write them, and the same as Spark's type names."""


RuleOptions = Mapping[str, str | int | float]
"""The options of the messages of a rule."""


class OptionColumn(NamedTuple):
    """The column of an option."""

    wanted: str
    """Its types as users write them."""
    allowed: tuple[str, ...]
    """The same as Spark's type names; a text is read as any of them."""
    kinds: frozenset[Any]
    """The Python types of its values."""


def _column(hint: Any) -> OptionColumn:
    kinds = frozenset(_kinds_of(hint))
    found = [_WORDS[kind] for kind in _WORDS if kind in kinds and not (kind is int and float in kinds)]
    names = ("string", "void", *(name for _, allowed in found for name in allowed))
    return OptionColumn(" or ".join(wanted for wanted, _ in found), tuple(dict.fromkeys(names)), kinds)


def _kinds_of(hint: Any) -> list[Any]:
    """Return the Python types of a hint; a literal has those of its values."""
    inner = get_args(hint)
    if not inner:
        return [hint if isinstance(hint, type) else type(hint)]
    return [kind for one in inner for kind in _kinds_of(one)]


OPTION_COLUMNS = {
    name: _column(hint)
    for name, hint in get_type_hints(SendOptions).items()
    if name not in NO_COLUMNS and name not in _OF_THEIR_OWN
}
"""The columns of the options of a send, besides those that every message has."""
_ISO_DATE = 10
"""Characters of a date in ISO 8601."""


def read_option(name: str, value: Any) -> Any:
    """Return a value of a column as the option takes it; a text may be a number, or a time with its zone.

    Raises `ConfigurationError` for a text that is neither; what the option allows is not checked.
    """
    if not isinstance(value, str):
        return value
    kinds, text = OPTION_COLUMNS[name].kinds, value.strip()
    if datetime in kinds and text[4:5] == text[7:8] == "-" and len(text) >= _ISO_DATE:
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            looks = "a duration such as '2h', or a time with its zone such as 2027-01-31T09:00:00+01:00"
            raise InvalidValueError(f"{name} must be {looks}, not {short_repr(value)}") from None
    if float in kinds:
        return float(text) if text.replace(".", "", 1).isdecimal() else text
    if int in kinds:
        try:
            return int(text)
        except ValueError:
            raise InvalidValueError(f"{name} must be a whole number, not {short_repr(value)}") from None
    return value


def check_rule_options(options: Any, field: str) -> None:
    """Raise `ConfigurationError` for options that the messages of a rule cannot have; errors call it `field`."""
    if not isinstance(options, Mapping):
        raise ConfigurationError(f"{field} must be a table of options, not {short_repr(options)}")
    known = tuple(name for name in OPTION_COLUMNS if name not in NOT_OF_RULES)
    for name, value in options.items():
        if name in NOT_OF_RULES:
            raise ConfigurationError(f"{field}: {name} is for no plan: a plan says exactly when each message is due")
        if name not in known:
            raise ConfigurationError(f"{field}: unknown option {name!r}{did_you_mean(name, known)}")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ConfigurationError(f"{field}: {name} must be a text or a number, not {short_repr(value)}")
    read = {name: read_option(name, value) for name, value in options.items()}
    try:
        check_attributes(read, 0, "id")
    except ConfigurationError as error:
        raise ConfigurationError(f"{field}: {error}") from error


def columns_of_rules(options: Mapping[str, RuleOptions]) -> dict[str, dict[str, str]]:
    """Return the columns that a plan has for the options of its rules: the value of each rule, as a text."""
    names = dict.fromkeys(name for some in options.values() for name in some)
    return {name: {rule: str(some[name]) for rule, some in options.items() if name in some} for name in names}


Cells = tuple[tuple[str, Any], ...]
"""The options that a row has, with their values as they are in the table."""


class OptionRows:
    """Adds to the messages of a batch what their options make of them: due times and attributes.

    Rows with the same options are checked once.
    """

    def __init__(self, context: QueueContext, *, replaces: bool) -> None:
        """`context` is that of the queue; with `replaces` a waiting message with the id of a row is replaced."""
        self._context = context
        self._replaces = replaces
        self._read = lru_cache(1024)(_read)
        self._shared = lru_cache(1024)(self._attributes)

    def place(
        self, messages: OutgoingTable, rows: Sequence[Cells], *, is_json: bool
    ) -> tuple[list[Any], list[bytes], dict[int, DelayqError]]:
        """Return the due times and attributes of messages with these options, and the errors of the invalid rows.

        With `is_json`, a payload that joins a group must be JSON.
        """
        dues, attributes, errors = list(messages.dues), [b""] * len(rows), dict[int, DelayqError]()
        for row, cells in enumerate(rows):
            if cells:
                due = 0 if dues[row] == "0" else dues[row]
                payload = messages.payloads[row] if is_json and any(name == "group" for name, _ in cells) else None
                try:
                    dues[row], attributes[row] = self._one(messages.ids[row], due, cells, payload)
                except DelayqError as error:
                    errors[row] = error
        return dues, attributes, errors

    def _one(self, id: str, due: Any, cells: Cells, json: Any) -> tuple[Any, bytes]:
        options = self._read(cells)
        due = placed(self._context, due, id, options, replace=False)
        depends = isinstance(options.get("expires"), datetime)
        stored = (self._attributes if depends else self._shared)(cells, due if depends else 0)
        group = options.get("group")
        if group is None:
            return due, stored
        if not due:
            raise ConfigurationError("group needs a due time in a table: the message joins its group when it is due")
        replacing(options, due)
        if json is not None:
            _check_json(json)
        return due, joins(options, check_id(group, "group"), id, stored, is_json=json is not None)

    def _attributes(self, cells: Cells, due: str | int) -> bytes:
        return attributes_of(self._context, due, self._read(cells), "id", replace=self._replaces)


def _read(cells: Cells) -> dict[str, Any]:
    options = {name: read_option(name, value) for name, value in cells}
    alone = next((one for one in _BURST if one in options), None)
    if alone is not None and "group" not in options:
        raise ConfigurationError(f"{alone} goes with group in a table: each row is a message of its own until it joins")
    return options


def _check_json(payload: bytes) -> None:
    try:
        msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = "payload must be JSON to join a group; bytes of a column of BINARY join as they are"
        raise ConfigurationError(text) from None
