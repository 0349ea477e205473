"""Search: the messages whose payload, error or headers contain a text, found page by page without an index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from delayq.broker.replies import MessageRow
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.inspecting.deaths import read_death
from delayq.queue.inspecting.inspector import MAX_READ, MAX_ROWS, PREVIEW, WHOLE, Inspector
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.values.checks import check_int
from delayq.values.states import MESSAGE_STATES, State

WHERE = ("payload", "error", "headers")
"""Where a text may be; the reason of a death counts as an error."""
MAX_SEARCHED = 100_000
"""Messages that one call reads, by default: about a second of Redis' time."""
MAX_SEARCHED_BYTES = 64 << 20
"""Bytes of payloads after which a call ends: large messages take that second for their bytes."""
_CURSOR = re.compile(r"([a-z]+):([0-9]{1,4}):(.*)")


@dataclass(frozen=True, slots=True)
class Match:
    """A message that contains the text, and where: some of `payload`, `error` and `headers`."""

    message: MessageInfo
    where: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SearchPage:
    """What one call of `search` has found."""

    matches: list[Match]
    searched: int
    """Messages that the call has read."""
    cursor: str | None
    """Where to go on; None when all have been read."""


def search(
    inspector: Inspector,
    text: str,
    *,
    where: Sequence[str] | str,
    states: Sequence[State | str] | State | str | None,
    limit: int,
    max_searched: int,
    cursor: str | None,
) -> Operation[SearchPage]:
    """Read messages, state by state, until `limit` of them contain the text or `max_searched` are read.

    A match keeps as much of its payload as a page of `list`.
    """
    if not isinstance(text, str) or not text:
        raise ConfigurationError(f"text must be what to search for, not {short_repr(text)}")
    parts = _choices(where, WHERE, "where")
    wanted = MESSAGE_STATES if states is None else [State(one) for one in _choices(states, tuple(State), "state")]
    check_int(limit, "limit", 1, MAX_ROWS)
    check_int(max_searched, "max_searched", 1, 1 << 53)
    at, skipped, page = _start(cursor, wanted)
    context = inspector.context
    searcher = _Searcher(text, parts, context.decode if context.hides else bytes)
    preview = WHOLE if "payload" in parts else PREVIEW
    matches: list[Match] = []
    searched = size = 0
    while at < len(wanted):
        rows, after = yield from inspector.rows(wanted[at], limit=MAX_READ, cursor=page, preview=preview)
        for index, row in enumerate(rows[skipped:], skipped):
            if len(matches) == limit:
                return SearchPage(matches, searched, f"{wanted[at]}:{index}:{page or ''}")
            searched += 1
            size += len(row.payload)
            found = searcher.where(wanted[at], row)
            info = inspector.info(wanted[at], _shortened(wanted[at], row)) if found else None
            if info is not None:
                matches.append(Match(info, found))
        at, skipped, page = (at, 0, after) if after else (at + 1, 0, None)
        is_enough = searched >= max_searched or size >= MAX_SEARCHED_BYTES or len(matches) == limit
        if at < len(wanted) and is_enough:
            return SearchPage(matches, searched, f"{wanted[at]}:0:{page or ''}")
    return SearchPage(matches, searched, None)


def _shortened(state: State, row: MessageRow) -> MessageRow:
    """Return the row with the beginning of its payload, as a page of `list` has it."""
    death = read_death(row.payload) if state is State.DEAD else None
    head = len(row.payload) - len(death.payload) if death else 0
    return row._replace(payload=row.payload[: head + PREVIEW])


class _Searcher:
    """Looks for a text in messages as they are stored."""

    def __init__(self, text: str, parts: Sequence[str], shown: Callable[[bytes], bytes]) -> None:
        """Look in these parts; of a payload, in what `shown` returns of it."""
        self._shown = shown
        self._text = text
        self._bytes = text.encode("utf-8", "surrogatepass")
        self._parts = parts

    def where(self, state: State, row: MessageRow) -> tuple[str, ...]:
        """Return the parts of a message that contain the text."""
        payload, headers, error = row.payload, row.headers, row.error
        if state is State.COMPLETED:
            return ()
        if state is State.DEAD:
            death = read_death(row.payload)
            if death is None:
                return ()
            payload, headers, error = death.payload, death.headers, f"{death.error}\n{death.reason}"
        found = {
            "payload": lambda: self._is_in(self._shown(payload)),
            "error": lambda: self._text in error,
            "headers": lambda: self._is_in(headers),
        }
        return tuple(part for part in self._parts if found[part]())

    def _is_in(self, stored: bytes) -> bool:
        """Tell whether stored bytes contain the text, or JSON has it in one of its texts, however it is escaped."""
        if self._bytes in stored:
            return True
        if b"\\" not in stored:
            return False
        try:
            return any(self._text in text for text in _texts(msgspec.json.decode(stored)))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts of a JSON value, also the names of fields."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            left += [*one, *one.values()]


def _choices(given: Any, allowed: Sequence[str], name: str) -> list[str]:
    """Return one or several of the allowed values as a list; raise `ConfigurationError` for any other."""
    chosen = [given] if isinstance(given, str) else list(given) if isinstance(given, Sequence) else []
    if not chosen or not all(isinstance(one, str) and one in allowed for one in chosen):
        raise ConfigurationError(f"{name} must be one or several of {', '.join(allowed)}, not {short_repr(given)}")
    return list(dict.fromkeys(chosen))


def _start(cursor: str | None, states: Sequence[State]) -> tuple[int, int, str | None]:
    """Return where to begin: which state, how many messages of the page to skip, and the cursor of the page."""
    if cursor is None or cursor == "":
        return 0, 0, None
    found = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    if found is None or found[1] not in states:
        raise ConfigurationError(f"cursor {short_repr(cursor)} is not from a search of these states")
    return states.index(State(found[1])), int(found[2]), found[3] or None
