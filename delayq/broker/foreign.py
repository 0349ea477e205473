"""Reads stored values safely: another program may have put anything in the place of one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import msgspec

from delayq.values.codec import decode_headers
from delayq.values.times import LATEST

_RECORD = re.compile(
    r"(pending|ready|ranked|throttled|leased|backoff|retry|garbage)"
    r" ([0-9]{1,15}) ([0-9]{1,9}) ([0-9]{1,16}) ([0-9]{1,16}) (.*)",
    re.DOTALL,
)
MAX_DIGITS = 15
"""Most digits of a number, but a token: delayq writes none that is larger."""
NEVER = -1
"""A time that does not come."""


def read_time(text: bytes | str | int) -> int:
    """Return a time in milliseconds since 1970; `NEVER` for one that does not come, or is no number."""
    try:
        number = float(text)
    except ValueError:
        return NEVER
    return max(math.ceil(number), 0) if -math.inf < number <= LATEST else 0 if number < 0 else NEVER


def read_number(text: bytes | str) -> int | None:
    """Return a whole number of at most 15 digits; None for anything else."""
    return int(text) if len(text) <= MAX_DIGITS and text.isdigit() and text.isascii() else None


def read_numbers(cells: Iterable[bytes | int]) -> list[int]:
    """Return whole numbers, or times: what is none of both is `NEVER`."""
    cells = list(cells)
    try:
        return list(map(int, cells))
    except ValueError:
        return [_any_number(cell) for cell in cells]


def _any_number(cell: bytes | int) -> int:
    try:
        return int(cell)
    except ValueError:
        return read_time(cell)


def time_text(stored: bytes) -> str:
    """Return a time as the text of a whole number; '' if there is none, or it does not come."""
    time = read_time(stored)
    return "" if time == NEVER else str(time)


def number_text(stored: bytes) -> str:
    """Return the text of a whole number; '' if it is none."""
    return stored.decode() if read_number(stored) is not None else ""


def record_fields(record: str) -> list[str]:
    """Return state, due time, attempts, first token, token and consumer of a delivery record, without its mark.

    One that cannot be read counts as that of a message which was never delivered.
    """
    found = _RECORD.fullmatch(record)
    return [*found.groups()[:5], found[6].partition(" ")[0]] if found else ["pending", "0", "0", "0", "0", "-"]


def are_headers(stored: bytes) -> bool:
    """Return whether headers can be read."""
    try:
        decode_headers(stored)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def read_headers(stored: bytes) -> dict[str, str]:
    """Return headers; none if they cannot be read."""
    return decode_headers(stored) if stored and are_headers(stored) else {}


_ESCAPED = re.compile(r"\\x([89a-f][0-9a-f])")


def stored_id(shown: str) -> str:
    r"""Return an id, or an entry of the dead letter, with surrogates for the bytes that people see as `\xff`."""
    return _ESCAPED.sub(lambda byte: chr(0xDC00 + int(byte[1], 16)), shown) if "\\" in shown else shown


def is_foreign_id(id: str) -> bool:
    """Return whether it is an id that is no UTF-8, as `shown_id` shows it or with surrogates for its bytes."""
    return isinstance(id, str) and any("\udc80" <= character <= "\udcff" for character in stored_id(id))


def shown_id(stored: bytes | str) -> str:
    r"""Return an id as people see it: bytes that are no UTF-8 as `\xff`."""
    data = stored if isinstance(stored, bytes) else stored.encode("utf-8", "surrogateescape")
    return data.decode("utf-8", "backslashreplace")
