"""Attributes of a message: what it has beyond id, due time, retries, payload and headers, if anything.

They are stored in one short text, `name=remind`: pairs without spaces, separated by spaces, so that scripts can read
and change one of them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from delayq.errors import ConfigurationError, short_repr

_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,128}")


class Attributes(NamedTuple):
    """The attributes of one message."""

    name: str = ""
    """The name of what is to be done, by which a handler is chosen; '' for none."""

    def encode(self) -> bytes:
        """Return the stored text, empty if there are none."""
        return b"name=" + self.name.encode() if self.name else b""

    @classmethod
    def of(cls, stored: bytes | None) -> Attributes:
        """Read the stored text; what a newer delayq has added is left out."""
        if not stored:
            return NONE
        pairs = dict(part.partition("=")[::2] for part in stored.decode("utf-8", "replace").split(" "))
        return cls(name=pairs.get("name", ""))


NONE = Attributes()


def check_message_name(name: str) -> str:
    """Return a valid name of a message; raise `ConfigurationError` for any other."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(f"name must be 1 to 128 of A-Z a-z 0-9 . _ : / -, not {short_repr(name)}")
    return name
