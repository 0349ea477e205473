"""Messages that join a group once they are due: until then each waits by itself, under an id of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from delayq.broker.message.attributes import Attributes
from delayq.broker.message.collected import MAX_COLLECT
from delayq.broker.message.same_id import Debounce, check_debounce
from delayq.errors import ConfigurationError


class Joining(NamedTuple):
    """The group that a message is to join."""

    group: str
    """The id of the message that gathers."""
    how: Debounce
    """When that is due, and how many payloads it may have."""
    is_json: bool
    """Whether the payload is JSON, see `entry_of`."""

    def encode(self) -> str:
        """Return it as the attribute `joins`."""
        at_most = "" if self.how.at_most is None else self.how.at_most
        return f"{self.how.quiet}:{at_most}:{self.how.collect}:{'json' if self.is_json else 'bytes'}:{self.group}"

    @classmethod
    def of(cls, stored: str) -> Joining | None:
        """Read the attribute; None for one that delayq has not written."""
        quiet, at_most, collect, form, group = (stored.split(":", 4) + [""] * 4)[:5]
        numbers = (quiet, at_most or "1", collect)
        if not group or not all(number.isdecimal() and len(number) < 16 for number in numbers):  # noqa: PLR2004
            return None
        if not 0 < int(collect) <= MAX_COLLECT:
            return None
        how = Debounce(int(quiet), int(at_most) if at_most else None, int(collect))
        return cls(group, how, form == "json")

    def attributes(self, stored: bytes) -> bytes:
        """Return those of the group, by the stored text of a message that joins it: what is of its life is left out."""
        kept = Attributes.of(stored)._replace(joins="", snoozes=0, unhandled=0, span="", progress="")
        return kept._replace(collect=self.how.collect).encode()


def joins(options: Mapping[str, Any], group: str, id: str, stored: bytes, *, is_json: bool) -> bytes:
    """Return the attributes of a message that joins a group, by the checked options of its send, and its others.

    Raises `ConfigurationError` for a message with the id of its group.
    """
    how = cast("Debounce", check_debounce(options.get("debounce"), options.get("at_most"), options.get("collect")))
    if group == id:
        raise ConfigurationError(f"a message with the id of its group cannot join it: give {group} an id of its own")
    text = Joining(group, how, is_json).encode()
    return Attributes.of(stored)._replace(collect=0, joins=text).encode()
