"""Pages over several partitions: merged by time, with one cursor that says how far each of them was read."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from heapq import merge
from typing import Any

import msgspec

from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.inspecting.inspector import MAX_ROWS
from delayq.queue.inspecting.message_info import MessageInfo, Page
from delayq.queue.placing.fan_out import results_of, side_by_side
from delayq.queue.sweeps.search import Match, SearchPage
from delayq.values.checks import check_int

EXTRA = 10
"""Entries that are read of each partition beyond its even share of a page."""
LAST = datetime.max.replace(tzinfo=UTC)
_Position = tuple[str, int]
"""The cursor of a page of one partition, '' for its first, and how many of its messages were shown."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[int, tuple[str, int] | None]).decode
"""The positions of those that are not at their beginning; None for one that was read to its end."""


def time_of(message: MessageInfo) -> datetime:
    """Return the time by which a page is in order: of the death or the end, else when something happens next."""
    return message.died or message.completed or message.deadline or message.due or LAST


def merged_page(
    queue: Any, read: Callable[[Any, int, str | None], Operation[Page]], *, limit: int, cursor: str | None
) -> Operation[Page]:
    """Read a page over all partitions by `read(partition, limit, cursor)`; see `DelayQueue.list`.

    It ends early where one of them has shown all that was read of it, so a page may have fewer messages.
    """
    check_int(limit, "limit", 1, MAX_ROWS)
    partitions = queue.partitions
    positions = {} if cursor is None else _read(cursor, len(partitions))
    at_start: list[tuple[int, _Position | None]] = [
        (at, ("", 0)) for at in range(len(partitions)) if at not in positions
    ]
    asked = [(at, *position) for at, position in [*at_start, *positions.items()] if position is not None]
    share = -(-limit // max(1, len(asked))) + EXTRA
    reads = [read(partitions[at], min(MAX_ROWS, skip + share), after or None) for at, after, skip in asked]
    pages: list[Page] = results_of((yield from side_by_side(reads)), [partitions[at].name for at, *_ in asked])
    rows = [
        [(time_of(one), at, one) for one in page.messages[skip:]]
        for (at, _, skip), page in zip(asked, pages, strict=True)
    ]
    shown: dict[int, int] = dict.fromkeys((at for at, *_ in asked), 0)
    ends = {at: len(some) for (at, *_), some, page in zip(asked, rows, pages, strict=True) if page.cursor}
    messages: list[MessageInfo] = []
    for _, at, message in merge(*rows, key=lambda row: row[:2]):
        if len(messages) == limit:
            break
        messages.append(message)
        shown[at] += 1
        if shown[at] == ends.get(at):  # what comes next may be of this partition
            break
    after_all = dict(positions)
    for (at, after, skip), some, page in zip(asked, rows, pages, strict=True):
        if shown[at] < len(some):
            after_all[at] = (after, skip + shown[at])
        else:
            after_all[at] = (page.cursor, 0) if page.cursor else None
    told = {at: position for at, position in after_all.items() if position != ("", 0)}
    is_over = len(after_all) == len(partitions) and not any(after_all.values())
    return Page(messages, None if is_over else urlsafe_b64encode(_encode(told)).decode())


def _read(cursor: str, number: int) -> dict[int, _Position | None]:
    try:
        positions = _decode(urlsafe_b64decode(cursor))
        if all(0 <= at < number for at in positions) and all(
            0 <= one[1] <= MAX_ROWS for one in positions.values() if one
        ):
            return positions
    except (ValueError, TypeError, msgspec.MsgspecError):
        pass
    raise ConfigurationError(f"cursor must be that of a page before, not {short_repr(cursor)}")


def place_in(cursor: str | None, number: int) -> tuple[int, str | None]:
    """Return at which partition to go on, one after the other, and with which cursor there."""
    at, _, inner = (cursor or "0:").partition(":")
    if not at.isdecimal() or int(at) >= number:
        raise ConfigurationError(f"cursor must be that of a page before, not {short_repr(cursor)}")
    return int(at), inner or None


def search_each(
    queue: Any,
    search: Callable[[Any, int, int, str | None], Operation[SearchPage]],
    *,
    limit: int,
    max_searched: int,
    cursor: str | None,
) -> Operation[SearchPage]:
    """Search one partition after another by `search(partition, limit, max_searched, cursor)`."""
    partitions = queue.partitions
    at, after = place_in(cursor, len(partitions))
    matches: list[Match] = []
    searched = 0
    while True:
        page: SearchPage = yield from search(partitions[at], limit - len(matches), max_searched - searched, after)
        matches += page.matches
        searched, after = searched + page.searched, page.cursor
        if after is None:
            at += 1
            if at == len(partitions):
                return SearchPage(matches, searched, None)
        if len(matches) >= limit or searched >= max_searched or after is not None:
            return SearchPage(matches, searched, f"{at}:{after or ''}")
