"""What the scripts of streams that look answer, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from delayq.answers import pairs

LONGEST_NUMBER = 15
"""Digits of a number that anybody may have written."""


class Row(NamedTuple):
    """What is known of an entry; `again` is when it is delivered again (ms), if that is kept."""

    entry: str
    holder: str
    idle: int
    deliveries: int
    again: int | None
    error: str
    size: int
    fields: dict[bytes, bytes]
    """Those that a message has, the payload cut to a preview."""


class Listed(NamedTuple):
    """A page of entries, as of a time (ms), and the entry after which the next one begins, '' at the end."""

    now: int
    after: str
    rows: list[Row]


def read_listed(answer: Sequence[Any]) -> Listed:
    """Return a page."""
    now, after, rows = answer
    return Listed(now, after.decode(), [*map(_row, rows)])


def read_found(now: int, state: bytes = b"", row: Sequence[Any] | None = None) -> tuple[int, str, Row | None]:
    """Return the time (ms), and the state and the row of an entry that is there."""
    return now, state.decode(), None if row is None else _row(row)


def read_number(fields: Mapping[bytes, bytes], name: bytes, default: int) -> int:
    """Return a number out of the fields of an entry; others may have written anything there, or nothing."""
    value = fields.get(name, b"")
    return int(value) if value.isdigit() and len(value) <= LONGEST_NUMBER else default


def read_groups(answer: Iterable[Any]) -> list[str]:
    """Return the names of groups."""
    return [pairs(group)[b"name"].decode("utf-8", "replace") for group in answer]


def _row(answer: Sequence[Any]) -> Row:
    entry, holder, idle, deliveries, again, error, size, *fields = answer
    return Row(
        entry=entry.decode(),
        holder=holder.decode("utf-8", "replace"),
        idle=idle,
        deliveries=deliveries,
        again=int(again) if again else None,
        error=error.decode("utf-8", "replace"),
        size=size,
        fields=pairs(fields),
    )
