"""Attributes of a message: what it has beyond id, due time, retries, payload and headers, if anything.

They are stored in one short text, `name=remind`: pairs without spaces, separated by spaces, so that scripts can read
and change one of them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from delayq.errors import InvalidValueError, short_repr
from delayq.values.times import Duration, to_millis

MIN_TIMEOUT = 10
"""Milliseconds that every callback may run."""
MAX_REMEMBERED = 256
"""Bytes of a text that is parsed once for many messages: those with progress can be much longer."""
_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
_NUMBER = re.compile(r"-?[0-9]{1,15}")


class Attributes(NamedTuple):
    """The attributes of one message."""

    name: str = ""
    """The name of what is to be done, by which a handler is chosen; '' for none."""
    key: str = ""
    """What it belongs to, such as an account, by which a template of limits orders it; '' for none."""
    snoozes: int = 0
    """How often the application has sent the message back uncharged."""
    unhandled: int = 0
    """How often a process has sent it back because none of its functions takes it."""
    expires: str = ""
    """When it expires: milliseconds since 1970, or + and milliseconds after its due time; '' for never."""
    missed: str = ""
    """What becomes of it then: `drop`, or '' for the dead letter."""
    priority: int = 0
    """Its head start among those that are due, in steps; negative for one that others overtake."""
    unique_for: str = ""
    """How long after the send its id is reserved, also once it has ended (ms); '' for no longer than it lives."""
    unique_after: str = ""
    """How long after its end its id is reserved (ms); '' for none."""
    since: str = ""
    """When the first send of its burst was made (ms since 1970), which the script notes; '' if it is not debounced."""
    collect: int = 0
    """How many entries its payload may have; 0 for a payload that is no list of entries."""
    gathers: str = ""
    """What its script notes of the entries while it gathers them, see `lib/gathered`; '' once it does not."""
    joins: str = ""
    """The group that it joins once it is due, see `Joining`; '' for none."""
    timeout: int = 0
    """How long its callback may run (ms); 0 as its task or its queue says."""
    retention: int = 0
    """How long its result is kept (ms); 0 if it is not."""
    hours: str = ""
    """When it may be delivered, with _ for spaces: `MON-FRI_09:00-17:00`; '' for at any time."""
    tz: str = ""
    """The time zone of its hours; '' for UTC."""
    span: str = ""
    """The span of the attempt that failed last: the trace's id and its own, in hexadecimal; '' if none was recorded."""
    progress: str = ""
    """What its callback has reported last (base64); '' for nothing."""

    def encode(self) -> bytes:
        """Return the stored text, empty if there are none."""
        return " ".join(f"{name}={value}" for name, value in self._asdict().items() if value).encode()

    @classmethod
    def of(cls, stored: bytes | None) -> Attributes:
        """Read the stored text; what a newer delayq has added is left out."""
        if not stored:
            return NONE
        return _remembered(stored) if len(stored) <= MAX_REMEMBERED else _read(stored)


NONE = Attributes()
_TEXTS = tuple(name for name, default in Attributes._field_defaults.items() if default == "")
_NUMBERS = tuple(name for name, default in Attributes._field_defaults.items() if default == 0)


def _read(stored: bytes) -> Attributes:
    pairs = dict(part.partition("=")[::2] for part in stored.decode("utf-8", "replace").split(" "))
    texts: dict[str, Any] = {name: pairs[name] for name in _TEXTS if name in pairs}
    numbers: dict[str, Any] = {name: int(pairs[name]) for name in _NUMBERS if _NUMBER.fullmatch(pairs.get(name, ""))}
    return Attributes(**texts, **numbers)


_remembered = lru_cache(1024)(_read)


def snoozed(stored: bytes) -> bytes:
    """Return the stored text with one snooze more: a function has taken the message, so nothing is unhandled.

    All else stays, also what a newer delayq has added. Progress is left out: the script keeps what is reported by then.
    """
    ended = (b"snoozes=", b"unhandled=", b"progress=")
    others = [part for part in stored.split(b" ") if part and not part.startswith(ended)]
    return b" ".join([*others, b"snoozes=%d" % (Attributes.of(stored).snoozes + 1)])


def left_unhandled(stored: bytes) -> bytes:
    """Return the stored text with one return more of those that no function took; the rest as in `snoozed`."""
    ended = (b"unhandled=", b"progress=")
    others = [part for part in stored.split(b" ") if part and not part.startswith(ended)]
    return b" ".join([*others, b"unhandled=%d" % (Attributes.of(stored).unhandled + 1)])


def check_timeout(timeout: Duration | None) -> int:
    """Return how long a callback may run (ms), 0 for None; raise `ConfigurationError` for what is no duration."""
    return 0 if timeout is None else to_millis(timeout, "timeout", min=MIN_TIMEOUT)


def check_message_name(name: str) -> str:
    """Return a valid name of a message; raise `ConfigurationError` for any other."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidValueError(f"name must be 1 to 128 of A-Z a-z 0-9 . _ : / -, not {short_repr(name)}")
    return name
